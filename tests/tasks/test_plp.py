import math

import pytest

from hpcjf.tasks.base import Row
from hpcjf.tasks.plp import BONUS, LIMIT, PENALTY, rewards, similarities


class Letters:
    """Counts letters: texts of the same letters point the same way."""

    def __init__(self):
        self.asked = []

    def embed(self, texts):
        self.asked += texts
        return [[float(text.count(letter)) for letter in "abcde-"] for text in texts]


class Constant:
    def __init__(self, vector):
        self.vector = vector

    def embed(self, texts):
        return [self.vector for _ in texts]


def row(*references):
    return Row.of("q", references, "plp")


def one(reference, response, embedder=None):
    return rewards([row(reference)], [response], embedder or Letters())[0]


def test_similarity_is_the_cosine_of_the_nearest_reference():
    values = similarities([row("a"), row("b", "a b")], ["a b", "a"], Letters())
    assert values == pytest.approx([math.sqrt(0.5), math.sqrt(0.5)])


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("a b", math.sqrt(0.5) + BONUS),
        ("a", 1.0),
        ("b", BONUS),
        ("", 0.0),
        (" \n ", 0.0),
        ("b " * 4, 0.0),
        ("a b a b", math.sqrt(0.5)),
        ("ж🙂", BONUS),
        ("a" * (LIMIT + 300), 1.0 + BONUS - 300 * PENALTY),
        ("a" * 1_000_000, 0.0),
    ],
)
def test_bonus_penalty_and_clipping(response, expected):
    assert one("a", response) == pytest.approx(expected)


def test_opposite_and_undefined_vectors_earn_no_similarity():
    assert similarities([row("a")], ["b"], Constant([0.0, 0.0])) == [0.0]
    assert similarities([row("a")], ["b"], Constant([math.nan, 1.0])) == [0.0]

    class Opposite:
        def embed(self, texts):
            return [[1.0 if text == "a" else -1.0] for text in texts]

    assert similarities([row("a")], ["b"], Opposite()) == [0.0]


def test_each_text_is_embedded_once_and_hopeless_ones_never():
    embedder = Letters()
    rewards([row("a"), row("a"), row("c"), row("d")], ["b", "b", "", "e" * 10_000], embedder)
    assert sorted(embedder.asked) == ["a", "b"]


def test_nothing_to_embed():
    embedder = Letters()
    assert rewards([row("a")], [""], embedder) == [0.0]
    assert rewards([], [], embedder) == []
    assert embedder.asked == []
