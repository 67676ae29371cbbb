"""Rounds are judged: a process that ended, a wrong answer and a late one are each noted."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streams.app.client import Client
from streams.errors import Determinate
from streams.torture.hostile.attack_rounds import Assault
from streams.torture.hostile.fair_clock import FairClock
from streams.torture.hostile.sessions import Session


@dataclass
class Honest:
    """Honest clients that say what they are told to."""

    wrong: str = ""
    late: bool = False
    seen: list[int] = field(default_factory=list)

    def write(self, at: int) -> None:
        self.seen.append(at)
        if self.late:
            raise Determinate("expected a response within 20 s, actual none")

    def publish(self) -> None:
        pass

    def check(self, at: int = 0) -> str:
        return self.wrong if len(self.seen) > 2 else ""

    def batches(self) -> int:
        return 1


@dataclass
class Child:
    pid: int | None = 7
    starts: int = 1


def assault(tmp_path: Path, honest: Honest, child: Child) -> Assault:
    """Rounds against nothing: what is sent is kept, and no input asks where one landed."""
    environment = SimpleNamespace(
        children={"storage": child}, settings=SimpleNamespace(directory=tmp_path)
    )
    scene: Any = SimpleNamespace(
        environment=environment,
        senders=SimpleNamespace(send=lambda sent: (0, 0), refused=0),
        known=None,
        writer=honest,
        view=honest,
        tidy=lambda: None,
        harvest=lambda: None,
        replace=lambda: None,
        told=lambda: "",
        squatted=lambda: "",
        sessions=(Session(Client(""), 1, float, int),),
        clock=FairClock(),
        answers=Counter({"DONE": 3}),
    )
    return Assault(scene, 1, lambda passed: None, ("http", "sql"))


def test_rounds_go_on_until_their_number_is_up(tmp_path: Path) -> None:
    run = assault(tmp_path, Honest(), Child())
    verdict = run.run(60, 25)
    assert verdict.wrong == ()
    assert verdict.figures["rounds"] == 25
    assert verdict.figures["http inputs"] > 10
    assert verdict.figures["answers DONE"] == 3
    assert len(run.evidence) == sum(
        number for name, number in verdict.figures.items() if name.endswith("inputs")
    )


@pytest.mark.parametrize(
    ("honest", "problem"),
    [
        (Honest(wrong="one row missing"), "round 2: one row missing"),
        (
            Honest(late=True),
            "round 0: Determinate: expected a response within 20 s, actual none",
        ),
    ],
)
def test_a_wrong_or_late_answer_ends_the_run(
    tmp_path: Path, honest: Honest, problem: str
) -> None:
    verdict = assault(tmp_path, honest, Child()).run(60, 25)
    assert problem in verdict.wrong
    assert verdict.figures["rounds"] <= 3


def test_a_process_that_ended_is_noted(tmp_path: Path) -> None:
    child = Child()
    run = assault(tmp_path, Honest(), child)
    run.scene.view.publish = lambda: setattr(child, "starts", 2)  # type: ignore[method-assign]
    assert run.run(60, 25).wrong == ("round 0: the storage ended",)


def test_an_end_between_two_rounds_is_noted(tmp_path: Path) -> None:
    child = Child()
    run = assault(tmp_path, Honest(), child)
    run.round()
    child.starts = 2
    run.round()
    assert run.wrong == ["round 1: the storage ended"]


def test_a_problem_of_a_session_is_noted(tmp_path: Path) -> None:
    run = assault(tmp_path, Honest(), Child())
    run.scene.sessions[0].problem = "reads: it went back"
    assert run.run(60, 25).wrong == ("round 0: reads: it went back",)


def test_batches_may_heap_up_while_others_have_the_machine(tmp_path: Path) -> None:
    run = assault(tmp_path, Honest(), Child())
    run.scene.writer.batches = lambda: 1000  # type: ignore[method-assign]
    run.scene.clock.note(1, taken=True)
    run.round()
    assert run.wrong == []
    run.scene.clock.note(1, taken=False)
    run.round()
    assert run.wrong == ["round 1: 1000 batches: compaction makes no progress"]


def test_a_run_that_is_told_to_end_ends_with_what_it_has_found(tmp_path: Path) -> None:
    run = assault(tmp_path, Honest(), Child())
    run.tell = lambda _: run.stopping.set() if run.figures["rounds"] == 5 else None
    verdict = run.run(60, 25)
    assert verdict.wrong == ()
    assert verdict.figures["rounds"] == 5


def test_no_round_is_no_success(tmp_path: Path) -> None:
    verdict = assault(tmp_path, Honest(), Child()).run(-1, 25)
    assert verdict.wrong == ("no round was completed: nothing was tested",)
