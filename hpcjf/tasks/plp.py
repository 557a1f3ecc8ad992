"""Questions on models and data sets for programming languages, answered in a sentence or two."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hpcjf.tasks.base import Embedder, Row

BONUS = 0.05
"""For an answer that does not repeat itself."""
LIMIT = 500
"""Characters that cost nothing; the longest public answer has 327."""
PENALTY = 0.001
"""For each character beyond the limit."""
_HOPELESS = LIMIT + math.ceil((1 + BONUS) / PENALTY)


def rewards(rows: Sequence[Row], responses: Sequence[str], embedder: Embedder) -> list[float]:
    """Similarity to the nearest reference, with a bonus and a penalty for length, in [0, 1]."""
    return [
        _shaped(value, text) for value, text in zip(similarities(rows, responses, embedder), responses, strict=True)
    ]


def similarities(rows: Sequence[Row], responses: Sequence[str], embedder: Embedder) -> list[float]:
    """Cosine of the embeddings of a response and its nearest reference, clipped to [0, 1].

    0 for an empty response, and for one so long that its reward is 0 anyway: neither is embedded.
    """
    asked = [i for i, text in enumerate(responses) if text.strip() and len(text) < _HOPELESS]
    texts = list(dict.fromkeys(text for i in asked for text in (responses[i], *rows[i].references)))
    if not texts:
        return [0.0] * len(rows)
    vectors = {text: [float(x) for x in vector] for text, vector in zip(texts, embedder.embed(texts), strict=True)}
    values = [0.0] * len(rows)
    for i in asked:
        values[i] = max(_cosine(vectors[responses[i]], vectors[reference]) for reference in rows[i].references)
    return values


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """0 where it is undefined."""
    norm = math.hypot(*a) * math.hypot(*b)
    value = math.fsum(x * y for x, y in zip(a, b, strict=True)) / norm if norm else 0.0
    return min(max(value, 0.0), 1.0) if math.isfinite(value) else 0.0


def _shaped(similarity: float, response: str) -> float:
    words = response.casefold().split()
    bonus = BONUS if words and 2 * len(set(words)) > len(words) else 0.0
    penalty = PENALTY * max(len(response) - LIMIT, 0)
    return min(max(similarity + bonus - penalty, 0.0), 1.0)
