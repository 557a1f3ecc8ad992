"""The search's process from outside: it stays, it may die, it may hang. Its part is played by scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpcjf.controller import answer as module
from hpcjf.controller.answer import Answer, AskProcess, encode
from hpcjf.errors import HpcjfError
from hpcjf.types import Fidelity, Proposal

ANSWER = Answer((Proposal({"lr": 0.1}, Fidelity("s", 10), {"reason": "test", "figure": 0.5}),), {"lr": 0.2})
TALK = f"""
import json, os, sys
for line in sys.stdin:
    count = json.loads(line)["count"]
    print(json.dumps({encode(ANSWER)!r} | {{"best": {{"pid": os.getpid(), "count": count}}}}), flush=True)
"""

Make = Callable[[str], AskProcess]


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Make]:
    """A process that runs the code given, and a way to count its starts: lines of ``starts``."""
    made: list[AskProcess] = []

    def make(code: str) -> AskProcess:
        ask = AskProcess(tmp_path)
        note = f"open({str(tmp_path / 'starts')!r}, 'a').write('x\\n')\n"
        ask._command = [sys.executable, "-S", "-c", note + code]
        made.append(ask)
        return ask

    yield make
    for ask in made:
        ask.close()


def starts(tmp_path: Path) -> int:
    path = tmp_path / "starts"
    return len(path.read_text().splitlines()) if path.exists() else 0


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").exists()


def test_one_process_answers_many_questions_and_ends_with_us(asking: Make, tmp_path: Path) -> None:
    ask = asking(TALK)
    assert starts(tmp_path) == 0, "started before the first question"
    first, second = ask(2), ask(0)
    assert first.proposals == ANSWER.proposals
    assert (first.best["count"], second.best["count"]) == (2, 0)
    assert first.best["pid"] == second.best["pid"]
    ask.close()
    assert not alive(int(first.best["pid"]))


def test_a_process_that_left_is_started_again(asking: Make, tmp_path: Path) -> None:
    ask = asking(TALK + "    sys.exit(0)")
    assert ask(1).best["pid"] != ask(1).best["pid"]
    assert starts(tmp_path) == 2


def test_a_process_that_died_over_a_question_is_asked_once_more(asking: Make, tmp_path: Path) -> None:
    died = tmp_path / "died"
    ask = asking(
        f"import os\nif not os.path.exists({str(died)!r}): open({str(died)!r}, 'w'); os.kill(os.getpid(), 9)\n{TALK}"
    )
    assert ask(1).proposals == ANSWER.proposals
    assert starts(tmp_path) == 2


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "import sys; sys.stdin.readline(); print('line 1\\nno module named x', file=sys.stderr); sys.exit(1)",
            "module",
        ),
        ("import sys; sys.stdin.readline(); print('{', end='', flush=True)", "exit code 0"),
        ("import sys; sys.exit('too early')", "too early"),
    ],
)
def test_dying_twice_is_told_with_the_last_line(asking: Make, tmp_path: Path, code: str, said: str) -> None:
    with pytest.raises(HpcjfError, match=f"the search failed: .*{said}"):
        asking(code)(1)
    assert starts(tmp_path) == 2


def test_a_process_that_cannot_be_started_is_an_error_of_ours(asking: Make) -> None:
    ask = asking(TALK)
    ask._command = ["/no/such/python"]
    with pytest.raises(HpcjfError, match="the search failed"):
        ask(1)


def test_a_process_that_hangs_is_killed_and_not_asked_again(
    asking: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SECONDS", 0.5)
    ask = asking(f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)")
    with pytest.raises(HpcjfError, match="no answer"):
        ask(1)
    assert starts(tmp_path) <= 1
    monkeypatch.undo()
    ask._command = [sys.executable, "-S", "-c", TALK]
    assert ask(1).proposals == ANSWER.proposals


def test_complaints_fill_no_pipe(asking: Make) -> None:
    ask = asking(TALK.replace("    print(", "    sys.stderr.write('warning ' * 100_000)\n    print("))
    for _ in range(3):
        ask(1)


def test_an_answer_larger_than_a_pipe_arrives_whole(asking: Make) -> None:
    ask = asking(TALK.replace('"count": count', '"count": "x" * 300_000'))
    assert len(str(ask(1).best["count"])) == 300_000


def test_an_answer_survives_its_journey() -> None:
    assert module._decode(json.loads(json.dumps(encode(ANSWER)))) == ANSWER
