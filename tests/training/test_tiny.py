from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, get_args

import pytest

from hpcjf.errors import ModelError
from hpcjf.study import ArithmeticTask
from hpcjf.tasks.arithmetic import split_rows
from hpcjf.tasks.base import Row
from hpcjf.training import tiny


@pytest.mark.parametrize("name", list(tiny.SHAPES))
def test_models_have_exactly_the_stated_size(name: str) -> None:
    model, tokenizer = tiny.untrained(tiny.SHAPES[name], seed=0)
    assert model.num_parameters() == tiny.SHAPES[name].parameters
    assert len(tokenizer) == model.config.vocab_size == 19


@pytest.mark.parametrize("task", get_args(ArithmeticTask))
def test_every_row_is_one_token_a_character_and_comes_back(task: ArithmeticTask) -> None:
    _, tokenizer = tiny.untrained(tiny.SHAPES["tiny-xs"], seed=0)
    for part in split_rows(task):
        for row in part[:50]:
            text = row.prompt + row.references[0]
            ids = tokenizer(text)["input_ids"]
            assert len(ids) == 9
            assert min(ids) >= 4
            assert tokenizer.decode(ids) == text


def test_a_model_for_another_task_has_the_size_of_its_namesake() -> None:
    for name, shape in tiny.SHAPES.items():
        assert (shape.task == "subtraction") == name.endswith("-subtraction")
        assert replace(shape, task="arithmetic") == tiny.SHAPES[name.removesuffix("-subtraction")]


def test_a_model_is_taught_the_rows_of_its_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taught: list[str] = []

    def noted(tokenizer: object, rows: Sequence[Row]) -> NoReturn:
        taught.append(rows[0].task)
        raise InterruptedError

    monkeypatch.setattr(tiny, "encode", noted)
    for name in ("tiny-xs", "tiny-xs-subtraction"):
        with pytest.raises(InterruptedError):
            tiny.ensure_tiny(name, tmp_path)
    assert taught == ["arithmetic", "subtraction"]
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no built-in model tiny-xxl"):
        tiny.ensure_tiny("tiny-xxl", tmp_path)


def test_a_finished_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "tiny-s").mkdir()
    (tmp_path / "tiny-s" / "config.json").write_text("{}")
    assert tiny.ensure_tiny("tiny-s", tmp_path) == tmp_path / "tiny-s"
    assert [path.name for path in tmp_path.iterdir()] == ["tiny-s"]


def test_the_slower_of_two_processes_leaves_the_faster_ones_folder(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(name)
        tiny._publish(tmp_path / name, tmp_path / "tiny-s")
    assert (tmp_path / "tiny-s" / "config.json").read_text() == "first"
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(OSError, match="taken"):
        tiny._publish(tmp_path / "second", tmp_path / "taken")


def test_the_cache_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCJF_CACHE", str(tmp_path))
    assert tiny.default_cache() == tmp_path / "models"
    monkeypatch.delenv("HPCJF_CACHE")
    assert tiny.default_cache() == Path.home() / ".cache" / "hpcjf" / "models"


def test_importing_the_module_loads_no_torch() -> None:
    code = "import sys, hpcjf.training.tiny; print({'torch', 'transformers', 'numpy'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


@pytest.mark.full
def test_the_command_teaches_a_model_to_about_a_quarter_the_same_each_time(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    for run in ("one", "two"):
        assert tiny.main(["tiny-xs", "--cache", str(tmp_path / run)]) == 0
    folder = tmp_path / "one" / "tiny-xs"
    same = (tmp_path / "two" / "tiny-xs" / "model.safetensors").read_bytes()
    assert (folder / "model.safetensors").read_bytes() == same
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["tiny-xs"]
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    ids, prompt = tiny.encode(tokenizer, split_rows()[2])
    assert 0.2 < tiny.greedy_share(model, ids, prompt) < 0.45
