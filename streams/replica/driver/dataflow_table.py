"""The table of this replica's dataflows: steps their machines, and does the effects.

A dataflow in the table is a value (`streams.replica.driver.dataflow`): a reader of it keeps
what it was, and `tell` is the only way to another one. Everything here happens under the
table's lock, which is held for decisions too and never while waiting for Kafka, Spark, a file
of a task or the store, but to delete state that a restart must not find again.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import assert_never

from streams.ids import CollectionId
from streams.progress import Antichain
from streams.replica.driver.checkpoint_store import CheckpointStore
from streams.replica.driver.dataflow import Dataflow, Phase
from streams.replica.driver.events import (
    Compacted,
    Dropped,
    Effect,
    Event,
    Forget,
    ForgetBuild,
    ForgetRecords,
    Log,
    Ring,
)
from streams.replica.driver.wakeup import Wakeup

log = logging.getLogger(__name__)


@dataclass(slots=True)
class DataflowTable:
    """The dataflows that run, and those that are dropped while work of them is in progress."""

    store: CheckpointStore
    wakeup: Wakeup
    now_ms: Callable[[], int]
    lock: threading.RLock = field(default_factory=threading.RLock)
    running: dict[CollectionId, Dataflow] = field(default_factory=dict)
    leaving: dict[CollectionId, Dataflow] = field(default_factory=dict)
    failures: Counter[CollectionId] = field(default_factory=Counter)
    restarts: Counter[CollectionId] = field(default_factory=Counter)
    """How often running dataflows have failed, and been started again since."""
    needless: dict[CollectionId, list[ForgetRecords]] = field(default_factory=dict)
    """The records of dataflows that no restart needs, to be deleted while these are taken."""

    def of(self, flow: Dataflow) -> Dataflow:
        """Return what a dataflow is at present."""
        with self.lock:
            return self.leaving.get(flow.id) or self.running[flow.id]

    def add(self, flow: Dataflow) -> None:
        """Add a new dataflow."""
        with self.lock:
            self.running[flow.id] = flow
        self.wakeup.ring()

    def drop(self, dataflow: CollectionId) -> Dataflow | None:
        """Drop a dataflow; it is there until `remove`. None if there is none."""
        with self.lock:
            flow = self.running.pop(dataflow, None)
            if flow is None:
                return None
            del self.failures[dataflow], self.restarts[dataflow]
            self.leaving[dataflow] = flow
            return self.tell(flow, Dropped())

    def compact(self, dataflow: CollectionId, since: Antichain) -> None:
        """Note that an export is not read before `since` any more, if it is maintained."""
        with self.lock:
            flow = self.running.get(dataflow)
            if flow is not None:
                self.tell(flow, Compacted(since))

    def remove(self, flow: Dataflow) -> None:
        """Remove a dropped dataflow, none of whose work is in progress any more."""
        with self.lock:
            del self.leaving[flow.id]
            self.needless.pop(flow.id, None)

    def tell(self, flow: Dataflow, event: Event) -> Dataflow:
        """Step a dataflow from its present state; return it as it is after the event."""
        with self.lock:
            place = self.leaving if flow.id in self.leaving else self.running
            before = place[flow.id]
            after, effects = before.step(event, self.now_ms())
            place[flow.id] = after
            if place is self.running:
                self._count(before, after)
            for effect in effects:
                self._do(after, effect)
            return after

    def delete_needless(self, flow: Dataflow) -> None:
        """Delete records of a taken dataflow, which may take as long as a store does.

        The caller does not have the lock.
        """
        with self.lock:
            needless = self.needless.pop(flow.id, [])
        for forgotten in needless:
            self.store.delete_records(flow.id, forgotten.records)
            if forgotten.build:
                self.store.delete_build(flow.id)

    def _count(self, before: Dataflow, after: Dataflow) -> None:
        """Count what has happened, by what the dataflow is now and was before."""
        attempts = 0 if before.trouble is None else before.trouble.attempts
        if after.trouble is not None and after.trouble.attempts > attempts:
            self.failures[after.id] += 1
        if after.phase is Phase.STARTING and before.phase is not Phase.STARTING:
            self.restarts[after.id] += 1

    def _do(self, flow: Dataflow, effect: Effect) -> None:
        match effect:
            case Ring():
                self.wakeup.ring()
            case Forget():
                self.store.forget(flow.id)
            case ForgetBuild():
                self.store.delete_build(flow.id)
            case ForgetRecords():
                self.needless.setdefault(flow.id, []).append(effect)
            case Log(level, text, facts):
                log.log(level, text, extra={"dataflow": flow.id, **facts})
            case _:
                assert_never(effect)
