"""Honest sessions beside an attack say what is wrong, late or gone, and nothing else."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from streams.app.client import StatementResult
from streams.errors import Determinate, InvalidStatement
from streams.torture.hostile.sessions import (
    Session,
    complete,
    definitions,
    made,
    reads,
    total,
    wrong,
)
from streams.torture.hostile.subscription_check import SubscriptionState, follows, reached
from tests.support.processes import eventually

VIEW, SOURCE, TOPIC = "honest_view", "honest_source", "honest.raw"


class Coordinator:
    """Answers as it is told; objects are those that were made and not dropped."""

    def __init__(self) -> None:
        self.there = {VIEW, SOURCE}
        self.seen, self.as_of = 3, 0
        self.refusals: list[Exception] = []
        self.messages: list[dict[str, Any]] = []

    def in_session(self) -> "Coordinator":
        return self

    def run(self, text: str) -> list[StatementResult]:
        if self.refusals:
            raise self.refusals.pop()
        name = text.rsplit(maxsplit=1)[-1]
        match text.split():
            case ["CREATE", "SOURCE", created, *_] | ["CREATE", _, "VIEW", created, *_]:
                self.there.add(created)
            case ["DROP", *_]:
                self.there.discard(name)
            case _:
                self.as_of += 1
                row = (self.seen, total(self.seen))
                return [
                    StatementResult(("n", "total"), (row,), "SELECT 1", {"as_of": self.as_of})
                ]
        return []

    def objects(self) -> list[dict[str, object]]:
        return [{"name": name} for name in self.there]

    def stream(self, text: str) -> Iterator[dict[str, Any]]:
        yield from self.messages


def session(coordinator: Any, patience_s: float = 30.0) -> Session:
    return Session(coordinator, patience_s, time.monotonic, lambda: coordinator.seen)


def turned(one: Session, turns: Any, most: int = 12) -> str:
    """The first problem within so many turns."""
    for _, _ in zip(range(most), turns, strict=False):
        if one.problem:
            break
    return one.problem


@pytest.mark.parametrize(
    ("rows", "least", "message"),
    [
        ([(0, None)], 0, ""),
        ([(3, 6)], 3, ""),
        ([(3, "6")], 0, ""),
        ([(3, 7)], 0, "the sum of the first 3"),
        ([(3, 6)], 4, "went back"),
        ([], 0, "one row"),
        ([(3, 6), (3, 6)], 0, "one row"),
        ([(None, None)], 0, "sum"),
    ],
)
def test_a_row_says_by_itself_whether_it_is_right(rows: Any, least: int, message: str) -> None:
    assert message in wrong(rows, least)
    assert bool(message) == bool(wrong(rows, least))


def test_reads_are_right_and_their_times_never_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.torture.hostile.sessions.PAUSE_S", 0)
    coordinator = Coordinator()
    one = session(coordinator)
    assert turned(one, reads(one, VIEW, SOURCE)) == ""
    assert one.figures["honest selects"] == 12
    turns = reads(one, VIEW, SOURCE)
    next(turns)
    coordinator.as_of = -5
    assert "went back from 13 to -4" in turned(one, turns)


def test_a_statement_that_meets_its_limit_is_asked_again() -> None:
    coordinator = Coordinator()
    coordinator.refusals = [InvalidStatement("it took too long", "", "")]
    one = session(coordinator)
    assert turned(one, reads(one, VIEW, SOURCE), 2) == ""
    assert one.figures["asked again"] == 1
    coordinator.refusals = [InvalidStatement("no such view", "", "")] * 1000
    late = session(coordinator, 0.3)
    assert "no such view" in turned(late, reads(late, VIEW, SOURCE))


def test_definitions_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.torture.hostile.sessions.DDL_PAUSE_S", 0)
    coordinator = Coordinator()
    one = session(coordinator)
    assert turned(one, definitions(one, TOPIC)) == ""
    assert one.figures["honest views made and dropped"] == 2
    assert coordinator.there >= {VIEW, SOURCE}


def test_what_is_not_made_or_not_complete_is_late() -> None:
    coordinator: Any = Coordinator()
    assert complete(coordinator, VIEW, 5) == "3 of 5 messages seen"
    assert complete(coordinator, VIEW, 3) == ""
    coordinator.run = lambda text: []
    assert "as before" in made(coordinator, "v", "CREATE SOURCE v", wanted=True)
    assert "as before" in made(coordinator, VIEW, f"DROP SOURCE {VIEW}", wanted=False)


def told(*messages: dict[str, Any]) -> tuple[SubscriptionState, str]:
    followed = SubscriptionState()
    for message in messages:
        problem = followed.hear(
            {"type": "rows" if "rows" in message else "progress", **message}
        )
        if problem:
            return followed, problem
    return followed, ""


FIRST = {"rows": [[5, 1, 2, 3]]}, {"frontier": 6}


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([{"rows": [[7, -1, 2, 3], [7, 1, 3, 6]]}, {"frontier": 9}], ""),
        ([{"rows": [[7, -1, 2, 3], [7, 1, 3, 7]]}, {"frontier": 9}], "at 7: expected the sum"),
        ([{"rows": [[7, 1, 3, 6]]}, {"frontier": 9}], "at 7: expected one row"),
        ([{"rows": [[7, -1, 3, 6]]}, {"frontier": 9}], "less than none"),
        ([{"rows": [[7, -1, 2, 3], [7, 1, 1, 1]]}, {"frontier": 9}], "went back"),
        # wrong for a moment, right at the frontier
        (
            [
                {"rows": [[7, -1, 2, 3], [7, 1, 3, 7], [8, -1, 3, 7], [8, 1, 3, 6]]},
                {"frontier": 9},
            ],
            "at 7",
        ),
        ([{"rows": [[5, -1, 2, 3], [5, 1, 3, 6]]}, {"frontier": 9}], "a change at 5"),
        ([{"frontier": 5}], "the frontier went back"),
    ],
)
def test_a_subscription_is_looked_at_at_every_time(messages: Any, message: str) -> None:
    followed, problems = told(*FIRST, *messages)
    assert message in problems
    assert bool(message) == bool(problems)
    if not message:
        assert (followed.seen, followed.states, followed.frontier) == (3, 2, 9)


def test_a_subscription_that_stands_still_is_late_and_one_that_ends_is_noticed() -> None:
    coordinator: Any = Coordinator()
    coordinator.messages = [{"type": "rows", **FIRST[0]}, {"type": "progress", **FIRST[1]}]
    one, followed = session(coordinator, 0.3), SubscriptionState()
    one.begin("subscription", lambda session: follows(session, VIEW, followed))
    eventually(lambda: one.problem == "subscription: it ended")
    two = session(coordinator, 0.3)
    assert reached(two, followed, 2, 5) == ""
    assert "2 of 3 messages" in reached(two, followed, 3, 5)
    assert "not 6" in reached(two, followed, 2, 6)


def test_a_session_that_is_closed_says_nothing() -> None:
    coordinator: Any = Coordinator()
    hanging = threading.Event()

    def stream(text: str) -> Iterator[dict[str, Any]]:
        yield {}
        hanging.wait(30)
        raise Determinate("no coordinator answers")

    coordinator.stream = stream
    one = session(coordinator)
    one.begin("subscription", lambda session: follows(session, VIEW, SubscriptionState()))
    one.close()
    hanging.set()
    eventually(lambda: "subscription" not in {thread.name for thread in threading.enumerate()})
    assert "ended" not in one.problem
