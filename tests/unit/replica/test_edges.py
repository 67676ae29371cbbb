"""The small parts at the edges: clocks, bells, doors, death, and what a status says."""

import gc
import os
import signal
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from streams.compute.description import DataflowDescription
from streams.ids import CollectionId, Timestamp
from streams.plan import physical
from streams.progress import frontier
from streams.replica.crash_injection import Crash
from streams.replica.driver.clock_skew import FORGET_MS, Skew
from streams.replica.driver.dataflow import Dataflow, Phase
from streams.replica.driver.dataflow_state import OwnState
from streams.replica.driver.retry_policy import FailureState
from streams.replica.driver.status_reports import condition
from streams.replica.driver.wakeup import Wakeup
from streams.replica.spark.scheduler_rpc import SchedulerServer, _connection, ask
from streams.replica.zygote_client import STARTED_BY


@pytest.mark.parametrize(
    ("before", "append", "after", "skew"),
    [
        (100, 105, 110, 0),  # in between: nothing is known to be wrong
        (100, 50, 110, 50),  # ours is ahead by at least 50
        (100, 200, 110, -90),
        (100, 9_000, 20_000, 0),  # a slow answer is no wrong clock
    ],
)
def test_the_least_skew_that_explains_an_append(
    before: int, append: int, after: int, skew: int
) -> None:
    measured = Skew()
    measured.measure(before, append, after)
    assert measured.known(after) == skew
    assert measured.known(before + FORGET_MS) is None


def test_a_clock_that_was_not_measured_is_not_right() -> None:
    assert Skew().known(0) is None


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_a_clock_that_was_set_while_it_was_measured_is_not_known(jump_ms: int) -> None:
    measured, set_ms = Skew(), 5_000_000 + jump_ms
    measured.measure(5_000_000, 5_000_000, set_ms)
    assert measured.known(set_ms) is None


def test_a_bell_rung_before_the_wait_is_heard() -> None:
    wakeup = Wakeup()
    count = wakeup.count
    wakeup.ring()
    assert wakeup.wait(count, 10_000) == count + 1
    assert wakeup.wait(count + 1, 1) == count + 1


def test_a_door_answers_each_question() -> None:
    door = SchedulerServer(lambda question: {"twice": question["n"] * 2})
    try:
        answers = [ask(str(door.path), {"n": n}) for n in (1, 21)]
    finally:
        door.close()
    assert answers == [{"twice": 2}, {"twice": 42}]
    assert not door.path.exists()
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        _connection.cache_clear()
        gc.collect()
    assert [message for message in messages if message.category is ResourceWarning] == []


def test_a_point_kills_at_the_nth_time_over_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, _: killed.append(group))
    crashes = [Crash({"here": 3}, tmp_path, 77) for _ in range(2)]
    crashes[0]("here")
    crashes[1]("elsewhere")
    crashes[1]("here")
    assert killed == []
    crashes[0]("here")
    assert killed == [77, os.getpgrp()]
    crashes[0]("here")
    assert len(killed) == 2


@pytest.mark.parametrize(("suffix", "killed"), [("@worker", os.getpid()), ("@executor", 1234)])
def test_a_point_kills_a_worker_or_its_executor_alone(
    suffix: str, killed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *kill: kills.append(kill))
    monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("a group was killed"))
    monkeypatch.setenv(STARTED_BY, "1234")
    crash = Crash({f"here{suffix}": 2}, tmp_path, 77)
    crash("here")
    assert kills == []
    crash("here")
    assert kills == [(killed, signal.SIGKILL)]


def flow(phase: Phase, own: int | None = None) -> Dataflow:
    described = DataflowDescription(
        export=CollectionId("u1"), kind="view", name="v", group="u1", columns=(),
        as_of=Timestamp(0),
    )  # fmt: skip
    state = None if own is None else OwnState("", frontier(own), {})
    plan = physical.Dataflow((), (), (), (), ())
    return Dataflow(described, plan, "p", "f", {}, phase=phase, own=state)


def test_a_condition_says_what_blocks() -> None:
    imports = (CollectionId("u7"), CollectionId("s3"))
    view = replace(flow(Phase.RUNNING, own=1_000), blocked_by=imports)
    assert condition(view, 5_000, Skew(), elapsed_ms=0).state == "running"
    reported = condition(view, 20_000, Skew(), elapsed_ms=0)
    assert (reported.state, reported.message) == ("stalled", "waits for s3, u7")


def test_a_condition_says_what_failed() -> None:
    view = replace(flow(Phase.RUNNING, own=1_000), trouble=FailureState("boom", 1, 0))
    reported = condition(view, 0, Skew(), elapsed_ms=0)
    assert (reported.state, reported.message) == ("failed", "boom")
    assert condition(flow(Phase.BUILDING), 0, Skew(), elapsed_ms=0).state == "hydrating"


def test_a_flow_in_trouble_waits_for_its_time() -> None:
    view = replace(flow(Phase.RUNNING), trouble=FailureState("boom", 1, 500))
    assert not view.is_ready(Phase.RUNNING, 499)
    assert view.is_ready(Phase.RUNNING, 500)
