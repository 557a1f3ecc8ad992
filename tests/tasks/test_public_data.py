"""The figures of the public HPC-GPT files; none of their text stands here."""

import re
from collections import Counter, defaultdict
from functools import cache

import pytest

from hpcjf.study import TaskSection
from hpcjf.tasks import load_task
from hpcjf.tasks.base import prompt_key
from hpcjf.tasks.files import PUBLIC_FILES, read_rows
from hpcjf.tasks.masking import leaked_label
from hpcjf.tasks.prepare import prepare_answers
from hpcjf.tasks.race import prepare

pytestmark = pytest.mark.data
ALL = tuple(PUBLIC_FILES)
WIDE_RULE = re.compile(r"(?:drb\w*|program\s+\w*?)[_-]?(yes|no)(?![a-z])", re.I)


def raw(data_dir, task):
    return read_rows(data_dir / "hpc-gpt" / PUBLIC_FILES[task])


@cache
def load(data_dir, **settings):
    return load_task(TaskSection(**({"names": ALL, "path": str(data_dir / "hpc-gpt")} | settings)))


@pytest.mark.parametrize(
    ("task", "rows", "prompts"),
    [("race_c", 1858, 1798), ("race_fortran", 1576, 1575), ("mlperf", 1820, 1178), ("plp", 603, 533)],
)
def test_rows_and_different_prompts(data_dir, task, rows, prompts):
    found = raw(data_dir, task)
    assert len(found) == rows
    assert len({prompt_key(row.prompt) for row in found}) == prompts


def test_labels_and_contradictions_of_c(data_dir):
    rows = raw(data_dir, "race_c")
    prepared = prepare(rows, "race_c", mask=False)
    assert len(prepared.rows) == 1857
    labels = defaultdict(set)
    clean = {
        row.number: row.answer.strip().lower()[:2] for row in rows if row.answer.strip().lower()[:2] in ("ye", "no")
    }
    for row in rows:
        if row.number in clean:
            labels[prompt_key(row.prompt)].add(clean[row.number])
    assert sum(len(found) > 1 for found in labels.values()) == 8
    assert len(prepared.contradictory) == 8


@pytest.mark.parametrize(("task", "prompts"), [("mlperf", 92), ("plp", 13)])
def test_prompts_with_several_answers(data_dir, task, prompts):
    rows = prepare_answers(raw(data_dir, task), task).rows
    assert len({row.key for row in rows if len(row.references) > 1}) == prompts


@cache
def fortran(data_dir, mask):
    return prepare(raw(data_dir, "race_fortran"), "race_fortran", mask=mask).rows


def test_fortran_names_give_the_label_away_until_masked(data_dir):
    leaks = [(leaked_label(row.prompt), row.references[0]) for row in fortran(data_dir, mask=False)]
    named = [pair for pair in leaks if pair[0] is not None]
    assert len(named) == 1276
    assert sum(leak == label for leak, label in named) == 1209
    masked = [row.prompt for row in fortran(data_dir, mask=True)]
    assert not any(leaked_label(prompt) for prompt in masked)


def test_the_wide_rule_finds_names_before_and_none_after_masking(data_dir):
    pairs = [(WIDE_RULE.search(row.prompt), row.references[0]) for row in fortran(data_dir, mask=False)]
    named = [(found[1].lower(), label) for found, label in pairs if found]
    assert (len(named), sum(leak == label for leak, label in named)) == (1355, 1287)
    assert not any(WIDE_RULE.search(row.prompt) for row in fortran(data_dir, mask=True))


def test_names_of_programs_and_modules_say_nothing_after_masking(data_dir):
    """The best policy that reads these names alone does no better than the more frequent label."""

    def accuracy(mask):
        labels = defaultdict(Counter)
        for row in fortran(data_dir, mask):
            labels[tuple(re.findall(r"(?im)^\s*program[ \t]+(\w+)", row.prompt))][row.references[0]] += 1
        return sum(max(count.values()) for count in labels.values()) / 1576

    base = max(Counter(row.references[0] for row in fortran(data_dir, True)).values()) / 1576
    assert accuracy(mask=False) > 0.9
    assert accuracy(mask=True) == pytest.approx(base, abs=0.005)


def test_masking_keeps_the_code(data_dir):
    """Word for word, only names change, and equal names stay equal."""
    for before, after in zip(fortran(data_dir, False), fortran(data_dir, True), strict=True):
        code = [row.prompt.rpartition(", help me detect")[0] for row in (before, after)]
        assert re.sub(r"\w+", "", code[0]) == re.sub(r"\w+", "", code[1])
        words = [re.findall(r"\w+", text.lower()) for text in code]
        changed = {(old, new) for old, new in zip(*words, strict=True) if old != new}
        assert len({old for old, _ in changed}) == len({new for _, new in changed}) == len(changed)
        assert all(re.fullmatch(r"(program|module|name|file)_\d+", new) for _, new in changed)


@pytest.mark.parametrize("split", ["grouped", "paper"])
def test_official_test_rows(data_dir, split):
    data = load(data_dir, split=split)
    assert [sum(row.task == name for row in data.test) for name in ALL] == [185, 157, 182, 60]
    assert len(data.test) == 584
    spread = [sum(row.task == name for row in data.validation) for name in ALL]
    assert sum(spread) == 128
    assert min(spread) >= 10


def test_parts_are_apart_unless_the_paper_is_reproduced(data_dir):
    train, validation, test = ({row.key for row in part} for part in _parts(load(data_dir)))
    assert train.isdisjoint(validation | test)
    assert validation.isdisjoint(test)
    train, validation, test = ({row.key for row in part} for part in _parts(load(data_dir, split="paper")))
    assert validation.isdisjoint(train | test)
    assert len(train & test) > 50


def _parts(data):
    return data.train, data.validation, data.test


def test_every_row_is_accounted_for(data_dir):
    """5,857 rows = the parts + one without label + 29 contradictory + copies of validation prompts."""
    data = load(data_dir)
    copies = next(int(note.split()[0]) for note in data.notes if "copies of validation" in note)
    assert sum(map(len, _parts(data))) + 1 + 29 + copies == 5857
    notes = "\n".join(data.notes)
    assert "race_c: 1 rows without a yes/no label" in notes
    assert "race_c: 20 labels with more text" in notes
    assert "race_c: 8 prompts carry both labels (29 rows)" in notes
    assert "race_fortran: 1276 prompts name a label, 1209 the right one: names masked" in notes


def test_fences_are_gone(data_dir):
    data = load(data_dir, names=("race_c", "race_fortran"))
    for part in _parts(data):
        assert not any(mark in row.prompt for row in part for mark in ("```", '"""', "'''"))


def test_loading_twice_gives_the_same_fingerprint(data_dir):
    assert load(data_dir).fingerprint == load.__wrapped__(data_dir).fingerprint
    assert load(data_dir).fingerprint != load(data_dir, leaks="keep").fingerprint
