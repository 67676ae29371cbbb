"""Reports of work, state and memory: what a replica says of itself, for display.

A dataflow is reported when it has worked or its state is another one, every few seconds at
most, and no more than `MOST_REPORTED` of them at once: those first whose reports are oldest. So
dataflows that are idle cost nothing. Memory is measured now and then, and reported when it has
changed.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from streams import process_tree
from streams.compute.activity import (
    LONGEST_LANE,
    MOST_LANES,
    MOST_OPERATORS,
    NO_WORK,
    DataflowActivity,
    LaneActivity,
    OperatorActivity,
    ReplicaActivity,
    ReplicaMemory,
)
from streams.compute.protocol import Response
from streams.ids import CollectionId
from streams.plan.physical import NodeId
from streams.replica.driver.arrangement_sizes import (
    ArrangementSize,
    arrangement_sizes,
    state_of,
)
from streams.replica.driver.batch_timings import Timings
from streams.replica.driver.dataflow import Dataflow
from streams.replica.driver.scheduler import Scheduler
from streams.replica.driver.work_counts import DataflowWork
from streams.replica.tasks.descriptor import Runs

EVERY_S = 5.0

MEMORY_EVERY_S = 30.0

LEAST_CHANGE = 16
"""Memory is reported again when it has changed by one part of so many."""

MOST_REPORTED = 256

NO_LANES = ReplicaActivity(())

NO_MEMORY = ReplicaMemory(0, 0)

ARRANGE = 1
"""The operator of an index that keeps its rows."""

Sizes = Mapping[CollectionId, ArrangementSize]


@dataclass(frozen=True, slots=True)
class Reported:
    """What was reported last of a dataflow, when, and in which iteration."""

    iteration: int
    at: float
    work: DataflowWork
    state: Mapping[int, Runs]


def memory_of_this_process() -> ReplicaMemory:
    """Return the memory of this process and of what it started; 0 where it cannot be read."""
    return ReplicaMemory(*process_tree.resident(os.getpid()))


@dataclass(slots=True)
class ActivityReporter:
    """Makes the reports of a replica's dataflows, of its indexes, lanes and memory."""

    scheduler: Scheduler
    timings: Timings
    index_sizes: Callable[[], Sizes]
    clock: Callable[[], float] = time.monotonic
    measure: Callable[[], ReplicaMemory] = memory_of_this_process
    iteration: int = 0
    next_s: float = 0.0
    next_memory_s: float = 0.0
    reported: dict[CollectionId, Reported] = field(default_factory=dict)
    indexes: Sizes = field(default_factory=dict)
    lanes: ReplicaActivity = NO_LANES
    memory: ReplicaMemory = NO_MEMORY

    def repeat(self) -> None:
        """Report everything again: a new iteration has begun."""
        self.iteration += 1
        self.next_s = 0.0
        self.next_memory_s = 0.0
        self.indexes, self.lanes, self.memory = {}, NO_LANES, NO_MEMORY

    def responses(self) -> Sequence[Response]:
        """Return what is new to report, if it is time to."""
        now = self.clock()
        if now < self.next_s:
            return ()
        self.next_s = now + EVERY_S
        with self.scheduler.lock:
            flows = tuple(self.scheduler.flows.values())
        dataflows = self._dataflows(flows, now)
        return *dataflows, *self._indexes(), *self._lanes(), *self._memory(now)

    def _dataflows(self, flows: Sequence[Dataflow], now: float) -> list[DataflowActivity]:
        done = self.timings.work.of(flows)
        self.reported = {id_: report for id_, report in self.reported.items() if id_ in done}
        new = [flow for flow in flows if self._is_new(flow, done[flow.id])]
        if not new:
            return []
        new.sort(key=lambda flow: self._reported_at(flow.id))
        new = new[:MOST_REPORTED]
        sizes = arrangement_sizes(flows, new, self.scheduler.store.run_sizes())
        return [self._report(flow, done[flow.id], sizes[flow.id], now) for flow in new]

    def _is_new(self, flow: Dataflow, work: DataflowWork) -> bool:
        last = self.reported.get(flow.id)
        return (
            last is None
            or last.iteration != self.iteration
            or last.work != work
            or last.state is not state_of(flow)
        )

    def _reported_at(self, id_: CollectionId) -> float:
        last = self.reported.get(id_)
        return 0.0 if last is None else last.at

    def _report(
        self,
        flow: Dataflow,
        work: DataflowWork,
        sizes: Mapping[NodeId, ArrangementSize],
        now: float,
    ) -> DataflowActivity:
        last = self.reported.get(flow.id)
        if last is None or last.work.plan != work.plan:
            before, at = DataflowWork(work.began, work.plan), work.began
        else:
            before, at = last.work, last.at
        self.reported[flow.id] = Reported(self.iteration, now, work, state_of(flow))
        numbers = sorted(work.nodes.keys() | sizes.keys())[:MOST_OPERATORS]
        return DataflowActivity(
            flow.id,
            elapsed_ms=_ms(now - work.began),
            recent_ms=_ms(now - at),
            batches=work.batches,
            recent_batches=work.batches - before.batches,
            hydration_batches=work.hydration_batches,
            micros=work.micros,
            recent_micros=work.micros - before.micros,
            operators=tuple(_operator(number, work, before, sizes) for number in numbers),
        )

    def _indexes(self) -> list[DataflowActivity]:
        before, self.indexes = self.indexes, self.index_sizes()
        return [
            _index(id_, size) for id_, size in self.indexes.items() if before.get(id_) != size
        ]

    def _lanes(self) -> list[ReplicaActivity]:
        lanes = tuple(
            LaneActivity(
                name[:LONGEST_LANE],
                totals.batches,
                totals.rows,
                _ms(totals.plan_s),
                _ms(totals.tasks_s),
                _ms(totals.commit_s),
            )
            for name, totals in sorted(dict(self.timings.totals).items())[:MOST_LANES]
        )
        before, self.lanes = self.lanes, ReplicaActivity(lanes)
        return [self.lanes] if self.lanes != before else []

    def _memory(self, now: float) -> list[ReplicaMemory]:
        if not self.next_memory_s:  # the first look is part of a take-over, which waits for it
            self.next_memory_s = now + EVERY_S
        if now < self.next_memory_s:
            return []
        self.next_memory_s = now + MEMORY_EVERY_S
        memory = self.measure()
        if abs(memory.bytes - self.memory.bytes) * LEAST_CHANGE <= self.memory.bytes:
            return []
        self.memory = memory
        return [memory]


def _operator(
    number: NodeId,
    work: DataflowWork,
    before: DataflowWork,
    sizes: Mapping[NodeId, ArrangementSize],
) -> OperatorActivity:
    done = work.nodes.get(number, NO_WORK)
    recent = done.less(before.nodes.get(number, NO_WORK))
    size = sizes.get(number, ArrangementSize())
    return OperatorActivity(number, done, recent, size.rows, size.bytes)


def _index(id_: CollectionId, size: ArrangementSize) -> DataflowActivity:
    kept = OperatorActivity(ARRANGE, rows=size.rows, bytes=size.bytes)
    return DataflowActivity(id_, 0, 0, 0, 0, 0, 0, 0, (kept,))


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
