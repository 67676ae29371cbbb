"""What a replica measures of itself: state, failures, restarts, times of micro-batches."""

import json
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from streams.replica.driver.batch_timings import LaneTotals, Timings
from streams.replica.driver.dataflow_table import DataflowTable
from streams.replica.driver.events import Failed
from streams.replica.driver.fast_path import Way
from streams.replica.driver.measures import files_of, measure
from streams.replica.driver.retry_policy import Failure
from streams.replica.tasks.report import Result
from tests.support.market import Market
from tests.support.sparkless import Replica
from tests.unit.replica.test_dataflow import new


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Replica:
    market = Market(monkeypatch, 3)
    replica = Replica(market.world, "a", tmp_path)
    replica.settle()
    market.world.now += 1000
    market.produce(5)
    replica.settle()
    return replica


def test_state_is_counted_as_its_files_are(replica: Replica) -> None:
    scheduler = replica.scheduler
    measures = measure(scheduler, Timings(None))
    runs = scheduler.store.directory / "runs"
    assert measures.state_bytes == sum(path.stat().st_size for path in runs.iterdir())
    by_id = {flow.id: flow for flow in measures.dataflows}
    assert by_id.keys() == scheduler.flows.keys()
    for id_, flow in scheduler.flows.items():
        files = [runs / name for name in files_of(flow)]
        assert by_id[id_].state_bytes == sum(path.stat().st_size for path in files)
        assert by_id[id_].phase == "running"
        assert not by_id[id_].is_failing
    assert any(flow.state_bytes for flow in measures.dataflows)
    assert any(flow.arrangement_rows for flow in measures.dataflows)
    assert all(flow.arrangement_bytes <= flow.state_bytes for flow in measures.dataflows)
    assert 0 < measures.free_bytes <= measures.disk_bytes


def test_failures_and_restarts_are_counted_until_the_dataflow_is_dropped() -> None:
    table = DataflowTable(MagicMock(), MagicMock(), lambda: 1_000)
    flow = new(is_source=True)
    table.add(flow)
    for _ in range(2):
        table.tell(flow, Failed(Failure("boom")))
    assert table.failures == {flow.id: 2}
    assert table.restarts == {}
    assert table.drop(flow.id) is not None
    assert table.failures == table.restarts == {}


def test_micro_batches_are_summed_by_lane(tmp_path: Path) -> None:
    batch = MagicMock(
        lane="steady",
        way=Way.RESIDENT,
        counted_as="steady:resident",
        seq=1,
        tasks=2,
        decided=1.0,
        asked=0.5,
        began_at=0.0,
        depth=1,
        units=(),
    )
    results = {"u1": Result(rows_in=30, milliseconds=4.0)}
    for path in (None, tmp_path / "timings.jsonl"):
        timings = Timings(path)
        for _ in range(2):
            timings.note(batch, results, (1.25, 2.25, 2.75), 0.1)  # type: ignore[arg-type]
        assert timings.totals == {"steady:resident": LaneTotals(2, 60, 0.5, 2.0, 1.0)}
    lines = [json.loads(line) for line in (tmp_path / "timings.jsonl").read_text().splitlines()]
    assert [(line["lane"], line["way"]) for line in lines] == [("steady", "resident")] * 2
