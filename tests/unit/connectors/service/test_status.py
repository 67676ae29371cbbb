"""What is said of a materialization, and when it is written."""

from dataclasses import replace

import pytest

from connectors.runtime.runner import BackfillProgress, Status
from connectors.service.status import Rate, is_due, reported
from schemas.materializations import HEARTBEAT_S, State
from streams.ids import Timestamp

RUNNING = Status(
    task="shop",
    state="running",
    time=Timestamp(90),
    upper=Timestamp(100),
    waiting=3,
    rows=7,
    commits=2,
    committed_ms=55,
    errors=1,
    stalls={"t": "why"},
    dead_letters={"t": 3},
    left_out={"t": 1},
)


def test_a_run_goes_on_counting_where_the_one_before_was() -> None:
    begun = State(id="m1", rows=100, commits=10, errors=4, dead_letters={"t": 2, "u": 1})
    state = reported(State(id="m1"), RUNNING, begun)
    assert (state.rows, state.commits, state.errors) == (107, 12, 5)
    assert (state.behind_ms, state.behind_rows, state.time) == (9, 3, 90)
    assert state.stalls == {"t": "why"}
    assert state.dead_letters == {"t": 5, "u": 1}
    assert state.left_out == {"t": 1}


def test_why_it_failed_is_said_until_it_runs_again() -> None:
    failed = State(
        id="m1", state="failed", message="no such host", time=Timestamp(4), left_out={"t": 7}
    )
    starting = reported(failed, Status(task="shop", stalls={}), failed)
    assert starting.left_out == {"t": 7}, "the endpoint has not said otherwise"
    assert (starting.state, starting.message, starting.time) == ("failed", "no such host", 4)
    running = reported(starting, RUNNING, failed)
    assert (running.state, running.message) == ("running", "")


def test_the_first_contents_are_a_backfill() -> None:
    new = State(id="m1")
    state = reported(
        new, replace(RUNNING, time=None, backfill=BackfillProgress(3, 8, "key ranges")), new
    )
    assert state.state == "backfilling"
    assert state.backfill == {"done": 3, "total": 8, "unit": "key ranges"}
    assert State.of(state.row()) == state
    assert reported(state, RUNNING, new).backfill is None


def test_rates_are_of_the_last_seconds() -> None:
    rate = Rate()
    assert rate.per_s == 0
    for second in range(30):
        rate = rate.at(second * 1000, min(second, 20) * 50)
    assert rate.per_s == 5, "half a second of the last ten had 50 rows: 50 rows in 10 s"
    assert len(rate.points) == 11
    for second in range(30, 60):
        rate = rate.at(second * 1000, 1000)
    assert rate.per_s == 0


@pytest.mark.parametrize(
    ("after", "since_ms", "expected"),
    [
        (State(id="m1"), 10, False),
        (State(id="m1"), HEARTBEAT_S * 1000, True),
        (State(id="m1", rows=1), 10, False),
        (State(id="m1", rows=1), 1000, True),
        (State(id="m1", state="failed"), 0, True),
        (State(id="m1", stalls={"t": "why"}), 0, True),
        (State(id="m2"), 0, True),
    ],
)
def test_news_are_written_at_once_and_numbers_soon(
    after: State, since_ms: float, expected: bool
) -> None:
    before = [State(id="m1")]
    assert is_due(before, [after], since_ms=since_ms, is_new=False) is expected
    assert is_due(before, before, since_ms=0, is_new=True)
