import pytest

from hpcjf.tasks.base import Row
from hpcjf.tasks.mlperf import exact_match, reward


def row(*references):
    return Row.of("q", references, "mlperf")


@pytest.mark.parametrize(
    ("reference", "response", "expected"),
    [
        ("896", "896", 1.0),
        ("896", " 896. ", 1.0),
        ("896", "896.0", 1.0),
        ("3584", "3,584", 1.0),
        ("3,584", "There are 3584 of them.", 1.0),
        ("896", "896, I think", 1.0),
        ("896", "-896", 0.2),
        ("896", "895", 0.0),
        ("896", "8960", 0.0),
        ("896", "8", 0.0),
        ("896", "896 or 897", 0.2),
        ("896", "895 or 896", 0.2),
        ("896", "", 0.0),
        ("896", "٨٩٦", 0.0),
        ("8", "box8x", 0.0),
        ("8", "1e999", 0.0),
        ("8", "9" * 100_000, 0.0),
        ("8", "1," * 100_000, 0.0),
        ("Acme+Birch", "acme+birch.", 1.0),
        ("Acme+Birch", "Acme", 0.0),
        ("Tinker Labs", "tinker   labs", 1.0),
        ("Tinker Labs", "Tinker", 0.1),
        ("Tinker Labs", "It was Tinker Labs that sent it", 0.2),
        ("Gnome G1-80GB, 9.9-0001", "Gnome G1-80GB , 9.9-0001", 1.0),
        ("Gnome G1-80GB, 9.9-0001", "Gnome G1-80GB", 0.5),
        ("Gnome G1-80GB, 9.9-0001", "9.9-0001", 0.5),
        ("Gnome G1-80GB, 9.9-0001", "9.9-0001, Gnome G1-80GB", 0.5),
        ("Gnome G1-80GB, 9.9-0001", "9.9-0001, Gnome G2-80GB", 0.1),
        ("Gnome G1-80GB, 9.9-0001", "Gnome", 0.0),
        ("Gnome G1-80GB, 9.9-0001", ",", 0.0),
        ("Gnome G1-80GB, 9.9-0001", "9.9-0001, 9.9-0001, 9.9-0001", 0.0),
        ("alpha beta gamma delta", "delta gamma beta and alpha", 0.2),
        ("alpha beta gamma delta", "alpha beta gamma", 0.2),
        ("alpha beta gamma delta", "alpha beta", 0.1),
        ("alpha beta gamma delta", "alpha", 0.0),
        ("alpha of the beta", "of the of the", 0.0),
        ("the", "a", 0.0),
        ("Ærø", "ÆRØ", 1.0),
        ("alpha", "\ud800", 0.0),
    ],
)
def test_tiers(reference, response, expected):
    assert reward(row(reference), response) == expected


def test_a_flood_of_words_earns_no_more_than_keywords():
    assert reward(row("alpha beta, gamma"), "alpha beta, gamma " * 50_000) == 0.2
    assert reward(row("896"), " ".join(map(str, range(2000)))) == 0.2


def test_the_best_of_several_answers_counts():
    assert reward(row("8", "16", "Gnome, 9.9"), "16") == 1.0
    assert reward(row("8", "Gnome, 9.9"), "gnome") == 0.5


@pytest.mark.parametrize(("response", "right"), [("ACME.", True), ("16", True), ("16.0", False), ("", False)])
def test_exact_match_is_stricter_than_the_reward(response, right):
    assert exact_match(row("Acme", "16"), response) is right
