from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from hpcjf.errors import TrainingError
from hpcjf.training.forward import completion_logits
from hpcjf.training.objectives.logprobs import token_logprobs
from hpcjf.training.policy import Policy
from hpcjf.training.rollout import Rollout, _pick, greedy, sample, texts

PROMPTS = [[4, 5, 14, 6, 7, 17], [8, 17], [9, 9, 9, 17]]


def draw(policy: Policy, *, batch: int = 64, seed: int = 1, length: int = 12, temperature: float = 1.0) -> Rollout:
    generator = torch.Generator().manual_seed(seed)
    return sample(
        policy,
        PROMPTS,
        group=4,
        max_new_tokens=length,
        temperature=temperature,
        generator=generator,
        batch=batch,
    )


def rows(rollout: Rollout) -> list[list[int]]:
    lengths = rollout.completion_mask.sum(1).tolist()
    return [row[:n] for row, n in zip(rollout.completion_ids.tolist(), lengths, strict=True)]


def naive_greedy(policy: Policy, prompt: list[int], limit: int) -> list[int]:
    found: list[int] = []
    while len(found) < limit and (not found or found[-1] not in policy.eos_ids):
        logits = policy.model(torch.tensor([prompt + found]), use_cache=False).logits[0, -1]
        found.append(int(logits.argmax()))
    return found


def test_greedy_equals_a_loop_without_cache_or_batch(policy: Policy) -> None:
    for eos in ((2,), tuple(range(2, 9))):
        policy = replace(policy, eos_ids=eos)
        assert rows(greedy(policy, PROMPTS, max_new_tokens=8)) == [naive_greedy(policy, p, 8) for p in PROMPTS]


@pytest.mark.parametrize("eos", [(2,), (2, 5, 11), (0, 1, 2, 3, 4, 5, 6, 7)])
def test_the_mask_ends_with_the_first_of_several_end_tokens_and_holds_it_once(
    policy: Policy, eos: tuple[int, ...]
) -> None:
    rollout = draw(replace(policy, eos_ids=eos))
    for row, cut in zip(rows(rollout), rollout.truncated.tolist(), strict=True):
        assert [token in eos for token in row] == [False] * (len(row) - 1) + [not cut]
        assert not cut or len(row) == 12
    assert not rollout.truncated.all()


def test_a_pad_id_equal_to_the_end_token_changes_nothing_that_counts(policy: Policy) -> None:
    one, other = draw(policy), draw(replace(policy, pad_id=2))
    assert rows(one) == rows(other)
    assert torch.equal(one.completion_mask, other.completion_mask)
    assert torch.equal(one.logprobs, other.logprobs)


def test_a_pad_id_within_a_completion_is_a_token_like_any_other(policy: Policy) -> None:
    rollout = draw(replace(policy, pad_id=7))
    kept = [row for row in rows(rollout) if 7 in row]
    assert kept
    assert rows(rollout) == rows(draw(policy))


def test_recorded_log_probabilities_are_those_of_the_training_pass(policy: Policy) -> None:
    for temperature in (1.0, 0.7):
        r = draw(replace(policy, eos_ids=(2, 5, 11)), temperature=temperature)
        with torch.no_grad():
            logits = completion_logits(policy.model, r.prompt_ids, r.prompt_mask, r.completion_ids, r.completion_mask)
        expected = token_logprobs(logits, r.completion_ids, temperature)
        assert float((expected - r.logprobs)[r.completion_mask].abs().max()) <= 1e-5
        assert float(r.logprobs[~r.completion_mask].abs().sum()) == 0


def test_draws_depend_on_the_stream_and_not_on_batching(policy: Policy) -> None:
    policy = replace(policy, eos_ids=(2, 5))
    whole = draw(policy)
    assert rows(draw(policy, batch=1)) == rows(draw(policy, batch=8)) == rows(whole)
    assert rows(draw(policy, seed=2)) != rows(whole)
    assert torch.equal(draw(policy, batch=4).prompt_ids, whole.prompt_ids)


def test_everything_may_end_at_once(policy: Policy) -> None:
    rollout = draw(replace(policy, eos_ids=tuple(range(19))))
    assert rollout.completion_ids.shape == (12, 1)
    assert not rollout.truncated.any()


def test_without_end_tokens_all_completions_are_truncated(policy: Policy) -> None:
    rollout = draw(replace(policy, eos_ids=()), length=5)
    assert rollout.truncated.all()
    assert rollout.completion_mask.all()


def test_text_leaves_special_tokens_out(policy: Policy) -> None:
    mask = torch.tensor([[True, True, True], [True, True, False]])
    ids = torch.tensor([[5, 6, 2], [4, 2, 9]])
    zeros = torch.zeros(2, 3)
    rollout = Rollout(ids, mask, ids, mask, zeros, torch.zeros(2, dtype=torch.bool))
    assert texts(policy, rollout) == ["12", "0"]


def test_an_empty_prompt_is_refused(policy: Policy) -> None:
    with pytest.raises(TrainingError, match="no tokens"):
        greedy(policy, [[4], []], max_new_tokens=2)


def test_draws_follow_the_distribution_and_skip_impossible_tokens() -> None:
    logits = torch.tensor([-math.inf, 0.1, -math.inf, 0.6, 0.3, -math.inf])
    logits[[1, 3, 4]] = torch.tensor([0.1, 0.6, 0.3]).log()
    n = 20_000
    noise = torch.rand(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    token, logprob = _pick(logits.expand(n, 6), noise, 1.0)
    share = token.bincount(minlength=6) / n
    assert share[[0, 2, 5]].sum() == 0
    assert share[[1, 3, 4]].tolist() == pytest.approx([0.1, 0.6, 0.3], abs=0.015)
    assert torch.allclose(logprob.exp(), logits.softmax(-1)[token])


def test_the_ends_of_the_unit_interval_give_possible_tokens() -> None:
    logits = torch.tensor([[-math.inf, 0.0, 0.0, -math.inf]]).expand(2, 4)
    token, _ = _pick(logits, torch.tensor([0.0, 1.0 - 2**-53], dtype=torch.float64), 1.0)
    assert token.tolist() == [1, 2]
