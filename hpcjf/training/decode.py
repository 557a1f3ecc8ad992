"""Decoding steps: the network's own forward pass, or for Llama in float32 the same arithmetic in fewer operations.

Small models spend most of a step between operations, and on copying a cache that grows. Here a layer's cache has its
full length from the start. Logits differ from the network's own by rounding, as those of any two batch shapes do.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, rms_norm, scaled_dot_product_attention, silu

from hpcjf.training.forward import call

_STATIC_ROTATIONS = frozenset({"default", "linear", "llama3"})


class Decoder(Protocol):
    """Rows of a batch after their prompts."""

    def step(self, tokens: Tensor) -> Tensor:
        """Append ``tokens`` ``[B]``; returns the logits of the next ones ``[B, V]``. No gradients."""

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these (indices)."""


def decoder(model: Any, cache: Any, mask: Tensor, limit: int) -> Decoder:
    """For the rows of ``cache``, whose prompts have the bool ``mask`` ``[B, T]``, and at most ``limit`` tokens each."""
    layers = _layers(model)
    return _Generic(model, cache, mask) if layers is None else _Llama(model, layers, cache, mask, limit)


class _Generic:
    def __init__(self, model: Any, cache: Any, mask: Tensor) -> None:
        self._model, self._cache, self._seen = model, cache, mask
        self._padded = not bool(mask.all())
        self._position = mask.sum(1, keepdim=True)

    def step(self, tokens: Tensor) -> Tensor:
        self._seen = torch.cat([self._seen, self._seen.new_ones(len(tokens), 1)], 1)
        seen = self._seen if self._padded else None
        logits = call(self._model, tokens.unsqueeze(1), seen, self._position, self._cache)[:, -1]
        self._position = self._position + 1
        return logits

    def keep(self, rows: Tensor) -> None:
        self._cache.batch_select_indices(rows)
        self._seen, self._position = self._seen[rows], self._position[rows]


class _Product(NamedTuple):
    """x Wᵀ + b, and with an adapter + s (x Aᵀ) Bᵀ."""

    weight: Tensor
    bias: Tensor | None
    down: Tensor | None = None
    up: Tensor | None = None
    scale: float = 1.0

    def __call__(self, x: Tensor) -> Tensor:
        y = linear(x, self.weight, self.bias)
        if self.down is None or self.up is None:
            return y
        return torch.addmm(y, linear(x, self.down), self.up.t(), alpha=self.scale)


class _Layer(NamedTuple):
    before: Tensor
    q: _Product
    k: _Product
    v: _Product
    o: _Product
    between: Tensor
    gate: _Product
    up: _Product
    down: _Product


class _Llama:
    def __init__(self, model: Any, layers: list[_Layer], cache: Any, mask: Tensor, limit: int) -> None:
        config, inner = model.config, model.model
        self._layers, self._embeddings, self._head = layers, inner.embed_tokens.weight, model.lm_head.weight
        self._norm, self._epsilon = inner.norm.weight, config.rms_norm_eps
        rows, width = mask.shape
        first = cache.layers[0].keys
        self._heads, self._size = first.shape[1], first.shape[3]
        self._stored = [first.new_empty(2, rows, self._heads, width + limit, self._size) for _ in layers]
        for stored, layer in zip(self._stored, cache.layers, strict=True):
            stored[0, :, :, :width], stored[1, :, :, :width] = layer.keys, layer.values
        positions = torch.arange(int(mask.sum(1).max()) + limit, device=mask.device).unsqueeze(0)
        cos, sin = inner.rotary_emb(first, positions)
        half = self._size // 2
        self._cos, self._sin = cos[0], torch.cat([-sin[0, :, :half], sin[0, :, half:]], 1)
        self._position, self._length = mask.sum(1), width
        self._mask = None if bool(mask.all()) else torch.cat([mask, mask.new_ones(rows, limit)], 1)

    def step(self, tokens: Tensor) -> Tensor:
        rows, end = len(tokens), self._length + 1
        cos, sin = self._cos[self._position].unsqueeze(1), self._sin[self._position].unsqueeze(1)
        mask = None if self._mask is None else self._mask[:, None, None, :end]
        x = embedding(tokens, self._embeddings)
        for layer, stored in zip(self._layers, self._stored, strict=True):
            y = rms_norm(x, x.shape[-1:], layer.before, self._epsilon)
            q, k = self._rotated(layer.q(y), cos, sin), self._rotated(layer.k(y), cos, sin)
            stored[0, :, :, self._length] = k
            stored[1, :, :, self._length] = layer.v(y).view(rows, self._heads, self._size)
            # the queries that share a head of keys stand where the positions of a sequence would
            q = q.view(rows, self._heads, -1, self._size)
            attended = scaled_dot_product_attention(q, stored[0, :, :, :end], stored[1, :, :, :end], mask)
            x = x + layer.o(attended.reshape(rows, -1))
            y = rms_norm(x, x.shape[-1:], layer.between, self._epsilon)
            x = x + layer.down(silu(layer.gate(y), inplace=True).mul_(layer.up(y)))
        self._length, self._position = end, self._position + 1
        return linear(rms_norm(x, x.shape[-1:], self._norm, self._epsilon), self._head)

    def keep(self, rows: Tensor) -> None:
        for i, stored in enumerate(self._stored):  # within the same memory, most of which was never touched
            kept = stored[:, :, :, : self._length].index_select(1, rows)
            self._stored[i] = stored[:, : len(rows)]
            self._stored[i][:, :, :, : self._length] = kept
        self._position = self._position[rows]
        self._mask = None if self._mask is None else self._mask[rows]

    def _rotated(self, flat: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = flat.view(len(flat), -1, self._size)
        return torch.addcmul(x * cos, x.roll(self._size // 2, -1), sin)


def merged_weights(model: Any) -> dict[str, Tensor]:
    """W + s B A of each linear layer that has an adapter, by the name that W has without one."""
    found = {}
    for name, module in model.named_modules():
        product = _product(module) if hasattr(module, "lora_A") else None
        if product is not None and product.down is not None and product.up is not None:
            found[f"{name}.weight"] = torch.addmm(
                product.weight, product.up, product.down, alpha=product.scale
            ).detach()
    return found


def _layers(model: Any) -> list[_Layer] | None:
    """None where the network is another, or not in float32."""
    from transformers import LlamaForCausalLM

    config = model.config
    known = type(model) is LlamaForCausalLM and type(model.lm_head) is nn.Linear and config.hidden_act == "silu"
    if not known or config.rope_parameters["rope_type"] not in _STATIC_ROTATIONS:
        return None
    if torch.is_autocast_enabled(model.device.type) or any(p.dtype != torch.float32 for p in model.parameters()):
        return None
    found = []
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        names = (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)
        q, k, v, o, gate, up, down = (_product(each) for each in (*names, mlp.gate_proj, mlp.up_proj, mlp.down_proj))
        if not (q and k and v and o and gate and up and down):
            return None
        norms = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
        found.append(_Layer(norms[0], q, k, v, o, norms[1], gate, up, down))
    return found


def _product(module: Any) -> _Product | None:
    """Of a plain linear layer, or one with a plain adapter that is on."""
    if type(module) is nn.Linear:
        return _Product(module.weight, module.bias)
    base, active = getattr(module, "base_layer", None), list(getattr(module, "active_adapters", []))
    if type(base) is not nn.Linear or len(active) != 1 or module.disable_adapters or module.merged:
        return None
    name = active[0]
    if name not in module.lora_A or name in module.lora_variant or module.lora_A[name].bias is not None:
        return None
    up = module.lora_B[name]
    if up.bias is not None:
        return None
    return _Product(base.weight, base.bias, module.lora_A[name].weight, up.weight, module.scaling[name])
