from __future__ import annotations

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from hpcjf.training.forward import completion_logits, completion_outputs
from hpcjf.training.policy import Policy


def plain(policy: Policy, prompt: list[int], completion: list[int]) -> torch.Tensor:
    """The straightforward pass over one unpadded row: logits ``[R, V]`` of the completion's tokens."""
    logits = policy.model(torch.tensor([prompt + completion]), use_cache=False).logits[0]
    return logits[len(prompt) - 1 : -1]


def shared(policy: Policy, prompts: list[list[int]], completions: list[list[int]], pad: int) -> torch.Tensor:
    width, length = max(map(len, prompts)), max(map(len, completions))
    prompt = torch.tensor([[pad] * (width - len(p)) + p for p in prompts])
    prompt_mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts]).bool()
    ids = torch.tensor([c + [pad] * (length - len(c)) for c in completions])
    mask = torch.tensor([[1] * len(c) + [0] * (length - len(c)) for c in completions]).bool()
    return completion_logits(policy.model, prompt, prompt_mask, ids, mask)


PROMPTS = [[4, 5, 14, 6, 7, 17], [8, 17]]
COMPLETIONS = [[5, 6, 7, 2], [9, 2], [4, 4, 2], [10]]


def test_shared_prompts_and_left_padding_change_no_log_probability(policy: Policy) -> None:
    for pad in (0, 2, 11):
        found = shared(policy, PROMPTS, COMPLETIONS, pad).log_softmax(-1)
        for row, completion in enumerate(COMPLETIONS):
            expected = plain(policy, PROMPTS[row // 2], completion).log_softmax(-1)
            assert torch.allclose(found[row, : len(completion)], expected, rtol=0, atol=1e-5)


def test_gradients_flow_through_the_shared_prompt(policy: Policy) -> None:
    def gradient(loss: torch.Tensor) -> list[torch.Tensor]:
        policy.model.zero_grad()
        loss.backward()
        return [p.grad.clone() for p in policy.parameters() if p.grad is not None]

    rows = [(PROMPTS[i // 2], c) for i, c in enumerate(COMPLETIONS)]
    expected = gradient(torch.stack([plain(policy, p, c).log_softmax(-1)[:, 3].sum() for p, c in rows]).sum())
    logprobs = shared(policy, PROMPTS, COMPLETIONS, 0).log_softmax(-1)
    found = gradient(torch.stack([logprobs[i, : len(c), 3].sum() for i, c in enumerate(COMPLETIONS)]).sum())
    assert len(found) == len(expected) > 0
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(found, expected, strict=True))


def test_completions_of_one_token(policy: Policy) -> None:
    found = shared(policy, PROMPTS, [[5], [6]], 0)
    assert found.shape == (2, 1, 19)
    assert torch.allclose(found[1], plain(policy, PROMPTS[1], [6]), atol=1e-5)


def test_left_padding_leaves_absolute_positions_alone() -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=19, n_positions=32, n_embd=32, n_layer=2, n_head=4)).eval()
    prompt, ids = torch.tensor([[8, 17, 4]]), torch.tensor([[5, 6, 7], [9, 4, 2]])
    padded = torch.nn.functional.pad(prompt, (3, 0), value=2)
    everything = torch.ones_like(ids).bool()
    found = [
        completion_logits(
            model, each, torch.arange(each.shape[1]) >= each.shape[1] - 3 + torch.zeros(1, 1), ids, everything
        )
        for each in (prompt, padded)
    ]
    assert torch.allclose(*(each.log_softmax(-1) for each in found), rtol=0, atol=1e-5)
    whole = model(torch.cat([prompt.expand(2, -1), ids], 1), use_cache=False).logits[:, 2:-1]
    assert torch.allclose(found[1].log_softmax(-1), whole.log_softmax(-1), rtol=0, atol=1e-5)


def test_gradient_checkpointing_gives_the_same_with_less_kept(policy: Policy) -> None:
    def run() -> tuple[torch.Tensor, list[torch.Tensor], int]:
        policy.model.zero_grad()
        calls: list[int] = []
        hook = policy.model.model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
        logits = shared(policy, PROMPTS, COMPLETIONS, 0)
        before = len(calls)
        mask = torch.tensor([[i < len(c) for i in range(4)] for c in COMPLETIONS])
        logits.log_softmax(-1)[mask][:, 3].sum().backward()
        hook.remove()
        gradients = [p.grad.clone() for p in policy.parameters() if p.grad is not None]
        return logits.detach()[mask], gradients, len(calls) - before

    plain_logits, plain_gradients, again = run()
    assert again == 0
    policy.model.gradient_checkpointing_enable({"use_reentrant": False})
    logits, gradients, again = run()
    assert again == 1, "the layer was computed again"
    assert torch.allclose(logits, plain_logits, atol=1e-5)
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(gradients, plain_gradients, strict=True))
    assert not policy.model.training
    prompt, ids = torch.tensor(PROMPTS[:1]), torch.tensor(COMPLETIONS[:1])
    found, states = completion_outputs(policy.model, prompt, prompt > 0, ids, ids > 0)
    assert torch.allclose(policy.model.get_output_embeddings()(states), found, atol=1e-6)
