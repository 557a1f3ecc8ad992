import pytest

from hpcjf.tasks.masking import leaked_label, mask_names

QUESTION = ", help me detect a race? Answer 'yes' if DRB001_x_yes and 'no' if not."


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("program DRB900_x_orig_no\n", "no"),
        ("program DRB900_x_orig_YES", "yes"),
        ("file DRB900-x-orig-yes.c", "yes"),
        ("a_no then b_yes", "no"),
        ("DRB900_x_orig_yes_omp50", "yes"),
        ("orig_yes2", None),
        ("a_note b_yesterday", None),
        ("Answer 'yes' or 'no'", None),
        ("", None),
    ],
)
def test_first_revealing_name_counts(text, label):
    assert leaked_label(text) == label


@pytest.mark.parametrize(
    "name",
    [
        "DRB900_x_orig_no",
        "drb900_x_orig_yes",
        "DRB900_x_orig_yes_omp_50",
        "DRB900_x_orig_no2",
        "DRB900_x_orig_yes_v2",
        "DRB900",
        "DRB_105_no_data_race",
        "LP9_wave_gpu_no",
        "DataRaceYes",
        "dataraceyes",
        "ParallelNoRace",
        "DATA_RACE_ISSUE",
        "global_no_race",
        "tides",
        "reduction",
    ],
)
def test_every_program_and_module_loses_its_name(name):
    code = (
        f"module m_{name}\n integer :: t\nend module m_{name}\n"
        f"program {name}\n use m_{name}, only: t\n !$omp do reduction(+:t)\n t = t\nend program {name}\n"
    )
    masked = mask_names(code + QUESTION, fortran=True)
    assert (
        masked
        == (
            "module module_1\n integer :: t\nend module module_1\n"
            "program program_1\n use module_1, only: t\n !$omp do reduction(+:t)\n t = t\nend program program_1\n"
        )
        + QUESTION
    )


def test_both_labels_leave_the_same_prompt():
    code = "program DRB900_x_orig_{}\n call go_{}()\nend program\n"
    assert len({mask_names(code.format(a, a), fortran=True) for a in ("yes", "no", "Yes", "NO")}) == 1


def test_declarations_are_found_wherever_a_statement_may_begin():
    code = "snippet: program tides; use shore\nend program tides\n  MODULE Shore\nendmodule shore\n"
    assert mask_names(code, fortran=True) == (
        "snippet: program program_1; use module_1\nend program program_1\n  MODULE module_1\nendmodule module_1\n"
    )


def test_submodules_and_procedures_are_told_apart():
    code = "submodule (coast) bay\n module procedure go\n module function f(x)\nend submodule bay\nmodule coast\n"
    assert mask_names(code, fortran=True) == (
        "submodule (module_2) module_1\n module procedure go\n module function f(x)\n"
        "end submodule module_1\nmodule module_2\n"
    )


def test_names_are_equal_after_masking_where_they_were_before_in_the_language():
    code = "call F2_no_race(b_yes)\nsubroutine f2_NO_race(x)\nend subroutine F2_No_Race\n!$omp atomic\nb_yes = 1\n"
    assert mask_names(code, fortran=True) == (
        "call name_1(name_2)\nsubroutine name_1(x)\nend subroutine name_1\n!$omp atomic\nname_2 = 1\n"
    )
    assert mask_names("A_no = a_no;", fortran=False) == "name_1 = name_2;"


def test_neutral_names_avoid_those_in_use():
    assert mask_names("program_1 = 2\nprogram tides\n", fortran=True) == "program_1 = 2\nprogram program_2\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("see DRB900-x-orig-yes.c and src/DRB900-x-orig-no.c", "see file_1.c and file_2.c"),
        ("tides.f90 twice: tides.f90", "file_1.f90 twice: file_1.f90"),
        ("DRB900-x-orig-yes", "name_1"),
        ("case wave-orig-no here", "case name_1 here"),
    ],
)
def test_file_and_hyphenated_names_go(before, after):
    assert mask_names(before, fortran=False) == after


@pytest.mark.parametrize(
    "text",
    [
        "b[i] = b[i - m] - 1.f;",
        "#include <stdio.h>\nnode.c = p.f;",
        "#pragma omp parallel for nowait private(normal, notes)",
        "trace(brace); embrace = nodes + yesterday;",
        "Answer yes-or-no: is there a race, yes or no?",
        "x = a - nowait;",
        "",
        "программа без имени 🙂",
    ],
)
def test_harmless_text_is_left_alone(text):
    assert mask_names(text, fortran=False) == text
    assert mask_names(text, fortran=True) == text


def test_question_is_left_alone():
    assert mask_names("b_no = 1" + QUESTION, fortran=True) == "name_1 = 1" + QUESTION


def test_a_kernel_with_marks_everywhere():
    code = "module drb1\nend module\nprogram DRB1_yes\n use drb1\n go_no = 1 ! see DRB1_yes\nend program\n"
    assert mask_names(code, fortran=True) == (
        "module module_1\nend module\nprogram program_1\n use module_1\n name_1 = 1 ! see program_1\nend program\n"
    )
