"""Counts the work of each dataflow in committed micro-batches, by operator."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from streams.compute.activity import NO_WORK, WorkDone
from streams.ids import CollectionId
from streams.plan.physical import NodeId
from streams.replica.driver.dataflow import Dataflow
from streams.replica.driver.micro_batch import MicroBatch
from streams.replica.tasks.report import Result

HYDRATE = "hydrate"
"""The lane of builds."""


@dataclass(frozen=True, slots=True)
class DataflowWork:
    """The work of a dataflow since `began`, a time of the monotonic clock in seconds."""

    began: float
    plan: str
    batches: int = 0
    hydration_batches: int = 0
    micros: int = 0
    nodes: Mapping[NodeId, WorkDone] = field(default_factory=dict)

    def plus(self, result: Result, *, is_hydration: bool) -> "DataflowWork":
        """Return the work with that of one more micro-batch."""
        nodes = dict(self.nodes)
        for node, work in result.nodes.items():
            nodes[node] = nodes.get(node, NO_WORK).plus(WorkDone(*work))
        return DataflowWork(
            self.began,
            self.plan,
            self.batches + 1,
            self.hydration_batches + is_hydration,
            self.micros + round(result.milliseconds * 1000),
            nodes,
        )


@dataclass(slots=True)
class WorkCounts:
    """The work by dataflow. Thread-safe."""

    clock: Callable[[], float] = time.monotonic
    _work: dict[CollectionId, DataflowWork] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, batch: MicroBatch, results: Mapping[CollectionId, Result]) -> None:
        """Count a committed micro-batch."""
        with self._lock:
            for unit in batch.units:
                result = results.get(unit.flow.id)
                if result is not None:
                    before = self._of(unit.flow)
                    is_hydration = batch.lane == HYDRATE
                    after = before.plus(result, is_hydration=is_hydration)
                    self._work[unit.flow.id] = after

    def of(self, flows: Iterable[Dataflow]) -> Mapping[CollectionId, DataflowWork]:
        """Return the work of the dataflows that run, and forget that of others."""
        with self._lock:
            self._work = {flow.id: self._of(flow) for flow in flows}
            return dict(self._work)

    def _of(self, flow: Dataflow) -> DataflowWork:
        """Return a dataflow's work so far: none if it was of another plan."""
        before = self._work.get(flow.id)
        if before is None or before.plan != flow.plan_name:
            return DataflowWork(self.clock(), flow.plan_name)
        return before
