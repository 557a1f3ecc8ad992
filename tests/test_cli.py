"""The command line: every fault is one line with exit code 2 and leaves everything as it was."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from hpcjf import __version__
from hpcjf.cli import main
from hpcjf.cluster.local import LocalCluster
from hpcjf.config import read_study
from hpcjf.controller.history import state_of
from hpcjf.controller.start import opened
from hpcjf.core.lifecycle import Phase
from hpcjf.resolve import resolve_study
from hpcjf.store.frozen import load_frozen
from hpcjf.store.layout import RunLayout
from hpcjf.study import Study

STUDY = """\
study:
  seed: 0
  training_seeds: 1
models:
  - name: small
    path: models/small
    resources:
      cpus: 1
  - name: large
    path: models/large
task:
  names: [arithmetic]
  validation_rows: 20
algorithm:
  prompts_per_step: 4
recipe: tiny_arithmetic
space:
  learning_rate: {type: real, low: 1e-6, high: 1e-2, log: true}
  rollouts: {type: integer, low: 2, high: 8}
budget:
  min: 2
  max: 6
search:
  max_trials: 4
cluster:
  executor: local
"""


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


Hpcjf = Callable[..., Result]
FakeModel = Callable[[str, int], Path]


@pytest.fixture
def hpcjf(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Hpcjf:
    """The console script, in this process."""

    def call(*arguments: str | Path) -> Result:
        monkeypatch.setattr(sys, "argv", ["hpcjf", *map(str, arguments)])
        capfd.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        return Result(code, *capfd.readouterr())

    return call


def script(*arguments: str | Path, prefix: Sequence[str] = (), **environment: str) -> Result:
    """The console script in a process of its own."""
    command = [*prefix, sys.executable, "-m", "hpcjf.cli", *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, env=os.environ | environment
    )
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def study(tmp_path: Path, fake_model: FakeModel) -> Path:
    fake_model("small", 1000)
    fake_model("large", 5000)
    file = tmp_path / "study.yaml"
    file.write_text(STUDY)
    return file


def take_up(file: Path, run: Path | None = None) -> Path:
    """Opens the run of a study and leaves it before the first tick, as a controller that dies at once."""
    study, lines = read_study(file)
    layout = RunLayout(run or file.parent / "run")
    with opened(layout, resolve_study(study, file, lines), LocalCluster(layout.local_jobs, 1)):
        return layout.root


@pytest.fixture
def begun(study: Path) -> Path:
    """A run directory without a trial."""
    return take_up(study)


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Mode and content of everything below."""
    found = {}
    for path in sorted(folder.rglob("*")):
        content = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(folder))] = (stat.S_IMODE(path.lstat().st_mode), content)
    return found


def assert_refused(result: Result, where: str, what: str, fix: str) -> None:
    """``hpcjf: WHERE: WHAT; FIX`` and nothing else, with the exit code of a user's fault."""
    assert result.err.count("\n") == 1, result.err
    line = result.err.rstrip("\n")
    assert line.startswith(f"hpcjf: {where}: "), line
    assert what in line
    assert re.search(rf"; [^;]*{re.escape(fix)}", line), line
    assert result.code == 2


def with_line(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def line_number(file: Path, text: str) -> int:
    return file.read_text().split(text)[0].count("\n") + 1


BAD = {
    "unknown section": ("budget:\n", "budgets:\n", "budgets:", "unknown key budgets", "did you mean budget?"),
    "unknown key": ("  seed: 0", "  sead: 0", "sead", "unknown key study.sead", "did you mean seed?"),
    "unknown key of a model": ("    path: models/large", "    pth: x", "pth", "models.1.pth", "did you mean path?"),
    "unknown key of resources": ("      cpus: 1", "      cpu: 1", "cpu: 1", "models.0.resources.cpu", "mean cpus?"),
    "unknown key of a dimension": ("low: 2,", "lo: 2,", "rollouts", "space.rollouts.lo", "did you mean low?"),
    "wrong type": ("  min: 2", "  min: two", "min: two", "budget.min cannot be 'two'", "give a whole number"),
    "a list for a mapping": ("  seed: 0\n  training_seeds: 1", "  - 0", "study:", "study cannot be a list", "mapping"),
    "not a number": ("  prompts_per_step: 4", "  temperature: .nan", "temperature", "cannot be nan", "finite number"),
    "budget min > max": ("  min: 2", "  min: 7", "budget:", "min (7) must not exceed max (6)", "change one of them"),
    "space low > high": ("low: 1e-6", "low: 1", "learning_rate", "low (1) must be smaller than high", "change one"),
    "unknown metric": ("  seed: 0", "  metric: f1", "metric", "study.metric cannot be 'f1'", "one of: eval_score"),
    "unknown task": ("[arithmetic]", "[arithmetics]", "names", "cannot be 'arithmetics'", "did you mean arithmetic?"),
    "a task twice": (
        "[arithmetic]",
        "[arithmetic, arithmetic]",
        "names",
        "a task is named twice",
        "name each task once",
    ),
    "too many validation rows": ("rows: 20", "rows: 99999", "names", "can be spared", "set task.validation_rows to"),
    "unknown method": (
        "  max_trials: 4",
        "  method: grit",
        "method",
        "search.method cannot be 'grit'",
        "did you mean grid?",
    ),
    "a configuration outside the space": (
        "  max_trials: 4",
        "  configurations: [{rollouts: 3}, {rollouts: 9}]",
        "configurations",
        "search.configurations.1.rollouts: space.rollouts does not contain 9",
        "give another value",
    ),
    "a warm start that is no run": (
        "  max_trials: 4",
        "  warm_start: models",
        "warm_start",
        "models: not a run directory",
        "name the run directory of an earlier study",
    ),
    "missing model": ("models/small", "models/absent", "models/absent", "no folder", "name a model folder"),
    "unknown built-in model": (
        "models/small",
        "builtin:tiny",
        "builtin",
        "no built-in model tiny",
        "did you mean tiny-",
    ),
    "missing data": ("rows: 20", "rows: 20\n  path: absent", "path: absent", "no file or folder", "name the data"),
    "task without data": ("[arithmetic]", "[race_c]", "study:", "task race_c needs task.path", "change one of them"),
    "space over an unknown name": (
        "  rollouts:",
        "  rolouts:",
        "rolouts",
        "no hyperparameter of this name",
        "mean rollouts?",
    ),
    "impossible range end": (
        "low: 2,",
        "low: 1,",
        "rollouts",
        "space.rollouts cannot be 1",
        "greater than or equal to 2",
    ),
    "impossible rate": ("low: 1e-6, high: 1e-2, log: true", "low: -1, high: 1", "learning", "cannot be -1.0", "than 0"),
    "recipe outside the space": ("low: 1e-6", "low: 1e-3", "learning_rate", "the recipe's value 0.0001", "widen it"),
    "recipe that is not there": (
        "tiny_arithmetic",
        "tiny_arithmetik",
        "recipe",
        "no recipe",
        "did you mean tiny_arith",
    ),
    "key given twice": ("  max: 6", "  max: 6\n  min: 1", "min: 1", "key min is given twice", "keep one"),
    "tab": ("  min: 2", "\tmin: 2", "\tmin", "not valid YAML", "indent with spaces, not tabs"),
    "no YAML": (
        "[arithmetic]",
        "[arithmetic",
        "  validation_rows",
        "not valid YAML: expected ',' or ']'",
        "mend the YAML",
    ),
    "newline for sbatch": (
        "cpus: 1",
        'partition: "a\\n#SBATCH"',
        "partition",
        "resources.partition",
        "one line without",
    ),
    "control character": (
        "cpus: 1",
        'qos: "a\\e"',
        "qos",
        "resources.qos cannot be 'a\\x1b'",
        "one line without control",
    ),
    "newline in a directive": (
        "cpus: 1",
        'extra_directives: {"a\\nb": c}',
        "resources:",
        "'a\\nb' is not a directive",
        "",
    ),
    "newline in a set-up line": (
        "cpus: 1",
        'setup: ["a\\nb"]',
        "setup",
        "setup.0 cannot be 'a\\nb'",
        "one line without",
    ),
}


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize("fault", BAD)
def test_a_fault_of_the_study_file_is_one_line_with_its_line(
    hpcjf: Hpcjf, study: Path, command: str, fault: str
) -> None:
    old, new, at, what, fix = BAD[fault]
    with_line(study, old, new)
    before = tree(study.parent)
    assert_refused(hpcjf(command, study), f"{study}:{line_number(study, at)}", what, fix)
    assert tree(study.parent) == before


@pytest.mark.parametrize(
    ("content", "what", "fix"),
    [
        (b"", "is empty", "hpcjf init DIR writes a working one"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "not UTF-8 text (byte 0)", "name a text file"),
        (b"PK\x03\x04\x00", "not valid YAML", "write plain text"),
        (b"hello\n", "is no mapping of keys to values", "hpcjf init DIR writes a working one"),
        (b"a: " + b"[" * 3000, "nested too deeply", "write it flat"),
    ],
)
def test_a_file_that_is_no_study(hpcjf: Hpcjf, tmp_path: Path, content: bytes, what: str, fix: str) -> None:
    file = tmp_path / "study.yaml"
    file.write_bytes(content)
    assert_refused(hpcjf("run", file), str(file), what, fix)
    assert [path.name for path in tmp_path.iterdir()] == ["study.yaml"]


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_study_that_is_not_there(hpcjf: Hpcjf, tmp_path: Path, command: str) -> None:
    for name in ("absent.yaml", "", "absent/study.yaml"):
        given = tmp_path / name
        file = given / "study.yaml" if not name else given
        assert_refused(hpcjf(command, given), str(file), "no such file", "hpcjf init DIR writes one")
    assert not any(tmp_path.iterdir())


def test_escape_sequences_of_a_study_do_not_reach_the_terminal(hpcjf: Hpcjf, study: Path) -> None:
    with_line(study, "  seed: 0", '  "\\e[2Jred": 0')
    result = hpcjf("check", study)
    assert "\x1b" not in result.err
    assert "unknown key study.\\x1b[2Jred" in result.err


class TestModelAndData:
    @pytest.mark.parametrize(
        ("file", "content", "what"),
        [
            ("config.json", None, "holds no config.json"),
            ("model.safetensors", None, "holds no *.safetensors"),
            ("model.safetensors", b"", "has a damaged header"),
            ("model.safetensors", b"\xff" * 100, "is no safetensors file"),
            ("model.safetensors", (500).to_bytes(8, "little") + b'{"weight": {', "has a damaged header"),
        ],
    )
    def test_a_folder_that_is_no_model(
        self, hpcjf: Hpcjf, study: Path, file: str, content: bytes | None, what: str
    ) -> None:
        path = study.parent / "models/large" / file
        path.unlink() if content is None else path.write_bytes(content)
        before = tree(study.parent)
        result = hpcjf("run", study)
        assert_refused(result, f"{study}:{line_number(study, 'path: models/large')}", what, "")
        assert tree(study.parent) == before

    def test_weights_that_end_early(self, hpcjf: Hpcjf, study: Path) -> None:
        file = study.parent / "models/large/model.safetensors"
        os.truncate(file, file.stat().st_size - 1)
        result = hpcjf("run", study)
        assert_refused(
            result, f"{study}:{line_number(study, 'path: models/large')}", "is cut short", "download it again"
        )

    def test_the_target_stands_last(self, hpcjf: Hpcjf, study: Path) -> None:
        study.write_text(
            STUDY.replace("models/small", "X").replace("models/large", "models/small").replace("X", "models/large")
        )
        result = hpcjf("run", study)
        assert_refused(
            result, f"{study}:{line_number(study, 'models:')}", "from proxy to target", "put the smaller one"
        )

    @pytest.mark.parametrize(
        ("content", "what", "fix"),
        [
            (b"", "the file is empty", "write each row as"),
            (b"[]", "the file has no rows", "write each row as"),
            (b'[{"instruction": "a"}]', "the row lacks output", "write each row as"),
            (b"[{]", "not valid JSON", "mend the JSON list"),
            (b"\xff\xfe", "not UTF-8 text", "save the file as UTF-8"),
            (b'[{"instruction": "a", "output": "b"}]', "too few rows for task mlperf", "at least 10 rows"),
        ],
    )
    def test_data_that_cannot_be_used_is_named_itself(
        self, hpcjf: Hpcjf, study: Path, content: bytes, what: str, fix: str
    ) -> None:
        data = study.parent / "rows.json"
        data.write_bytes(content)
        with_line(study, "[arithmetic]", "[mlperf]\n  path: rows.json")
        before = tree(study.parent)
        result = hpcjf("run", study)
        assert result.err.startswith(f"hpcjf: {data}: ")
        assert_refused(result, result.err.split(": ", 2)[1], what, fix)
        assert tree(study.parent) == before


class TestExecutor:
    def test_slurm_without_a_cluster(self, hpcjf: Hpcjf, study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(study.parent))
        before = tree(study.parent)
        result = hpcjf("run", study, "--executor", "slurm")
        assert_refused(result, "cluster.executor", "scontrol is not on PATH", "go to a login node")
        with_line(study, "executor: local", "executor: slurm")
        at = f"{study}:{line_number(study, 'executor: slurm')}"
        assert_refused(hpcjf("run", study), at, "cluster.executor: no Slurm cluster answers", "go to a login node")
        assert tree(study.parent).keys() == before.keys()

    def test_auto_says_what_it_takes_and_why(self, hpcjf: Hpcjf, study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(study.parent))
        with_line(study, "executor: local", "executor: auto")
        result = hpcjf("check", study)
        assert result.code == 0
        assert "executor: local (local processes: no Slurm cluster answers (scontrol is not on PATH))" in result.out

    @pytest.mark.slurm
    @pytest.mark.parametrize("command", ["check", "run"])
    def test_a_bad_partition_is_refused_in_the_sites_own_words(self, hpcjf: Hpcjf, study: Path, command: str) -> None:
        with_line(study, "cpus: 1", "partition: no-such-partition")
        before = tree(study.parent)
        result = hpcjf(command, study, "--executor", "slurm")
        at = f"{study}:{line_number(study, 'resources:')}"
        assert_refused(
            result, at, "invalid partition specified: no-such-partition", "correct the study's cluster section"
        )
        assert "model small: sbatch --test-only: " in result.err
        assert tree(study.parent) == before

    @pytest.mark.slurm
    def test_a_partition_of_all_models_is_named_where_it_stands(self, hpcjf: Hpcjf, study: Path) -> None:
        with_line(study, "    resources:\n      cpus: 1\n", "")
        with_line(study, "executor: local", "executor: slurm\n  partition: no-such-partition")
        result = hpcjf("check", study)
        assert_refused(result, f"{study}:{line_number(study, 'cluster:')}", "no-such-partition", "correct")

    @pytest.mark.slurm
    def test_a_folder_that_no_batch_script_can_name(self, hpcjf: Hpcjf, study: Path) -> None:
        folder = study.parent / "a%j"
        result = hpcjf("run", study, "--executor", "slurm", "--run-dir", folder)
        assert_refused(result, repr(str(folder)), "the path holds a percent sign", "choose another folder")
        assert not folder.exists()


class TestRunDirectory:
    @pytest.mark.parametrize(
        ("old", "new", "differing"),
        [
            ("models/large", "models/other", "models"),
            ("prompts_per_step: 4", "prompts_per_step: 8", "algorithm"),
            ("validation_rows: 20", "validation_rows: 30", "task"),
            ("seed: 0", "seed: 1", "study"),
            ("high: 8", "high: 9", "space"),
            ("max: 6", "max: 8", "budget"),
            ("tiny_arithmetic", "{learning_rate: 1e-3}", "algorithm, recipe"),
        ],
    )
    def test_another_study_is_refused(
        self, hpcjf: Hpcjf, study: Path, begun: Path, fake_model: FakeModel, old: str, new: str, differing: str
    ) -> None:
        fake_model("other", 6000)
        with_line(study, old, new)
        before = tree(study.parent)
        result = hpcjf("run", study)
        assert_refused(result, str(begun), f"holds another study: {differing} differ", "name another --run-dir")
        assert tree(study.parent) == before

    def test_another_method_is_refused(self, hpcjf: Hpcjf, study: Path, begun: Path) -> None:
        with_line(study, "max_trials: 4", "max_trials: 4\n  method: random")
        before = tree(begun)
        assert_refused(hpcjf("run", study), str(begun), "search.method differs", "name another --run-dir")
        assert tree(begun) == before

    @pytest.mark.parametrize("key", ["deterministic: true", "warm_start: other"])
    def test_what_makes_another_search_is_refused(self, hpcjf: Hpcjf, study: Path, begun: Path, key: str) -> None:
        with_line(study, "max_trials: 4", f"max_trials: 4\n  {key}")
        assert_refused(hpcjf("run", study), str(begun), f"search.{key.split(':')[0]} differs", "another --run-dir")

    def test_a_warm_start_is_told_and_may_be_gone_later(self, hpcjf: Hpcjf, study: Path, begun: Path) -> None:
        second = study.parent / "second" / "study.yaml"
        second.parent.mkdir()
        second.write_text(STUDY.replace("models/", "../models/").replace("max_trials: 4", "warm_start: ../run"))
        checked = hpcjf("check", second)
        assert (checked.code, checked.err) == (0, "")
        assert "warm start: 0 trials of " in checked.out
        run = take_up(second)
        shutil.rmtree(begun)
        assert hpcjf("check", second).code == 0
        assert RunLayout(run).earlier.exists()

    @pytest.mark.parametrize(
        ("old", "new", "taken"),
        [
            ("max_trials: 4", "max_trials: 9", lambda study: study.search.max_trials == 9),
            ("cpus: 1", "cpus: 3", lambda study: study.models[0].resources.cpus == 3),
            ("executor: local", "executor: local\n  retries: 7", lambda study: study.cluster.retries == 7),
        ],
    )
    def test_limits_are_taken_over(
        self, study: Path, begun: Path, old: str, new: str, taken: Callable[[Study], bool]
    ) -> None:
        with_line(study, old, new)
        assert not taken(load_frozen(RunLayout(begun)))
        take_up(study)
        assert taken(load_frozen(RunLayout(begun)))
        assert state_of(RunLayout(begun))[0].generation == 2

    def test_a_folder_of_something_else(self, hpcjf: Hpcjf, study: Path) -> None:
        thesis = study.parent / "run"
        thesis.mkdir()
        (thesis / "thesis.tex").write_text("\\end")
        before = tree(study.parent)
        result = hpcjf("run", study)
        assert_refused(result, str(thesis), "not empty and not a run directory", "name a new folder")
        assert tree(study.parent) == before

    def test_a_file_where_the_folder_should_be(self, hpcjf: Hpcjf, study: Path) -> None:
        result = hpcjf("run", study, "--run-dir", study.parent / "study.yaml")
        assert_refused(result, str(study), "is no folder", "--run-dir")
        result = hpcjf("run", study, "--run-dir", study.parent / "study.yaml" / "run")
        assert_refused(result, str(study), "is no folder", "--run-dir")

    def test_a_parent_that_others_can_write(self, hpcjf: Hpcjf, study: Path) -> None:
        parent = study.parent / "shared"
        parent.mkdir()
        parent.chmod(0o777)
        result = hpcjf("run", study, "--run-dir", parent / "run")
        assert_refused(result, str(parent), "other users can write it", "chmod go-w")
        assert not any(parent.iterdir())

    @pytest.mark.parametrize("command", ["run", "stop"])
    def test_of_another_user(self, hpcjf: Hpcjf, begun: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
        if os.geteuid() == 0:
            for path in (begun, *begun.rglob("*")):
                os.chown(path, 65534, 65534)
        else:
            another = os.geteuid() + 1
            monkeypatch.setattr(os, "geteuid", lambda: another)
        before = tree(begun)
        result = hpcjf(command, begun)
        assert result.err.startswith("hpcjf: ")
        assert_refused(result, result.err.split(": ", 2)[1], "belongs to ", "use a folder of your own")
        assert tree(begun) == before

    def test_of_another_user_may_be_looked_at(self, hpcjf: Hpcjf, begun: Path) -> None:
        if os.geteuid() == 0:
            for path in (begun, *begun.rglob("*")):
                os.chown(path, 65534, 65534)
        assert hpcjf("status", begun).code == 0

    def test_a_damaged_frozen_study(self, hpcjf: Hpcjf, begun: Path) -> None:
        file = begun / "study.yaml"
        for damage, what in (("models: [\n", "damaged: "), ("models: []\n", "damaged: models: Tuple should have")):
            file.write_text(damage)
            for command in ("status", "run", "stop"):
                result = hpcjf(command, begun)
                assert result.code == 1
                assert result.err.startswith(f"hpcjf: {file}: {what}")
                assert result.err.count("\n") == 1
                assert "restore it" in result.err


@pytest.fixture
def stranger() -> list[str]:
    """Words before a command that make it another user's, where we may; else we are bound by modes ourselves."""
    if os.geteuid() != 0:
        return []
    # reading stays allowed: the interpreter may lie in our home
    caps = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *caps]


@pytest.fixture
def locked(study: Path, stranger: list[str]) -> Iterator[Path]:
    """The study's folder, belonging to whoever ``stranger`` is, without permission to write."""
    if stranger:
        for path in (study.parent, *study.parent.rglob("*")):
            os.chown(path, 65534, 65534)
    study.parent.chmod(0o555)
    yield study.parent
    study.parent.chmod(0o755)


class TestPermission:
    def test_no_write_permission(self, study: Path, locked: Path, stranger: list[str]) -> None:
        before = tree(locked)
        for command in ("check", "run"):
            result = script(command, study, prefix=stranger)
            assert_refused(result, str(locked), "no permission to write here", "name a folder of yours with --run-dir")
        result = script("init", locked / "new", prefix=stranger)
        assert_refused(result, str(locked / "new"), "cannot be made: Permission denied", "name a folder of yours")
        assert tree(locked) == before


def test_a_run_that_may_not_be_read_is_no_usage_error(begun: Path, stranger: list[str]) -> None:
    begun.chmod(0)
    try:
        result = script("status", begun, prefix=stranger)
    finally:
        begun.chmod(0o700)
    assert "Usage" not in result.err
    assert result.err.count("\n") <= 1


def can_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True, check=False)
        return mounted.returncode == 0 and subprocess.run(["umount", folder], check=False).returncode == 0


class Disk:
    """A folder that can be full: a small file system of its own where we may mount one, else a limit on files."""

    def __init__(self, folder: Path, mounted: bool) -> None:
        self.folder, self.mounted, self.full = folder, mounted, False
        self._filler = folder / "filler"

    def fill(self) -> None:
        self.full = True
        if self.mounted:
            with self._filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * 4096)

    def free(self) -> None:
        self.full = False
        self._filler.unlink(missing_ok=True)

    def grow(self) -> None:
        self.full = False
        if self.mounted:
            subprocess.run(["mount", "-o", "remount,size=64m", str(self.folder)], check=True)

    def hpcjf(self, *arguments: str | Path) -> Result:
        return script(*arguments, prefix=["prlimit", "--fsize=0"] if self.full and not self.mounted else [])


@pytest.fixture(params=["limit", "tmpfs"] if os.geteuid() == 0 and can_mount() else ["limit"])
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = request.param == "tmpfs"
    if mounted:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", str(folder)], check=True)
    yield Disk(folder, mounted)
    if mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


FULL = r"(No space left on device|File too large)"


class TestFullDisk:
    def test_nothing_is_lost_and_a_larger_disk_goes_on(self, disk: Disk, study: Path) -> None:
        run = disk.folder / "run"
        disk.fill()
        result = disk.hpcjf("run", study, "--run-dir", run)
        assert_refused(result, str(run / "study.yaml"), "", "free space or raise the quota")
        assert re.search(FULL, result.err)
        assert not (run / "study.yaml").exists()
        disk.free()
        take_up(study, run)
        disk.fill()
        before = tree(run)
        result = disk.hpcjf("run", run)
        assert_refused(result, str(run / "study.yaml"), "", "free space or raise the quota")
        assert re.search(FULL, result.err)
        assert tree(run) == before
        disk.grow()
        take_up(study, run)
        state, problems = state_of(RunLayout(run))
        assert (state.generation, problems) == (2, [])

    @pytest.mark.full
    def test_a_study_ends_after_space_was_made(self, disk: Disk, write_study: Callable[..., Path]) -> None:
        file = write_study(search={"method": "recipe", "max_trials": 1}, budget={"min": 2, "max": 2})
        run = disk.folder / "run"
        take_up(file, run)
        disk.fill()
        assert disk.hpcjf("run", run).code == 2
        disk.grow()
        result = disk.hpcjf("run", run)
        assert result.code == 0, result.err
        state, problems = state_of(RunLayout(run))
        assert (state.phase, problems) == (Phase.DONE, [])


class TestLooking:
    @pytest.mark.parametrize(
        "command", [["status"], ["status", "--watch"], ["status", "--why", "0"], ["best"], ["report"], ["stop"]]
    )
    @pytest.mark.parametrize("kind", ["absent", "empty", "a file", "a study that never ran"])
    def test_what_is_no_run(self, hpcjf: Hpcjf, study: Path, command: list[str], kind: str) -> None:
        path = study.parent / "models" if kind != "absent" else study.parent / "absent"
        path = {"a file": study.parent / "models/small/config.json", "a study that never ran": study}.get(kind, path)
        before = tree(study.parent)
        assert_refused(
            hpcjf(command[0], path, *command[1:]), str(path), "not a run directory", "hpcjf run STUDY makes one"
        )
        assert tree(study.parent) == before

    @pytest.mark.parametrize("name", ["run", "study.yaml", "."])
    def test_a_run_is_found_by_its_study_too(self, hpcjf: Hpcjf, begun: Path, name: str) -> None:
        result = hpcjf("status", begun.parent / name)
        assert result.code == 0
        assert result.out.startswith("study · search · 0/4 search trials ended")

    def test_a_run_without_a_trial(self, hpcjf: Hpcjf, begun: Path) -> None:
        before = tree(begun)
        status = hpcjf("status", begun)
        assert (status.code, status.err) == (0, "")
        assert f"no controller runs; go on with: hpcjf run {begun}" in status.out
        assert_refused(hpcjf("best", begun), str(begun), "no trial has ended yet", f"hpcjf status {begun}")
        assert_refused(hpcjf("status", begun, "--why", "0"), str(begun), "no trial 0", "look later")
        assert tree(begun) == before
        report = hpcjf("report", begun)
        assert (report.code, report.err) == (0, "")
        assert "<html" in (begun / "report.html").read_text()

    def test_a_report_that_cannot_be_written(self, hpcjf: Hpcjf, begun: Path) -> None:
        result = hpcjf("report", begun, "--out", begun / "absent" / "report.html")
        assert result.code in (1, 2)
        assert result.err.count("\n") == 1
        assert result.err.startswith(f"hpcjf: {begun / 'absent'}")

    def test_stop_without_a_controller_ends_the_study_and_run_takes_it_up(self, hpcjf: Hpcjf, begun: Path) -> None:
        result = hpcjf("stop", begun)
        assert (result.code, result.err) == (0, "")
        assert result.out == f"stopped; resume with: hpcjf run {begun}\n"
        assert state_of(RunLayout(begun))[0].phase is Phase.STOPPED
        assert "stopped" in hpcjf("status", begun).out

    def test_a_damaged_journal_is_told(self, hpcjf: Hpcjf, begun: Path) -> None:
        with (begun / "journal/controller.jsonl").open("ab") as file:
            file.write(b"garbage\n")
        result = hpcjf("status", begun)
        assert result.code == 0
        assert "! journal: " in result.out
        assert "not a journal record; record skipped" in result.out.replace("\n", " ")


class TestInit:
    def test_writes_a_study_that_passes_its_check(self, hpcjf: Hpcjf, tmp_path: Path) -> None:
        result = hpcjf("init", tmp_path / "new")
        assert (result.code, result.err) == (0, "")
        assert result.out == f"wrote {tmp_path}/new/study.yaml; next: hpcjf check {tmp_path}/new/study.yaml\n"
        study, _ = read_study(tmp_path / "new/study.yaml")
        assert [model.path for model in study.models] == ["builtin:tiny-s", "builtin:tiny-m"]

    def test_twice_keeps_the_first(self, hpcjf: Hpcjf, tmp_path: Path) -> None:
        hpcjf("init", tmp_path / "new")
        file = tmp_path / "new/study.yaml"
        file.write_text("mine")
        assert_refused(hpcjf("init", tmp_path / "new"), str(file), "exists already", "name another folder")
        assert file.read_text() == "mine"

    def test_into_a_folder_that_is_none(self, hpcjf: Hpcjf, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("mine")
        assert_refused(
            hpcjf("init", tmp_path / "file"), str(tmp_path / "file"), "cannot be made: File exists", "of yours"
        )
        assert_refused(
            hpcjf("init", tmp_path / "file/in"), str(tmp_path / "file/in"), "cannot be made: Not a", "of yours"
        )
        assert (tmp_path / "file").read_text() == "mine"


class TestShell:
    def test_version(self, hpcjf: Hpcjf) -> None:
        assert hpcjf("--version") == Result(0, f"hpcjf {__version__}\n", "")

    def test_help_names_every_command(self, hpcjf: Hpcjf, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "120")
        result = hpcjf("--help")
        assert result.code == 0
        for command in ("init", "check", "plan", "run", "status", "stop", "report", "best", "sbatch"):
            assert re.search(rf"\b{command} +[A-Z]", result.out), command
            told = hpcjf(command, "--help")
            assert told.code == 0
            assert f"Usage: hpcjf {command}" in told.out
        assert "auto|slurm|local" in hpcjf("run", "--help").out

    @pytest.mark.parametrize(
        "arguments",
        [
            ["rnu"],
            ["run"],
            ["run", "a", "b"],
            ["run", "a", "--executor", "pbs"],
            ["status", "a", "--why", "x"],
            ["--bad"],
        ],
    )
    def test_usage_errors(self, hpcjf: Hpcjf, arguments: list[str]) -> None:
        result = hpcjf(*arguments)
        assert result.code == 2
        assert "Traceback" not in result.err
        assert "Usage: hpcjf" in result.err

    def test_check_says_what_it_found(self, hpcjf: Hpcjf, study: Path) -> None:
        before = tree(study.parent)
        result = hpcjf("check", study)
        assert (result.code, result.err) == (0, "")
        assert result.out.splitlines() == [
            "task arithmetic: 8000 train, 20 validation, 1000 test rows",
            f"model small: 1,000 parameters, {study.parent}/models/small",
            f"model large: 5,000 parameters, {study.parent}/models/large",
            "executor: local (local processes, as cluster.executor says)",
            f"ready; next: hpcjf run {study}",
        ]
        assert tree(study.parent) == before

    def test_check_warns_of_dead_dimensions(self, hpcjf: Hpcjf, study: Path) -> None:
        text = STUDY.replace("prompts_per_step: 4", "prompts_per_step: 4\n  minibatches: 1")
        study.write_text(text.replace("space:", "space:\n  clip_range: {type: real, low: 0.1, high: 0.4}"))
        result = hpcjf("check", study)
        assert result.code == 0
        [line] = [line for line in result.out.splitlines() if line.startswith("warning")]
        assert line.startswith("warning: space.clip_range is dead: algorithm.minibatches is 1")

    def test_plan_spends_nothing(self, hpcjf: Hpcjf, study: Path, begun: Path) -> None:
        before = tree(study.parent)
        result = hpcjf("plan", study, "--seconds-per-step", "small=1", "--seconds-per-step", "large=3")
        assert (result.code, result.err) == (0, "")
        assert "small 1 (given), large 3 (given)" in result.out
        assert tree(study.parent) == before
        assert_refused(hpcjf("plan", study, "--from", begun), str(begun), "no job there trained", "name a run with")
        none = study.parent / "models"
        assert_refused(hpcjf("plan", study, "--from", none), str(none), "not a run directory", "hpcjf run STUDY")

    def test_best_prints_the_incumbent_as_yaml(self, hpcjf: Hpcjf, study: Path, begun: Path) -> None:
        given, lines = read_study(study)
        layout = RunLayout(begun)
        config = {"learning_rate": 3e-05, "rollouts": 4}
        with opened(layout, resolve_study(given, study, lines), LocalCluster(layout.local_jobs, 1)) as controller:
            controller.emit("incumbent", config_id="c0ffee", config=config, score=0.25)
        result = hpcjf("best", begun)
        assert result.code == 0
        assert result.out.startswith("# configuration c0ffee, validation score 0.2500, study search\n")
        assert yaml.safe_load(result.out) == config


LOADED = """
import sys
from hpcjf.cli import main
try:
    main()
except SystemExit:
    pass
print("loaded", *sorted({name.split(".")[0] for name in sys.modules}))
"""


def loaded(*arguments: str | Path) -> set[str]:
    """What a command has imported by its end."""
    command = [sys.executable, "-c", LOADED, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.splitlines()[-1].split()[1:])


HEAVY = {"torch", "transformers", "peft", "skopt", "sklearn", "scipy", "submitit", "plotly"}


def test_help_imports_nothing_that_it_does_not_show() -> None:
    assert not loaded("--help") & (HEAVY | {"numpy", "h5py", "pydantic", "yaml"})


def test_status_reads_traces_only_where_an_attempt_lives(begun: Path, study: Path) -> None:
    arrays = {"numpy", "h5py"}
    assert not loaded("status", begun) & (HEAVY | arrays)
    given, lines = read_study(study)
    layout = RunLayout(begun)
    with opened(layout, resolve_study(given, study, lines), LocalCluster(layout.local_jobs, 1)) as controller:
        config = {"learning_rate": 3e-05, "rollouts": 4}
        what = {"number": 0, "config_id": "c0ffee", "config": config, "model": "small", "steps": 2}
        controller.emit("trial", **what, training_seed=0, purpose="search", why={"reason": "first"})
        controller.emit("attempt", trial=0, attempt=1, name="a")
    live = loaded("status", begun)
    assert arrays <= live
    assert not live & HEAVY


def test_the_controllers_imports_are_light(study: Path) -> None:
    assert not loaded("check", study) & {"torch", "transformers", "peft", "skopt", "sklearn", "scipy"}
