"""What a replica reports of the work and the state of its dataflows."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from streams.compute.activity import DataflowActivity, ReplicaActivity, ReplicaMemory
from streams.compute.protocol import Response
from streams.ids import CollectionId
from streams.replica.driver import activity_reports
from streams.replica.driver.activity_reports import (
    EVERY_S,
    MEMORY_EVERY_S,
    NO_MEMORY,
    ActivityReporter,
    memory_of_this_process,
)
from streams.replica.driver.arrangement_sizes import ArrangementSize, arrangement_sizes
from streams.replica.driver.batch_timings import Timings
from streams.replica.driver.commit import Committer
from streams.replica.driver.micro_batch import MicroBatch
from streams.replica.tasks.report import Result
from tests.support.market import VIEWS, Market, settle
from tests.support.sparkless import Replica

INDEX = CollectionId("u99")

Commit = Callable[[Committer, MicroBatch, Mapping[CollectionId, Result]], float]


class Reporting:
    """A replica without Spark over some views, and what it reports."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self.market = Market(monkeypatch, 3)
        self.market.views()
        self.replica = Replica(self.market.world, "a", directory)
        self.timings = Timings(None)
        self.now = 100.0
        self.memory = NO_MEMORY
        self.indexes: dict[CollectionId, ArrangementSize] = {}
        committer = self.replica.committer
        monkeypatch.setattr(type(committer), "commit", self._noted(type(committer).commit))
        self.reporter = ActivityReporter(
            self.replica.scheduler,
            self.timings,
            lambda: dict(self.indexes),
            lambda: self.now,
            lambda: self.memory,
        )

    def _noted(self, commit: Commit) -> Commit:
        def noted(
            committer: Committer, batch: MicroBatch, results: Mapping[CollectionId, Result]
        ) -> float:
            seconds = commit(committer, batch, results)
            self.timings.note(batch, results, (batch.decided,) * 3, seconds)
            return seconds

        return noted

    def work(self, messages: int) -> None:
        settle(self.market, self.replica)
        self.market.produce(messages)
        settle(self.market, self.replica)

    def report(self) -> list[Response]:
        self.now += EVERY_S
        return list(self.reporter.responses())

    def dataflows(self) -> dict[CollectionId, DataflowActivity]:
        activities = [said for said in self.report() if isinstance(said, DataflowActivity)]
        return {said.id: said for said in activities}


@pytest.fixture
def reporting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Reporting:
    return Reporting(monkeypatch, tmp_path)


def test_each_operator_is_reported_with_its_work_and_its_state(reporting: Reporting) -> None:
    reporting.work(5)
    told = reporting.dataflows()
    flows = reporting.replica.scheduler.flows
    assert told.keys() == flows.keys()
    for id_, activity in told.items():
        plan = flows[id_].plan
        assert all(operator.number < len(plan.nodes) for operator in activity.operators)
        assert activity.micros >= sum(o.done.micros for o in activity.operators) > 0
        assert activity.batches >= 1
    rows = {
        id_: sum(operator.rows for operator in activity.operators)
        for id_, activity in told.items()
    }
    assert any(rows.values())
    for id_, flow in flows.items():
        runs = flow.own.runs.values() if flow.own else ()
        there = sum(int(run[1]) for by in runs for names in by.values() for run in names)
        assert rows[id_] == there
    assert any(o.done.rows_in and o.done.rows_out for a in told.values() for o in a.operators)


def test_arrangements_have_all_bytes_of_their_files(reporting: Reporting) -> None:
    reporting.work(5)
    flows = reporting.replica.scheduler.flows.values()
    on_disk = reporting.replica.scheduler.store.run_sizes()
    sizes = arrangement_sizes(flows, flows, on_disk)
    named = {
        str(run[0]).partition(".")[0]
        for flow in flows
        if flow.own
        for by in flow.own.runs.values()
        for names in by.values()
        for run in names
    }
    total = sum(size.bytes for by_operator in sizes.values() for size in by_operator.values())
    assert 0 < total <= sum(on_disk[name] for name in named)
    one = next(flow for flow in flows if sizes[flow.id])
    assert arrangement_sizes(flows, [one], on_disk) == {one.id: sizes[one.id]}


def test_what_is_idle_is_reported_once(reporting: Reporting) -> None:
    reporting.work(5)
    assert reporting.report()
    settle(reporting.market, reporting.replica)
    assert not reporting.report()
    reporting.reporter.repeat()
    assert reporting.dataflows().keys() == reporting.replica.scheduler.flows.keys()
    assert not reporting.report()


def test_a_report_says_what_is_recent(reporting: Reporting) -> None:
    reporting.work(5)
    before = reporting.dataflows()
    reporting.work(7)
    after = reporting.dataflows()
    assert after
    for id_, activity in after.items():
        assert activity.recent_batches == activity.batches - before[id_].batches > 0
        assert activity.recent_ms == EVERY_S * 1000
        earlier = {operator.number: operator for operator in before[id_].operators}
        for operator in activity.operators:
            old = earlier[operator.number]
            assert operator.recent == operator.done.less(old.done)


def test_reports_come_at_a_limited_rate(reporting: Reporting, monkeypatch) -> None:
    monkeypatch.setattr(activity_reports, "MOST_REPORTED", 2)
    reporting.work(5)
    assert len(reporting.replica.scheduler.flows) > len(VIEWS) > 2
    told = list[CollectionId]()
    while activities := reporting.dataflows():
        assert len(activities) <= 2
        told += activities
        assert not reporting.reporter.responses(), "not before some seconds have passed"
    assert sorted(told) == sorted(reporting.replica.scheduler.flows)


def test_what_was_dropped_is_forgotten(reporting: Reporting) -> None:
    reporting.work(5)
    reporting.report()
    table = reporting.replica.scheduler.table
    flow = next(iter(table.running.values()))
    assert table.drop(flow.id) is not None
    reporting.report()
    assert flow.id not in reporting.reporter.reported
    assert flow.id not in reporting.timings.work.of(table.running.values())


def test_indexes_and_lanes_are_reported_when_they_change(reporting: Reporting) -> None:
    reporting.indexes[INDEX] = ArrangementSize(3, 96)
    activity = reporting.dataflows()[INDEX]
    assert [(o.number, o.rows, o.bytes) for o in activity.operators] == [(1, 3, 96)]
    assert not reporting.report()
    reporting.work(5)
    lanes = [said for said in reporting.report() if isinstance(said, ReplicaActivity)]
    assert [lane.lane for lane in lanes[0].lanes] == sorted(reporting.timings.totals)
    assert all(lane.batches for lane in lanes[0].lanes)


def test_memory_is_reported_when_it_is_another_by_a_sixteenth(reporting: Reporting) -> None:
    def told() -> list[int]:
        reporting.now += MEMORY_EVERY_S
        return [said.bytes for said in reporting.report() if isinstance(said, ReplicaMemory)]

    reporting.memory = ReplicaMemory(800, 3)
    assert told() == [], "it has just begun"
    reporting.memory = NO_MEMORY
    assert told() == [], "nothing can be measured"
    for measured, expected in ((1600, [1600]), (1700, []), (1500, []), (1701, [1701])):
        reporting.memory = ReplicaMemory(measured, 3)
        assert told() == expected
    reporting.memory = ReplicaMemory(100, 3)
    assert reporting.report() == [], "it is not time yet"
    assert told() == [100]
    reporting.reporter.repeat()
    assert told() == []
    assert told() == [100], "a new iteration has not heard it"


def test_the_memory_of_a_process_is_that_of_its_children_too() -> None:
    alone = memory_of_this_process()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE):
        both = memory_of_this_process()
    assert alone.bytes > 0
    assert both.processes == alone.processes + 1
