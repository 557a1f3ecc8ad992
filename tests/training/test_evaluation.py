from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from hpcjf.tasks.arithmetic import split_rows
from hpcjf.tasks.base import Row
from hpcjf.tasks.choices import Question
from hpcjf.training.evaluation import forced_choices, right_choices
from hpcjf.training.policy import Policy
from hpcjf.training.trainer import Trainer

Make = Callable[..., Trainer]
PROMPTS = [[4, 5, 14, 6, 7, 17], [8, 17], [9, 9, 9, 17]]


def logprob(policy: Policy, prompt: Sequence[int], text: str) -> float:
    """Token by token, without padding, cache or batch."""
    ids, total = list(prompt), 0.0
    for token in policy.tokenizer.encode(text, add_special_tokens=False):
        with torch.no_grad():
            total += float(policy.model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)[token])
        ids.append(token)
    return total


@pytest.mark.parametrize("per_byte", [False, True])
def test_the_likeliest_choice_wins(policy: Policy, per_byte: bool) -> None:
    choices = [("1", "23", "4567"), ("89", "0"), ("555", "6", "7+7")]
    found = forced_choices(policy, PROMPTS, choices, per_byte=per_byte)
    for prompt, texts, place in zip(PROMPTS, choices, found, strict=True):
        values = [logprob(policy, prompt, text) / (len(text) if per_byte else 1) for text in texts]
        assert place == max(range(len(values)), key=values.__getitem__)
    assert forced_choices(policy, [], []) == []


def test_length_decides_only_without_normalisation(policy: Policy) -> None:
    """All tokens of an untrained model are about as likely: the shorter text wins in total, not by the byte."""
    long = [("1", "11111111")] * 40
    prompts = [[4 + i % 10, 5 + i // 10, 17] for i in range(40)]
    assert not any(forced_choices(policy, prompts, long))
    assert any(forced_choices(policy, prompts, long, per_byte=True))


def test_right_choices_are_those_of_the_answer(policy: Policy) -> None:
    texts = ("12", "34")
    questions = [Question(f"{i}+{j}=", texts, answer) for i in range(3) for j in range(3) for answer in (0, 1)]
    found = right_choices(policy, questions)
    assert [a + b for a, b in zip(found[::2], found[1::2], strict=True)] == [1.0] * 9


def test_right_samples_are_counted_and_training_goes_on_as_if_nothing_happened(make_trainer: Make) -> None:
    def score(rows: Sequence[Row], responses: Sequence[str]) -> list[float | None]:
        return [1.0 if text[:1] == "1" else 0.5 if text else None for text in responses]

    rows = split_rows()[2][:6]
    loud, quiet = (make_trainer(score=score) for _ in range(2))
    loud.train_step(), quiet.train_step()
    counts = loud.count_right(rows, 40, 1.0)
    assert counts == loud.count_right(rows, 40, 1.0)
    assert len(counts) == 6
    assert 0 < sum(counts) < 240
    assert sum(loud.count_right(rows, 40, 1e-3)) in (0, 40, 80, 120, 160, 200, 240), "almost greedy: all alike"
    assert set(loud.choose(rows, ("yes", "no"))) <= {"yes", "no"}
    assert repr(loud.train_step()) == repr(quiet.train_step())
