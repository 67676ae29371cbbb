import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streams.compute.parameters import DEFAULTS
from streams.compute.protocol import Alive, Frontiers, Reconciled, Response, Status
from streams.errors import Indeterminate
from streams.ids import CollectionId
from streams.progress import frontier
from streams.replica.driver import heartbeat, status_reports
from streams.replica.driver.dataflow import Dataflow
from streams.replica.driver.events import Failed
from streams.replica.driver.retry_policy import Failure, Kind
from streams.replica.driver.status_reports import StatusReporter
from tests.support.market import VIEWS, Market, settle
from tests.support.sparkless import Replica

ALIVE_S = DEFAULTS.heartbeat_ms / 1000


class Written:
    """Keeps what is answered; fails the first `failing` times."""

    def __init__(self, failing: int = 0) -> None:
        self.responses: list[Response] = []
        self.failing = failing
        self.lives = threading.Event()

    def write(self, _: str, responses: Sequence[Response]) -> None:
        if self.failing:
            self.failing -= 1
            raise Indeterminate("no broker answers")
        self.responses += responses
        if Alive() in responses:
            self.lives.set()


def test_a_replica_that_has_nothing_to_say_says_that_it_lives() -> None:
    written, now = Written(), [100.0]
    answers = StatusReporter(written, clock=lambda: now[0])  # type: ignore[arg-type]
    answers.alive()
    assert written.responses == [], "there is no iteration yet"
    answers.begin("n")
    answers.reconciled(Reconciled(0, 0, 0))
    now[0] += ALIVE_S - 0.1
    answers.alive()
    assert written.responses == [Reconciled(0, 0, 0)]
    now[0] += 0.1
    answers.alive()
    answers.alive()
    assert written.responses == [Reconciled(0, 0, 0), Alive()]
    answers.refused(CollectionId("u1"), "no such operator")
    now[0] += ALIVE_S
    answers.alive()
    assert written.responses[-1] == Alive()


def test_a_replica_gives_a_sign_of_life_as_often_as_its_controller_wants() -> None:
    written, now = Written(), [100.0]
    answers = StatusReporter(written, clock=lambda: now[0])  # type: ignore[arg-type]
    answers.begin("n")
    answers.alive()
    answers.set_parameters(replace(DEFAULTS, heartbeat_ms=1_000))
    answers.alive()
    now[0] += 0.9
    answers.alive()
    assert len(written.responses) == 2, "at once under the new value, and not before its time"
    now[0] += 0.1
    answers.alive()
    assert len(written.responses) == 3


def test_it_lives_while_the_thread_that_hears_commands_waits(monkeypatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.001)
    written = Written(failing=2)
    answers = StatusReporter(written, nonce="n")  # type: ignore[arg-type]
    with heartbeat.pulse(answers):
        assert written.lives.wait(60), "nobody tells, and brokers failed twice"


def test_the_condition_of_a_source_is_reported_by_its_owner(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    market = Market(monkeypatch, 1)
    market.views()
    replica = Replica(market.world, "a", tmp_path)
    settle(market, replica)
    written = Written()
    answers = StatusReporter(written, nonce="n")  # type: ignore[arg-type]

    def told(*, is_owner: bool, obstacle: str = "") -> dict[str, str]:
        replica.scheduler.own(is_owner=is_owner, obstacle=obstacle)
        written.responses.clear()
        answers.tell(replica.scheduler, ())
        said = [response for response in written.responses if isinstance(response, Status)]
        return {status.id: status.message or status.state for status in said}

    binding = ("orders", "people")
    running, standby = dict.fromkeys(binding, "running"), dict.fromkeys(binding, "standby")
    assert told(is_owner=False) == {**standby, **dict.fromkeys(VIEWS, "running")}
    assert told(is_owner=True) == running
    assert told(is_owner=False) == standby
    assert told(is_owner=True) == running
    assert told(is_owner=False, obstacle="no right") == dict.fromkeys(binding, "no right")


def test_what_was_not_stepped_is_looked_at_once_a_second(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    market = Market(monkeypatch, 1)
    market.views()
    replica = Replica(market.world, "a", tmp_path)
    settle(market, replica)
    looked_at: list[CollectionId] = []
    condition = status_reports.condition

    def counted(flow: Dataflow, *rest: Any, **more: Any) -> Status:
        looked_at.append(flow.id)
        return condition(flow, *rest, **more)

    monkeypatch.setattr(status_reports, "condition", counted)
    now = [100.0]
    answers = StatusReporter(Written(), nonce="n", clock=lambda: now[0])  # type: ignore[arg-type]

    def looks() -> set[str]:
        looked_at.clear()
        answers.tell(replica.scheduler, ())
        return set(looked_at)

    assert looks() == set(replica.scheduler.flows)
    assert looks() == set()
    some = next(iter(replica.scheduler.flows.values()))
    replica.scheduler.tell(some, Failed(Failure("no such function", Kind.FAILED)))
    assert looks() == {some.id}
    now[0] += status_reports.LOOK_EVERY_S
    assert looks() == set(replica.scheduler.flows)
    answers.begin("m")
    assert looks() == set(replica.scheduler.flows)


def test_no_frontier_is_before_the_as_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """State may begin at an older checkpoint: then it reaches no time that can be read."""
    market = Market(monkeypatch, 1)
    market.views()
    replica = Replica(market.world, "a", tmp_path)
    settle(market, replica)
    as_of = frontier(market.world.now + 10)
    for name in VIEWS:
        replica.scheduler.table.compact(CollectionId(name), as_of)
    written = Written()
    answers = StatusReporter(written, nonce="n")  # type: ignore[arg-type]
    answers.tell(replica.scheduler, ())
    moved = [response for response in written.responses if isinstance(response, Frontiers)]
    views = {
        answer.id: (answer.write, answer.output, answer.input)
        for answer in moved
        if answer.id in VIEWS
    }
    assert views == dict.fromkeys(VIEWS, (as_of, as_of, as_of))


def test_a_view_that_waits_says_how_far_it_has_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What others have appended is its input, before it is computed."""
    market = Market(monkeypatch, 1)
    market.views()
    replica = Replica(market.world, "a", tmp_path)
    settle(market, replica)
    now, written = [100.0], Written()
    answers = StatusReporter(written, nonce="n", clock=lambda: now[0])  # type: ignore[arg-type]

    def moved() -> dict[str, Frontiers]:
        written.responses.clear()
        now[0] += DEFAULTS.frontiers_ms / 1000
        answers.tell(replica.scheduler, ())
        said = [one for one in written.responses if isinstance(one, Frontiers)]
        return {str(frontiers.id): frontiers for frontiers in said}

    first = moved()
    assert all(first[name].input is None for name in ("orders", "people"))
    reached = {name: first[name].output for name in VIEWS}
    market.produce(9)
    settle(market, Replica(market.world, "b", tmp_path / "b"))
    replica.sync()
    later = moved()
    for name in VIEWS:
        before, after = reached[name], later[name].input
        assert later[name].output is None, "another replica has computed it"
        assert before is not None
        assert after is not None
        assert before.strictly_precedes(after), name
