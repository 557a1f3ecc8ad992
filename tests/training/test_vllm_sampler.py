"""vLLM is not here: a stand-in with its interface, which decodes with the weights that it was handed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from hpcjf.errors import ModelError
from hpcjf.training.trainer import Trainer


class Engine:
    def __init__(self, model: str, **options: Any) -> None:
        self.network = AutoModelForCausalLM.from_pretrained(model).eval()
        self.network.load_weights = self.load
        runner = SimpleNamespace(model=self.network)
        worker = SimpleNamespace(model_runner=runner)
        self.llm_engine = SimpleNamespace(model_executor=SimpleNamespace(driver_worker=worker))
        self.options, self.resets = options, 0

    def load(self, weights: Any) -> None:
        own = dict(self.network.named_parameters())
        handed = dict(weights)
        assert handed.keys() == own.keys()
        for name, weight in handed.items():
            own[name].data.copy_(weight)

    def reset_prefix_cache(self) -> None:
        self.resets += 1

    @torch.no_grad()
    def generate(self, inputs: Any, wishes: Any, use_tqdm: bool) -> list[Any]:
        found = []
        for prompt, wish in zip(inputs, wishes, strict=True):
            noise, ids = torch.Generator().manual_seed(wish.seed), list(prompt["prompt_token_ids"])
            start = len(ids)
            while len(ids) < start + wish.max_tokens and ids[-1] not in wish.stop_token_ids:
                logits = self.network(torch.tensor([ids])).logits[0, -1] / wish.temperature
                ids.append(int(torch.multinomial(logits.softmax(-1), 1, generator=noise)))
            found.append(SimpleNamespace(outputs=[SimpleNamespace(token_ids=tuple(ids[start:]))]))
        return found


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("vllm")
    module.LLM, module.SamplingParams = Engine, SimpleNamespace
    monkeypatch.setitem(sys.modules, "vllm", module)


def test_without_vllm_there_is_one_clear_line(make_trainer: Callable[..., Trainer]) -> None:
    with pytest.raises(ModelError, match=r"pip install hpcjf\[vllm\]"):
        make_trainer(sampler="vllm")


@pytest.mark.parametrize("adapter", ["none", "lora"])
@pytest.mark.usefixtures("stand_in")
def test_completions_are_those_of_the_policy_as_it_stands(make_trainer: Callable[..., Trainer], adapter: str) -> None:
    trainer = make_trainer(adapter, sampler="vllm", temperature=0.8, learning_rate=0.05)
    trainer.train_step()
    trainer.train_step()
    assert trainer.rl is not None
    drawing: Any = trainer.rl._drawing
    rollout, _, _ = drawing.draw(trainer.step)
    engine = drawing.engine._engine
    assert engine.resets == 3
    assert engine.options["gpu_memory_utilization"] == 0.3
    for row, (ids, mask) in enumerate(zip(rollout.completion_ids, rollout.completion_mask, strict=True)):
        prompt = rollout.prompt_ids[row // 4][rollout.prompt_mask[row // 4]]
        own = torch.cat([prompt, ids[mask]])
        with torch.no_grad():  # the engine's weights, and not the policy's: they must be the same
            logits = engine.network(own.unsqueeze(0)).logits[0, len(prompt) - 1 : -1] / 0.8
        expected = logits.log_softmax(-1).gather(1, ids[mask].unsqueeze(1)).squeeze(1)
        assert torch.allclose(rollout.logprobs[row][mask], expected, rtol=0, atol=1e-5)
        assert not rollout.logprobs[row][~mask].any()
        assert bool(rollout.truncated[row]) == (int(own[-1]) not in trainer.policy.eos_ids)
