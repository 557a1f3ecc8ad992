"""With a stand-in for vLLM: its interface as of 0.10, and our own decoding on the weights that it was given."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from hpcjf.errors import ModelError
from hpcjf.study import ModelSection
from hpcjf.training.policy import load_policy
from hpcjf.training.rollout import sample
from hpcjf.training.trainer import Trainer

Make = Callable[..., Trainer]


class LLM:
    """Decodes with transformers. ``loaded`` counts how often weights came."""

    loaded = 0

    def __init__(self, model: str, gpu_memory_utilization: float, enable_prefix_caching: bool) -> None:
        assert 0 < gpu_memory_utilization < 1
        assert enable_prefix_caching
        self.policy = load_policy(ModelSection(name="m", path="."), Path(model))
        runner = SimpleNamespace(model=SimpleNamespace(load_weights=self._load))
        worker = SimpleNamespace(model_runner=runner)
        self.llm_engine = SimpleNamespace(model_executor=SimpleNamespace(driver_worker=worker))

    def _load(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        given = dict(weights)
        assert set(given) == set(self.policy.model.state_dict())
        self.policy.model.load_state_dict(given)
        type(self).loaded += 1

    def reset_prefix_cache(self) -> None:
        self.fresh = True

    def generate(self, prompts: list[dict[str, list[int]]], parameters: list[Any], use_tqdm: bool) -> list[Any]:
        assert self.fresh
        answers = []
        for prompt, asked in zip(prompts, parameters, strict=True):
            drawn = sample(
                self.policy,
                [prompt["prompt_token_ids"]],
                group=asked.n,
                max_new_tokens=asked.max_tokens,
                temperature=asked.temperature,
                generator=torch.Generator().manual_seed(asked.seed),
                batch=8,
            )
            rows = zip(drawn.completion_ids, drawn.completion_mask, drawn.truncated.tolist(), strict=True)
            outputs = [
                SimpleNamespace(token_ids=ids[mask].tolist(), finish_reason="length" if cut else "stop")
                for ids, mask, cut in rows
            ]
            if outputs[0].finish_reason == "stop":  # as versions that leave the last token out
                outputs[0].token_ids = outputs[0].token_ids[:-1]
            answers.append(SimpleNamespace(outputs=outputs))
        return answers


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> type[LLM]:
    module = ModuleType("vllm")
    module.LLM, module.SamplingParams = LLM, SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setattr(LLM, "loaded", 0)
    return LLM


@pytest.mark.parametrize("adapter", ["none", "lora"])
def test_training_samples_from_the_weights_of_the_moment(make_trainer: Make, engine: type[LLM], adapter: str) -> None:
    settings: dict[str, Any] = {"sampler": "vllm", "learning_rate": 1e-2, "minibatches": 2}
    first, second = (make_trainer(adapter, **settings) for _ in range(2))
    found = [first.train_step() for _ in range(3)]
    assert engine.loaded == 3
    assert found == [second.train_step() for _ in range(3)]
    assert found[0]["skipped"] == 0
    assert found[2]["kl"] > 0
    assert max(step["clip_fraction"] for step in found) < 0.5, "the old log-probabilities are the policy's"


def test_a_rollout_says_what_the_policy_makes_of_the_tokens(make_trainer: Make, engine: type[LLM]) -> None:
    trainer = make_trainer(sampler="vllm")
    assert trainer.rl is not None
    drawn = trainer.rl._drawing._sample([[4, 5, 17], [8, 17], [6, 17]], 0, 0)
    assert drawn.completion_ids.shape[0] == 12
    ends = drawn.completion_ids.gather(1, drawn.completion_mask.sum(1, keepdim=True) - 1).squeeze(1)
    assert torch.equal(torch.isin(ends, torch.tensor(trainer.policy.eos_ids)), ~drawn.truncated)
    for row in range(12):
        prompt = [[4, 5, 17], [8, 17], [6, 17]][row // 4]
        ids = drawn.completion_ids[row][drawn.completion_mask[row]].tolist()
        with torch.no_grad():
            logits = trainer.policy.model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
        expected = logits.log_softmax(-1).gather(1, torch.tensor(ids).unsqueeze(1)).squeeze(1)
        assert torch.allclose(drawn.logprobs[row, : len(ids)], expected, atol=1e-5)
        assert not drawn.logprobs[row, len(ids) :].any()


def test_without_vllm_there_is_one_clear_line(make_trainer: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ModelError, match="vllm is not installed") as caught:
        make_trainer(sampler="vllm")
    assert "hpcjf[vllm]" in str(caught.value)
