from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from hpcjf.training import decode
from hpcjf.training.forward import prefill

SIZES = {
    "vocab_size": 19, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48, "max_position_embeddings": 64,
}  # fmt: skip
PROMPTS = torch.tensor([[4, 5, 14, 6], [0, 0, 8, 17], [0, 9, 9, 17]])
MASK = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1], [0, 1, 1, 1]]).bool()
DRAWN = torch.tensor([[5, 6, 7], [8, 9, 10], [11, 12, 13], [3, 14, 15], [16, 17, 18], [4, 5, 6]])  # two of each prompt


def llama(**options: Any) -> Any:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, **options)).eval()


def with_adapter(model: Any) -> Any:
    """Puts one into ``model`` that changes something: a new adapter adds zeros. Returns peft's wrapper."""
    from peft import LoraConfig, get_peft_model

    wrapped = get_peft_model(model, LoraConfig(r=3, lora_alpha=5, target_modules=["q_proj", "o_proj", "down_proj"]))
    for name, parameter in wrapped.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    return wrapped


@torch.no_grad()
def steps(model: Any, kind: type, mask: torch.Tensor = MASK) -> list[torch.Tensor]:
    """Logits after each token of ``DRAWN``, rows 0, 3 and 4 alone after the first."""
    _, cache = prefill(model, PROMPTS, mask, 2)
    following = decode.decoder(model, cache, mask.repeat_interleave(2, 0), 3)
    assert type(following) is kind
    rows = torch.tensor([0, 3, 4])
    found = [following.step(DRAWN[:, 0])]
    following.keep(rows)
    return [*found, *(following.step(DRAWN[rows, i]) for i in (1, 2))]


@torch.no_grad()
def whole(model: Any, mask: torch.Tensor = MASK) -> list[torch.Tensor]:
    """The same by a pass over each row alone, without cache or padding."""
    rows = [torch.cat([PROMPTS[i // 2][mask[i // 2]], DRAWN[i]]) for i in range(len(DRAWN))]
    logits = [model(row.unsqueeze(0), use_cache=False).logits[0, -3:] for row in rows]
    return [torch.stack([logits[i][step] for i in (range(6) if step == 0 else (0, 3, 4))]) for step in range(3)]


def agree(found: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    return all(torch.allclose(a, b, rtol=0, atol=1e-5) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("options", [{}, {"attention_bias": True, "mlp_bias": True}, {"tie_word_embeddings": True}])
def test_the_fast_steps_are_those_of_the_network(options: dict[str, Any]) -> None:
    model = llama(**options)
    for parameter in model.parameters():  # norms of 1 and biases of 0 would hide a mistake
        parameter.data += 0.1 * torch.randn_like(parameter)
    assert agree(steps(model, decode._Llama), whole(model))
    everything = torch.ones_like(MASK)
    assert agree(steps(model, decode._Llama, everything), whole(model, everything))


def test_an_adapter_counts_while_it_is_on() -> None:
    model = llama()
    plain = whole(model)
    wrapped = with_adapter(model)
    assert agree(steps(model, decode._Llama), whole(model))
    assert not agree(whole(model), plain)
    with wrapped.disable_adapter():
        assert agree(steps(model, decode._Generic), plain)


def test_rotations_that_are_scaled() -> None:
    scaled = {"rope_type": "linear", "rope_theta": 100.0, "factor": 3.0}
    model = llama(rope_parameters=scaled)
    assert agree(steps(model, decode._Llama), whole(model))
    dynamic = {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 3.0}
    steps(llama(rope_parameters=dynamic), decode._Generic)


def test_other_networks_and_precisions_take_their_own_pass() -> None:
    torch.manual_seed(0)
    other = Qwen2ForCausalLM(Qwen2Config(**SIZES)).eval()
    assert agree(steps(other, decode._Generic), whole(other))
    steps(llama().to(torch.bfloat16), decode._Generic)
    with torch.autocast("cpu", torch.bfloat16):
        steps(llama(), decode._Generic)
