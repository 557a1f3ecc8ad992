from pathlib import Path

import pytest

from hpcjf.errors import TaskError
from hpcjf.study import ModelSection, Study
from hpcjf.tasks import Row, TaskData
from hpcjf.training.policy import context_length, load_tokenizer
from hpcjf.worker.prompts import fitting

SHORT, LONG = Row.of("1+2=", ("3",), "arithmetic"), Row.of("12+34=", ("46",), "arithmetic")


@pytest.fixture
def model(models: Path) -> ModelSection:
    return ModelSection(name="small", path=str(models / "small"))


def study(model: ModelSection, *, new_tokens: int = 3, **task: object) -> Study:
    sections = {"task": task, "algorithm": {"max_new_tokens": new_tokens}}
    return Study.model_validate({"models": [model.model_dump()], **sections})


def fitted(model: ModelSection, of: Study, *rows: Row) -> TaskData:
    path = Path(model.path)
    return fitting(TaskData.of(rows, rows, rows), load_tokenizer(model, path), of, context_length(model, path))


def test_longer_prompts_are_left_out_and_counted(model: ModelSection) -> None:
    data = fitted(model, study(model, max_prompt_tokens=4), SHORT, LONG)
    assert data.train == data.validation == data.test == (SHORT,)
    assert "left out for more than 4 prompt tokens: 1 train, 1 validation, 1 test rows" in data.notes


def test_a_prompt_leaves_room_for_its_completion_in_the_context(model: ModelSection) -> None:
    assert context_length(model, Path(model.path)) == 64
    assert fitted(model, study(model, new_tokens=58), SHORT, LONG).train == (SHORT, LONG)
    data = fitted(model, study(model, new_tokens=59), SHORT, LONG)
    assert data.train == (SHORT,)
    [note] = [note for note in data.notes if note.startswith("left out")]
    assert "5 prompt tokens (the model's context of 64 less algorithm.max_new_tokens): 1 train" in note


def test_a_context_without_room_is_named_with_its_remedy(model: ModelSection) -> None:
    with pytest.raises(TaskError, match=r"no train row.*context of 64.*lower algorithm.max_new_tokens"):
        fitted(model, study(model, new_tokens=64), SHORT)


def test_a_missing_chat_template_is_noted_or_where_it_is_wanted_an_error(model: ModelSection) -> None:
    assert "the tokenizer has no chat template: prompts are plain text" in fitted(model, study(model), SHORT).notes
    with pytest.raises(TaskError, match=r"no chat template.*write plain"):
        fitted(model, study(model, template="chat"), SHORT)
