"""Rewards that need a model of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hpcjf.errors import ModelError

_BATCH = 64
_LENGTH = 256  # tokens; sentence embedders of this family were trained on no longer text


class SentenceEmbedder:
    """Encoder with mean pooling and vectors of length 1, e.g. all-MiniLM-L6-v2 from a folder or hub id ``path``.

    Raises ModelError where the model cannot be loaded.
    """

    def __init__(self, path: str | Path) -> None:
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(str(path))
            self._model: Any = AutoModel.from_pretrained(str(path)).to(self._device).eval()
        except Exception as error:  # transformers raises a dozen kinds; each one means that it cannot be used
            what = f"sentence embedder cannot be loaded ({type(error).__name__}: {error})"
            raise ModelError(what[:500], where=str(path), fix="set task.embedder to a folder with the model") from error

    @torch.no_grad()
    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors ``[n, d]`` of ``n`` texts. Texts of like length share a batch; the order stays."""
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        found = np.zeros((len(texts), self._model.config.hidden_size), dtype=np.float32)
        for start in range(0, len(order), _BATCH):
            part = order[start : start + _BATCH]
            found[part] = self._vectors([texts[i] for i in part])
        return found

    def _vectors(self, texts: list[str]) -> NDArray[np.float32]:
        batch = self._tokenizer(texts, padding=True, truncation=True, max_length=_LENGTH, return_tensors="pt")
        batch = batch.to(self._device)
        hidden = self._model(**batch).last_hidden_state
        weight = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weight).sum(1) / weight.sum(1).clamp_min(1)
        vectors: NDArray[np.float32] = torch.nn.functional.normalize(mean, dim=-1).float().cpu().numpy()
        return vectors
