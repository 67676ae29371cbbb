"""How a lane starts its query, and gives it up, without Spark."""

from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

import pytest
from pyspark.errors import PySparkException

from streams.errors import Indeterminate
from streams.replica.driver import lane as lane_module
from streams.replica.driver.lane import Lane
from streams.replica.driver.watchdog import LOOK_S, SILENT_S, QuerySilence
from tests.support.market import Market
from tests.support.sparkless import Replica


def test_rule_21_each_start_has_a_checkpoint_directory_of_its_own(tmp_path: Path) -> None:
    """From an earlier one Spark would repeat what it had begun, of whatever process."""
    scheduler = MagicMock(stopping=True, buckets=1)
    scheduler.store.directory = tmp_path
    scheduler.lanes = {"steady": SimpleNamespace(questions=0)}
    paths: list[Path] = []
    for _process in range(2):
        session = MagicMock()
        lane = Lane("steady", session, scheduler, MagicMock(), tmp_path / "door", MagicMock())
        frame = session.readStream.format.return_value.options.return_value.load.return_value
        writer = frame.writeStream.foreachBatch.return_value.queryName.return_value
        for _start in range(2):
            lane.start()
            paths.append(Path(writer.options.call_args.kwargs["checkpointLocation"]))
            paths[-1].mkdir(parents=True)
    assert len(set(paths)) == 4
    assert [path.exists() for path in paths] == [False, True, False, True]


class Bench:
    """A lane whose Spark does nothing, over a replica with a micro-batch to do."""

    def __init__(self, market: Market, replica: Replica) -> None:
        self.market, self.replica, self.now = market, replica, 0.0
        self.session = MagicMock()
        self.lane = Lane(
            "ingest",
            self.session,
            replica.scheduler,
            MagicMock(),
            replica.state / "door",
            MagicMock(),
            clock=lambda: self.now,
        )
        self.started: list[MagicMock] = []
        source = self.session.readStream.format.return_value.options.return_value
        writer = source.load.return_value.writeStream.foreachBatch.return_value
        start = writer.queryName.return_value.options.return_value.start
        start.side_effect = self._started
        self.lane.tend()

    def _started(self) -> MagicMock:
        self.started.append(MagicMock(isActive=True))
        self.ask()
        return self.started[-1]

    def ask(self) -> None:
        """Let Spark ask for work, of which there is none."""
        self.replica.scheduler.lanes["ingest"].questions += 1

    def give_out(self) -> None:
        """Let Spark take a micro-batch."""
        self.market.world.now += 1000
        self.market.produce(5)
        self.replica.sync()
        self.replica.scheduler.answer({"ask": "latest", "lane": "ingest", "start": {}})
        assert self.replica.scheduler.current("ingest") is not None

    def pass_by(self, seconds: float) -> None:
        """Let time pass as the keeper sees it."""
        for _ in range(round(seconds * 2)):
            self.now += 0.5
            self.lane.tend()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    market = Market(monkeypatch, 3)
    replica = Replica(market.world, "a", tmp_path)
    replica.settle()
    return Bench(market, replica)


def test_a_micro_batch_that_spark_never_begins_is_a_hung_one(bench: Bench) -> None:
    bench.give_out()
    scheduler = bench.replica.scheduler
    bench.pass_by(SILENT_S - 1)
    assert len(bench.started) == 1
    assert not bench.started[0].stop.called
    bench.pass_by(3)
    bench.started[0].stop.assert_called_once()
    assert len(bench.started) == 2
    assert scheduler.current("ingest") is None
    troubled = [flow for flow in scheduler.flows.values() if flow.trouble is not None]
    assert {str(flow.id) for flow in troubled} >= {"orders", "people"}
    for flow in troubled:
        assert flow.trouble is not None
        assert "was cancelled: Spark did not begin it in 60 s" in flow.trouble.message
        assert flow.isolation.steps, "it is tried alone"
    assert scheduler.defect is None


def test_a_lane_that_asks_for_no_work_is_started_again(bench: Bench) -> None:
    bench.ask()
    bench.pass_by(SILENT_S - 1)
    bench.ask()
    bench.pass_by(SILENT_S - 1)
    assert len(bench.started) == 1
    bench.pass_by(3)
    assert len(bench.started) == 2
    flows = bench.replica.scheduler.flows.values()
    assert all(flow.trouble is None for flow in flows), "no dataflow had to do with it"
    bench.ask()
    bench.pass_by(SILENT_S + 3)
    assert len(bench.started) == 3, "it was heard in between"
    assert bench.replica.scheduler.defect is None


def test_a_lane_that_stays_silent_needs_a_new_process(bench: Bench) -> None:
    bench.ask = lambda: None  # type: ignore[method-assign]
    with patch.object(lane_module, "SOURCE_TIMEOUT_S", 0):
        bench.pass_by(2 * SILENT_S + 6)
    assert isinstance(bench.replica.scheduler.defect, Indeterminate)
    assert "did not call, even after a restart" in str(bench.replica.scheduler.defect)


def test_a_silent_query_that_cannot_be_stopped_needs_a_new_process(bench: Bench) -> None:
    bench.started[0].stop.side_effect = PySparkException("TimeoutException")
    bench.pass_by(SILENT_S + 3)
    assert "could not be stopped" in str(bench.replica.scheduler.defect)
    assert len(bench.started) == 1


def test_a_micro_batch_at_work_is_not_silent(bench: Bench) -> None:
    bench.give_out()
    bench.lane.runs = True
    bench.pass_by(10 * SILENT_S)
    assert len(bench.started) == 1
    bench.lane.runs = False
    bench.replica.scheduler.abandon("ingest", None)
    bench.lane.runs = True  # the query's first, empty micro-batch, which starts workers
    bench.pass_by(SILENT_S + 3)
    assert len(bench.started) == 2


def test_a_process_that_stood_still_was_not_silent() -> None:
    silence = QuerySilence()
    assert not silence.look(0.0, 1, is_at_work=False)
    assert not silence.look(1.0, 1, is_at_work=False)
    assert not silence.look(10_000.0, 1, is_at_work=False)
    assert silence.seconds <= 1 + LOOK_S


def test_a_micro_batch_that_was_given_up_is_neither_committed_nor_released_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark may come back with it while its dataflows are in another one."""
    bench.give_out()
    scheduler, committer = bench.replica.scheduler, MagicMock()
    first = scheduler.current("ingest")
    assert first is not None

    def collect() -> list[object]:
        scheduler.abandon("ingest", None)
        bench.give_out()
        return []

    rounds = MagicMock()
    rounds.after.return_value.collect.side_effect = collect
    monkeypatch.setattr(bench.lane, "rounds", rounds)
    monkeypatch.setattr(bench.lane, "committer", committer)
    bench.lane._step(MagicMock())
    committer.commit.assert_not_called()
    second = scheduler.current("ingest")
    assert second is not None
    assert second is not first
    scheduler.finish(first)
    assert scheduler.current("ingest") is second
    assert all(scheduler.present(flow).busy for flow in second.flows())
