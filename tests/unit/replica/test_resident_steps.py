"""What goes to a resident task, and what becomes of it when the task fails, without Spark."""

from dataclasses import replace
from pathlib import Path

import pytest

from streams.errors import Indeterminate
from streams.replica.driver import resident_steps
from streams.replica.driver.fast_path import MOST_MS, Way
from streams.replica.driver.micro_batch import MicroBatch
from tests.support.market import Market
from tests.support.resident_tasks import End, FakeTask, ResidentReplica
from tests.support.sparkless import Replica


class Bench(ResidentReplica):
    """A replica with a resident task, all caught up, and new messages now and then."""

    market: Market

    def feed(self) -> None:
        """Let messages come, and time pass."""
        self.market.world.now += 1000
        self.market.produce(5)
        self.replica.sync()
        self.cost(1.0)

    def cost(self, milliseconds: float) -> None:
        """Let all dataflows have taken so long when they were last stepped."""
        running = self.replica.scheduler.table.running
        for id_, flow in running.items():
            running[id_] = replace(flow, cost_ms=milliseconds)

    def take(self) -> MicroBatch:
        batch = self.steps.take(self.turn)
        assert batch is not None
        return batch

    def ask(self) -> MicroBatch | None:
        """Let the query of the ingest lane ask for work; return what it has then."""
        self.replica.scheduler.answer({"ask": "latest", "lane": "ingest", "start": {}})
        return self.replica.scheduler.current("ingest")

    def ran(self) -> int:
        """The micro-batches that the task has run and committed."""
        totals = self.steps.timings.totals.get("ingest:resident")
        return 0 if totals is None else totals.batches


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    market = Market(monkeypatch, 3)
    replica = Replica(market.world, "a", tmp_path)
    replica.settle()
    bench = Bench(replica, monkeypatch)
    bench.market = market
    return bench


def test_a_resident_task_runs_and_commits_a_micro_batch(bench: Bench) -> None:
    bench.feed()
    before = bench.market.world.upper("orders")
    batch = bench.take()
    scheduler = bench.replica.scheduler
    assert (batch.lane, batch.way) == ("ingest", Way.RESIDENT)
    assert resident_steps.busy(scheduler) == ["ingest"]
    assert all(scheduler.present(flow).busy for flow in batch.flows())
    assert bench.steps.run(FakeTask(str(bench.replica.state)), batch)  # type: ignore[arg-type]
    bench.market.world.shards.sync()
    assert bench.market.world.upper("orders") > before
    assert resident_steps.busy(scheduler) == []
    assert not any(scheduler.present(flow).busy for flow in batch.flows())
    assert scheduler.lanes["ingest"].current is None
    assert bench.ran() == 1
    assert scheduler.fast_path.standings == {}


def test_the_query_does_not_get_what_a_resident_task_has(bench: Bench) -> None:
    bench.feed()
    batch = bench.take()
    assert bench.ask() is None
    scheduler = bench.replica.scheduler
    assert scheduler.answer({"ask": "tasks", "lane": "ingest", "seq": batch.seq}) == ["", "", 0]
    scheduler.abandon("ingest", None)  # the query was restarted
    assert scheduler.lanes["ingest"].current is batch


def test_a_query_leaves_the_plan_to_a_task_that_is_idle(bench: Bench) -> None:
    assert bench.steps.take(bench.turn) is None
    bench.feed()
    assert bench.ask() is None
    assert bench.replica.scheduler.lanes["ingest"].current is None
    assert bench.step()


def test_a_micro_batch_that_a_query_planned_waits_for_the_task_that_is_busy(
    bench: Bench,
) -> None:
    bench.feed()
    assert bench.ask() is None
    planned = bench.replica.scheduler.lanes["ingest"].current
    assert planned is not None
    assert not planned.is_given
    assert bench.take() is planned


def test_what_is_not_small_goes_to_the_query(bench: Bench) -> None:
    bench.feed()
    bench.cost(MOST_MS + 1)
    rung = bench.replica.scheduler.wakeup.count
    assert bench.steps.take(bench.turn) is None
    assert bench.replica.scheduler.wakeup.count > rung, "the query is told"
    heard = bench.replica.scheduler.wakeup.count
    assert bench.steps.take(bench.turn) is None
    assert bench.replica.scheduler.wakeup.count == heard, "once"
    batch = bench.ask()
    assert batch is not None
    assert batch.way is Way.QUERY
    assert bench.replica.step("ingest")


@pytest.mark.parametrize(
    ("end", "goes_on"),
    [
        ("failed", True),
        ("late", False),
        ("died", False),
        ("never ran", False),
        ("nonsense", False),
    ],
)
def test_what_a_task_fails_at_goes_to_the_query_as_it_is(
    bench: Bench, end: End, goes_on: bool
) -> None:
    bench.feed()
    batch = bench.take()
    task = FakeTask(str(bench.replica.state), end)
    assert bench.steps.run(task, batch) is goes_on  # type: ignore[arg-type]
    scheduler = bench.replica.scheduler
    assert bench.steps.take(bench.turn) is None, "it is the query's"
    assert all(flow.trouble is None for flow in scheduler.flows.values())
    assert set(scheduler.fast_path.standings) == {unit.flow.id for unit in batch.units}
    assert bench.ask() is batch
    assert bench.replica.step("ingest")
    bench.market.world.now += 40_000
    bench.leave()
    bench.replica.settle()
    bench.market.world.shards.sync()
    assert bench.ran() == 0


def test_a_dataflow_that_was_barred_comes_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.feed()
    bench.step("late")
    bench.replica.step("ingest")
    bench.feed()
    assert not bench.step()
    bench.replica.step("ingest")
    monkeypatch.setattr("streams.replica.driver.fast_path.FIRST_BAR_S", 0.0)
    bench.feed()
    assert bench.step()


def test_what_waits_goes_to_the_query_when_the_last_task_leaves(bench: Bench) -> None:
    bench.feed()
    assert bench.ask() is None
    bench.leave()
    batch = bench.ask()
    assert batch is not None
    assert batch.way is Way.QUERY
    assert bench.replica.scheduler.fast_path.idle == 0


def test_a_commit_that_fails_gives_the_micro_batch_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.feed()
    batch = bench.take()

    def fail(*_: object) -> float:
        raise Indeterminate("no broker")

    monkeypatch.setattr(bench.steps.committer.__class__, "commit", fail)
    assert bench.steps.run(FakeTask(str(bench.replica.state)), batch)  # type: ignore[arg-type]
    scheduler = bench.replica.scheduler
    assert scheduler.lanes["ingest"].current is None
    troubles = [flow.trouble for flow in scheduler.flows.values() if flow.trouble is not None]
    assert [trouble.message for trouble in troubles] == ["no broker"] * len(batch.units)


def test_the_lanes_take_turns(bench: Bench) -> None:
    """One that always has work must not have the task for itself."""
    assert list(bench.turn.lanes) == ["ingest", "steady"]
    bench.feed()
    bench.step()
    assert list(bench.turn.lanes) == ["steady", "ingest"]


def test_a_query_that_begins_with_nothing_does_not_take_what_is_not_its_own(
    bench: Bench,
) -> None:
    """Its first micro-batch is empty: to run another one over that frame would lose it."""
    bench.feed()
    bench.step("late")
    scheduler = bench.replica.scheduler
    assert scheduler.lanes["ingest"].current is not None
    assert scheduler.current("ingest") is None, "the query has not asked for it"
    assert bench.ask() is not None


class Closing(FakeTask):
    """A task that is there for a number of looks."""

    looks = 3

    def is_open(self) -> bool:
        self.looks -= 1
        return self.looks >= 0


def test_serving_ends_with_the_connection_and_counts_it(bench: Bench) -> None:
    bench.replica.scheduler.fast_path.connected = 0
    bench.feed()
    bench.steps.serve(Closing(str(bench.replica.state)))  # type: ignore[arg-type]
    assert bench.ran() >= 1
    path = bench.replica.scheduler.fast_path
    assert (path.connected, path.idle) == (0, 0)
    assert bench.replica.scheduler.defect is None


def test_a_defect_in_serving_ends_the_process(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(bench.steps.__class__, "take", fail)
    bench.steps.serve(Closing(str(bench.replica.state)))  # type: ignore[arg-type]
    assert isinstance(bench.replica.scheduler.defect, AssertionError)
