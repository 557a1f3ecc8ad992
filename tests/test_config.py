"""A study file as text: what it may hold, and the one line that each fault becomes."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from hpcjf.config import line_of, nearest, read_study, read_yaml
from hpcjf.errors import StudyError
from hpcjf.study import SearchSection

MODELS = "models:\n  - {name: a, path: builtin:tiny-s}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "study.yaml"


def fault(file: Path, text: str) -> str:
    """What is said of this text, from the line on."""
    file.write_text(text)
    with pytest.raises(StudyError) as caught:
        read_study(file)
    assert caught.value.exit_code == 2
    assert caught.value.fix, "an error without a way out"
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(str(file))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6),
        ("1E-6", 1e-6),
        ("1.e-6", 1e-6),
        ("-2e3", -2000.0),
        ("1.0e-6", 1e-6),
        ("17", 17),
        ("1e", "1e"),
        ("2020-01-01", "2020-01-01"),
        ("2020-13-45", "2020-13-45"),
        ("'1e-6'", "1e-6"),
    ],
)
def test_scalars_are_read_as_their_writers_mean_them(file: Path, text: str, value: object) -> None:
    file.write_text(f"key: {text}\n")
    read = read_yaml(file)[0]["key"]
    assert read == value
    assert type(read) is type(value)


def test_every_key_and_entry_has_its_line(file: Path) -> None:
    file.write_text("# a comment\na:\n  b: 1\n  c:\n    - x\n    - d: 2\n      e: 3\nf: {g: 4}\n")
    lines = read_yaml(file)[1]
    assert lines == {
        ("a",): 2,
        ("a", "b"): 3,
        ("a", "c"): 4,
        ("a", "c", 0): 5,
        ("a", "c", 1): 6,
        ("a", "c", 1, "d"): 6,
        ("a", "c", 1, "e"): 7,
        ("f",): 8,
        ("f", "g"): 8,
    }
    assert line_of(file, lines, ("a", "c", 1, "absent", "deeper")) == f"{file}:6"
    assert line_of(file, lines, ("absent",)) == f"{file}:1"


def test_anchors_and_merged_keys_are_no_duplicates(file: Path) -> None:
    text = MODELS + "cluster: &base {cpus: 2, gpus: 1}\n"
    text += "algorithm:\n  temperature: 0.5\n"
    text = text.replace(
        "tiny-s}", "tiny-s, resources: &r {cpus: 3}}\n  - {name: b, path: x, resources: {<<: *r, cpus: 4}}"
    )
    file.write_text(text)
    study, _ = read_study(file)
    assert [model.resources.cpus for model in study.models] == [3, 4]


def test_a_byte_order_mark_is_no_part_of_the_first_key(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + MODELS.encode())
    assert read_study(file)[0].target.name == "a"


def test_text_is_utf_8_in_every_locale(file: Path) -> None:
    file.write_text(MODELS + 'cluster: {setup: ["echo ü"]}\n', encoding="utf-8")
    assert read_study(file)[0].cluster.setup == ("echo ü",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ": is empty; hpcjf init DIR writes a working one"),
        ("# only a comment\n", ": is empty; hpcjf init DIR writes a working one"),
        ("- a\n- b\n", ": is no mapping of keys to values; hpcjf init DIR writes a working one"),
        ("models\n", ": is no mapping of keys to values; hpcjf init DIR writes a working one"),
        (
            "study:\n\tseed: 1\n",
            ":2: not valid YAML: found character '\\t' that cannot start any token; indent",
        ),
        (
            "study: {seed: 1\n",
            ":2: not valid YAML: expected ',' or '}', but got '<stream end>'; mend the YAML",
        ),
        ("study: 'a\n", ":2: not valid YAML: found unexpected end of stream; mend the YAML"),
        ("a: 1\n---\nb: 2\n", ":2: not valid YAML: but found another document; mend the YAML"),
        ("study: *absent\n", ":1: not valid YAML: found undefined alias 'absent'; mend the YAML"),
        ("study: !!python/object:os.system {}\n", ":1: not valid YAML: could not determine a constructor"),
        ("? [a, b]\n: 1\n", ":1: not valid YAML: found unhashable key; mend the YAML"),
        ("study: &s [*s]\n", ":1: study cannot be a list (and 1 more); give a mapping of keys to values"),
        ("study: " + "[" * 3000 + "\n", ": nested too deeply, or in itself; write it flat"),
        (
            "study: !!int abc\n",
            ": a value cannot be read: invalid literal for int() with base 10: 'abc'; put",
        ),
        ("study: !!bool abc\n", ": a value cannot be read: 'abc'; put it in quotes"),
        ("study: " + "9" * 5000 + "\n", ": a value cannot be read: Exceeds the limit"),
        ("a: \x07\n", ": not valid YAML: unacceptable character #x0007: special characters are not allowed"),
        (
            "study:\n  seed: 1\n  name: a\n  seed: 2\n",
            ":4: not valid YAML: key seed is given twice; keep one",
        ),
        (MODELS + "models: []\n", ":3: not valid YAML: key models is given twice; keep one"),
        ("models:\n  - name: a\n    path: x\n    name: b\n", ":4: not valid YAML: key name is given twice"),
    ],
)
def test_text_that_is_no_study(file: Path, text: str, said: str) -> None:
    assert fault(file, text).startswith(said)


def test_files_that_cannot_be_read(file: Path) -> None:
    with pytest.raises(StudyError, match=r"study\.yaml: no such file; hpcjf init DIR writes one"):
        read_study(file)
    file.mkdir()
    with pytest.raises(StudyError, match=r"study\.yaml: cannot be read: Is a directory; name a file"):
        read_study(file)
    with pytest.raises(StudyError, match=r"cannot be read: embedded null byte; name a study file"):
        read_study(Path("a\0b"))


def test_a_file_of_another_user(file: Path) -> None:
    file.write_text(MODELS)
    file.chmod(0)
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        with pytest.raises(StudyError, match=r"cannot be read: Permission denied; name a file that you can read"):
            read_study(file)
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("content", [b"\x80\x81\x82", b"\x7fELF\x02\x01\x01\x00\xff\xfe", b"PK\x03\x04\x00\x00"])
def test_binary_files(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(
        StudyError, match=r"study\.yaml: (not UTF-8 text|not valid YAML)[^\n]*; (name a|write plain) text"
    ):
        read_study(file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # unknown keys, at every depth, with the nearest valid name
        ("budgets: {min: 1}\n", ":3: unknown key budgets; did you mean budget? (known: study, models, task"),
        ("study:\n  sed: 1\n", ":4: unknown key study.sed; did you mean seed? (known: name, seed"),
        ("task: {zzzzzz: 1}\n", ":3: unknown key task.zzzzzz; known: names, path"),
        ("space:\n  kl_coef:\n    type: real\n    lo: 1\n", ":6: unknown key space.kl_coef.lo (and 2 more); did"),
        ("cluster:\n  partitions: a\n", ":4: unknown key cluster.partitions; did you mean partition?"),
        # the wrong type
        ("budget: {min: ten}\n", ":3: budget.min cannot be 'ten'; give a whole number"),
        ("budget: {min: 1.5}\n", ":3: budget.min cannot be 1.5; give a whole number"),
        ("budget: {min: true}\n", ":3: budget: min cannot be true; give a number"),
        ("cluster: {mem_gb: yes}\n", ":3: cluster: mem_gb cannot be true; give a number"),
        ("budget: 3\n", ":3: budget cannot be 3; give a mapping of keys to values"),
        ("budget: [1, 2]\n", ":3: budget cannot be a list; give a mapping of keys to values"),
        ("budget:\n", ":3: budget cannot be empty; give a mapping of keys to values"),
        ("task: {names: race_c}\n", ":3: task.names cannot be 'race_c'; give a list, [...]"),
        ("task: {names: []}\n", ":3: task.names cannot be an empty list; give at least 1 of them"),
        ("study: {name: 3}\n", ":3: study.name cannot be 3; give text"),
        ("study: {name: a b}\n", ":3: study.name cannot be 'a b'; give 1 to 64 letters, digits"),
        ("budget: {1: 2}\n", ":3: budget.1 cannot be 1; give a key that is text"),
        ("recipe: 3\n", ":3: recipe cannot be 3; give text, in quotes where it looks like a number or a mapping"),
        ("recipe:\n  kl_coef: [1]\n", ":4: recipe.kl_coef cannot be a list; give true or false or a whole"),
        ("cluster: {extra_directives: {nice: 3}}\n", ":3: cluster.extra_directives.nice cannot be 3; give text"),
        # numbers out of their range
        ("algorithm: {rollouts: 1}\n", ":3: algorithm.rollouts cannot be 1; give a number greater than or equal to 2"),
        ("algorithm: {learning_rate: .nan}\n", ":3: algorithm.learning_rate cannot be nan; give a finite number"),
        ("cluster: {mem_gb: .inf}\n", ":3: cluster.mem_gb cannot be inf; give a finite number"),
        ("study: {seed: -1}\n", ":3: study.seed cannot be -1; give a number greater than or equal to 0"),
        ("study: {seed: 99999999999999}\n", ":3: study.seed cannot be 99999999999999; give a number less than"),
        # min > max
        ("budget: {min: 9, max: 3}\n", ":3: budget: min (9) must not exceed max (3); change one of them"),
        (
            "space:\n  kl_coef: {type: real, low: 2, high: 1}\n",
            ":4: space.kl_coef: low (2) must be smaller than high (1)",
        ),
        ("space:\n  rollouts: {type: integer, low: 4, high: 4}\n", ":4: space.rollouts: low (4) must be smaller"),
        (
            "space:\n  kl_coef: {type: real, low: 0, high: 1, log: true}\n",
            ":4: space.kl_coef: a log range needs low > 0",
        ),
        # words that are not known
        ("study: {metric: f1}\n", ":3: study.metric cannot be 'f1'; one of: eval_score"),
        ("study: {metric: eval_scor}\n", ":3: study.metric cannot be 'eval_scor'; did you mean eval_score?"),
        (
            "task:\n  names:\n    - arithmetic\n    - race-c\n",
            ":6: task.names.1 cannot be 'race-c'; did you mean race_c?",
        ),
        (
            "search: {method: bayes}\n",
            ":3: search.method cannot be 'bayes'; one of: jfhpo, recipe, grid, random, sha, hyperband, asha, bohb, tpe",
        ),
        ("space: {kl_coef: {low: 1, high: 2}}\n", ":3: key space.kl_coef.type is missing; add one of real, integer"),
        (
            "space: {kl_coef: {type: rael, low: 1, high: 2}}\n",
            ":3: space.kl_coef.type cannot be 'rael'; did you mean real?",
        ),
        # what is missing, and what belongs together
        ("space: {kl_coef: {type: real, low: 1}}\n", ":3: key space.kl_coef.high is missing; add it"),
        ("task: {names: [plp]}\n", ":1: task plp needs task.path; change one of them"),
        (
            "cluster: {mem_gb: 1, mem_per_cpu_gb: 2}\n",
            ":3: cluster: mem_gb and mem_per_cpu_gb exclude each other; keep one",
        ),
        ("search: {max_trials: null}\n", ":3: search: set at least one of max_trials, max_hours, max_job_hours"),
        # control characters that would reach a batch script
        ('cluster: {partition: "a\\nb"}\n', ":3: cluster.partition cannot be 'a\\nb'; give one line without control"),
        ('cluster: {setup: ["a\\nb"]}\n', ":3: cluster.setup.0 cannot be 'a\\nb'; give one line without control"),
        ('cluster: {extra_directives: {gres: "a\\u0000"}}\n', ":3: cluster.extra_directives.gres cannot be 'a\\x00'"),
        ('study: {name: "a\\u001b[2J"}\n', ":3: study.name cannot be 'a\\x1b[2J'; give 1 to 64 letters"),
    ],
)
def test_values_that_no_study_has(file: Path, text: str, said: str) -> None:
    assert fault(file, MODELS + text).startswith(said)


@pytest.mark.parametrize(
    ("models", "said"),
    [
        ("study: {seed: 1}\n", ":1: key models is missing; add it"),
        ("models: []\n", ":1: models cannot be an empty list; give at least 1 of them"),
        ("models: {name: a}\n", ":1: models cannot be a mapping; give a list"),
        ("models:\n  - name: a\n    pth: x\n", ":3: unknown key models.0.pth (and 1 more); did you mean path?"),
        ("models:\n  - name: a\n", ":2: key models.0.path is missing; add it"),
        (
            "models:\n  - {name: a, path: x}\n  - name: b\n    path: y\n    resources:\n      gpu: 1\n",
            ":6: unknown key models.1.resources.gpu; did you mean gpus?",
        ),
        (
            "models:\n  - name: a\n    path: x\n    adapter: {type: qlora}\n",
            ":4: models.0.adapter.type cannot be 'qlora'; did you mean lora?",
        ),
        ("models:\n  - {name: a, path: x}\n  - {name: a, path: y}\n", ":1: model names must differ: a, a; change"),
        ("models:\n  - {name: a/../b, path: x}\n", ":2: models.0.name cannot be 'a/../b'; give 1 to 64 letters"),
        (
            "models:\n  - {name: a, path: x/y, trust_remote_code: true}\n",
            ":2: models.0: trust_remote_code needs a pinned revision",
        ),
    ],
)
def test_models_that_no_study_has(file: Path, models: str, said: str) -> None:
    assert fault(file, models).startswith(said)


def test_several_faults_are_counted_and_an_unknown_key_explains_them(file: Path) -> None:
    text = "budget: {min: ten, maximum: 3}\nsearch: {parallel: 0}\n"
    assert fault(file, MODELS + text).startswith(":3: unknown key budget.maximum (and 2 more); did you mean")


def test_a_key_under_an_alias_is_named_and_its_fault_stands_at_the_anchor(file: Path) -> None:
    text = "models:\n  - {name: a, path: x, resources: &r {gpu: 1}}\n  - {name: b, path: y, resources: *r}\n"
    assert fault(file, text).startswith(":2: unknown key models.0.resources.gpu (and 1 more); did you mean gpus?")


def test_long_values_are_cut(file: Path) -> None:
    said = fault(file, MODELS + f"budget: {{min: {'x' * 500}}}\n")
    assert len(said) < 150
    assert "xxx...; give a whole number" in said


def test_nearest_says_all_names_where_none_is_near() -> None:
    assert (
        nearest("leaning_rate", ("learning_rate", "kl_coef"))
        == "did you mean learning_rate? (known: learning_rate, kl_coef)"
    )
    assert nearest("zzz", ("learning_rate", "kl_coef")) == "known: learning_rate, kl_coef"


def test_a_good_study_is_read_with_its_types(file: Path) -> None:
    file.write_text(MODELS + "space:\n  rollouts: {type: integer, low: 2, high: 8}\nalgorithm: {learning_rate: 1e-6}\n")
    study, lines = read_study(file)
    assert math.isclose(study.algorithm.learning_rate, 1e-6)
    assert study.space is not None
    assert study.space["rollouts"].type == "integer"
    assert lines["space", "rollouts", "high"] == 4


@pytest.mark.parametrize(
    ("search", "design"),
    [({"max_trials": 8}, 4), ({"max_trials": 24}, 6), ({"max_trials": 500}, 12), ({"max_trials": 24, "initial": 0}, 0)],
)
def test_the_initial_design_grows_with_the_study(search: dict[str, int], design: int) -> None:
    assert SearchSection.model_validate(search).design == design
    assert SearchSection(max_trials=None, max_hours=1).design == 12


def test_a_deterministic_study_has_nothing_that_depends_on_timing(file: Path) -> None:
    deterministic = MODELS + "search: {deterministic: true, max_trials: 9"
    assert "deterministic needs max_trials as the only limit" in fault(file, deterministic + ", max_hours: 2}\n")
    assert "what it removes depends on timing" in fault(file, deterministic + "}\ncheckpoints: {max_gb: 1}\n")


@pytest.mark.parametrize(
    "more",
    ["algorithm: {pipeline: sft}\n", "space:\n  pipeline: {type: categorical, choices: [rl, sft_gold]}\n"],
)
def test_a_kl_ceiling_needs_a_pipeline_that_measures_it(file: Path, more: str) -> None:
    assert "search.kl_ceiling needs a KL" in fault(file, MODELS + "search: {kl_ceiling: 0.1}\n" + more)


def test_pass_at_k_needs_as_many_samples(file: Path) -> None:
    assert "pass@32 needs samples of at least 32" in fault(
        file, MODELS + "evaluation: {pass_at: [1, 32], samples: 16}\n"
    )


@pytest.mark.parametrize(
    "more",
    ["algorithm: {base: late}\n", "space:\n  base: {type: categorical, choices: [early, late]}\n"],
)
def test_a_base_is_one_of_every_model(file: Path, more: str) -> None:
    models = "models:\n  - {name: a, path: x, bases: {early: y, late: z}}\n  - {name: b, path: x, bases: {early: y}}\n"
    assert "model b has no base late" in fault(file, models + more)
