"""The policy that is trained and the reference it is held to: loading, saving, and what their tokens mean."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hpcjf.errors import ModelError, TrainingError
from hpcjf.study import ModelSection

_PROBES = 64  # values of each tensor that enter the reference's fingerprint


@dataclass
class Policy:
    """A causal language model in training, which came from ``folder``.

    ``model`` is called for forward passes and, with LoRA, holds the adapter's layers. It stays in eval mode, so
    that no dropout makes policy and reference differ. ``pad_id`` is a filler only: no mask ever comes from it.
    """

    folder: Path
    model: Any
    tokenizer: Any
    eos_ids: tuple[int, ...]
    pad_id: int
    device: torch.device
    autocast: bool
    _frozen: Any | None
    _peft: Any | None
    _anchor: list[Tensor] | None = None

    def parameters(self) -> list[nn.Parameter]:
        """Trainable parameters in a fixed order. Raises TrainingError where there are none."""
        found = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        if not found:
            raise TrainingError("the policy has nothing trainable", fix="check the adapter of the model")
        return found

    @contextmanager
    def reference(self) -> Iterator[Any]:
        """The reference model, without gradients inside: the frozen copy, with LoRA the base with the adapter off or,
        after :meth:`take_as_reference`, with the adapter as it was then."""
        if self._peft is None:
            apart: AbstractContextManager[Any] = nullcontext()
        else:
            apart = self._peft.disable_adapter() if self._anchor is None else self._at(self._anchor)
        with torch.no_grad(), apart:
            yield self.model if self._frozen is None else self._frozen

    def take_as_reference(self, weights: Sequence[Tensor] | None = None) -> None:
        """From here on the reference is the policy as it stands, or with ``weights`` as in :attr:`anchor`.

        Raises ModelError where these do not fit.
        """
        own = [parameter.detach() for parameter in self.parameters()]
        taken = own if weights is None else list(weights)
        if [each.shape for each in taken] != [each.shape for each in own]:
            raise ModelError("the reference's weights do not fit the model")
        places = [torch.empty_like(each) for each in own] if self._frozen is None else list(self._frozen.parameters())
        for place, weight in zip(places, taken, strict=True):
            place.data.copy_(weight)
        self._anchor = places

    @property
    def anchor(self) -> list[Tensor] | None:
        """Trainable weights of a reference that was taken from the policy, in the order of :meth:`parameters`."""
        return self._anchor

    @contextmanager
    def _at(self, weights: Sequence[Tensor]) -> Iterator[None]:
        own = self.parameters()
        kept = [parameter.data for parameter in own]
        try:
            for parameter, weight in zip(own, weights, strict=True):
                parameter.data = weight
            yield
        finally:
            for parameter, weight in zip(own, kept, strict=True):
                parameter.data = weight

    def precision(self) -> AbstractContextManager[Any]:
        """Autocast to bfloat16 where full weights train in that dtype: the weights themselves stay float32,
        since updates of a small learning rate round to nothing in bfloat16."""
        return torch.autocast(self.device.type, torch.bfloat16) if self.autocast else nullcontext()

    def reference_identity(self) -> str:
        """Hash over names, shapes and up to 64 values of each reference tensor; tells revisions apart, cheaply."""
        seen = hashlib.sha256()
        for name, tensor in (self.model if self._frozen is None else self._frozen).state_dict().items():
            if ".lora_" in name:
                continue
            values = tensor.detach().reshape(-1)
            probe = values[:: max(1, values.numel() // _PROBES)][:_PROBES].to("cpu", torch.float64)
            seen.update(f"{name.replace('.base_layer', '')} {tuple(tensor.shape)}".encode() + probe.numpy().tobytes())
        return seen.hexdigest()[:32]

    def save(self, folder: Path) -> None:
        """Weights (with LoRA the adapter) as safetensors and the tokenizer, in the layout of transformers / peft."""
        (self._peft or self.model).save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def load(self, folder: Path) -> None:
        """Weights that :meth:`save` wrote, bit for bit. Raises ModelError where they do not fit."""
        state = _adapter_state(folder) if self._peft else _full_state(folder)
        try:
            if self._peft:
                from peft import set_peft_model_state_dict

                result: Any = set_peft_model_state_dict(self._peft, state)
                lost = [*result.unexpected_keys, *(key for key in result.missing_keys if ".lora_" in key)]
                if lost:
                    raise RuntimeError(f"keys do not match: {lost[0]}")
            else:
                self.model.load_state_dict(state)
        except RuntimeError as error:
            raise ModelError(f"the weights do not fit the model ({error})", where=str(folder)) from error


def load_policy(model: ModelSection, path: Path, *, seed: int = 0) -> Policy:
    """Policy and reference from a folder or a hub id in ``path``; a new adapter is a function of ``seed``.

    Raises ModelError for a missing or broken folder, TrainingError where nothing would be trained.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    lora = model.adapter.type == "lora"
    low = model.dtype == "bfloat16"
    network, tokenizer = _read(model, path, torch.bfloat16 if low and lora else torch.float32)
    largest = max(tokenizer.get_vocab().values(), default=0)
    rows = network.get_input_embeddings().weight.shape[0]
    if largest >= rows:
        raise ModelError(f"the tokenizer has id {largest}, the model {rows} embeddings", where=str(path))
    network.to(device).eval()
    if model.gradient_checkpointing:
        new = getattr(network, "activation_checkpointing_enable", None)  # the name changed within transformers 5
        (new or network.gradient_checkpointing_enable)({"use_reentrant": False})
    wrapped = frozen = None
    if lora:
        wrapped = _with_adapter(network, model, path, seed)
    else:
        frozen = copy.deepcopy(network).requires_grad_(False)
    eos = _eos_ids(network, tokenizer)
    pad = next((i for i in (tokenizer.pad_token_id, *eos) if i is not None), 0)
    policy = Policy(path, network, tokenizer, eos, pad, device, low and not lora, frozen, wrapped)
    policy.parameters()
    return policy


def load_tokenizer(model: ModelSection, path: Path) -> Any:
    """The tokenizer alone, padding on the left. Raises ModelError."""
    from transformers import AutoTokenizer

    return _loaded(AutoTokenizer, model, path, padding_side="left")


def context_length(model: ModelSection, path: Path) -> int | None:
    """Most tokens that the model was made for, None where its configuration names no limit. Raises ModelError."""
    from transformers import AutoConfig

    length: int | None = getattr(_loaded(AutoConfig, model, path), "max_position_embeddings", None)
    return length


def _read(model: ModelSection, path: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # would fill a job's log
    return _loaded(AutoModelForCausalLM, model, path, dtype=dtype), load_tokenizer(model, path)


def _loaded(kind: Any, model: ModelSection, path: Path, **options: Any) -> Any:
    hub_id = not path.is_absolute() and len(path.parts) == 2 and not path.parent.exists()
    if not path.is_dir() and not hub_id:
        raise ModelError("no such model folder", where=str(path), fix=f"correct the path of model {model.name}")
    if (path / "adapter_config.json").exists():
        raise ModelError("this folder holds an adapter, not a model", where=str(path), fix="merge it into its base")
    options |= {"revision": model.revision or "main", "trust_remote_code": model.trust_remote_code}
    try:
        return kind.from_pretrained(str(path), **options)
    except Exception as error:  # transformers raises a dozen kinds; each one means that the model cannot be used
        what = f"model or tokenizer cannot be loaded ({type(error).__name__}: {error})"
        raise ModelError(what[:500], where=str(path)) from error


def _with_adapter(network: Any, model: ModelSection, path: Path, seed: int) -> Any:
    """Put LoRA layers into ``network``; returns peft's wrapper. peft's import is slow, hence here."""
    from peft import LoraConfig, get_peft_model

    modules = [name for name, _ in network.named_modules()]
    for target in model.adapter.targets:
        if not any(name == target or name.endswith(f".{target}") for name in modules):
            raise TrainingError(f"adapter target {target} is no module of the model", where=str(path))
    config = LoraConfig(
        r=model.adapter.rank,
        lora_alpha=model.adapter.alpha,  # type: ignore[arg-type]
        target_modules=list(model.adapter.targets),
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return get_peft_model(network, config)


def _eos_ids(network: Any, tokenizer: Any) -> tuple[int, ...]:
    """Every id that ends a completion: a chat model may name several, in different places."""
    found: set[int] = set()
    for source in (tokenizer, network.config, getattr(network, "generation_config", None)):
        ids = getattr(source, "eos_token_id", None)
        found.update([ids] if isinstance(ids, int) else ids or [])
    return tuple(sorted(found))


def _full_state(folder: Path) -> dict[str, Tensor]:
    from transformers import AutoModelForCausalLM

    try:
        loaded = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32)
    except Exception as error:  # as in _read
        raise ModelError(
            f"weights cannot be loaded ({type(error).__name__}: {error})"[:500], where=str(folder)
        ) from error
    return dict(loaded.state_dict())


def _adapter_state(folder: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    try:
        return dict(load_file(folder / "adapter_model.safetensors"))
    except Exception as error:  # safetensors raises its own kind, outside OSError
        raise ModelError(f"adapter cannot be loaded ({error})", where=str(folder)) from error
