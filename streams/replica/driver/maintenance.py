"""Background work beside the lanes: idle intervals, starts, holds, records, garbage, reports.

Idle dataflows cost almost nothing: no micro-batch runs for an idle interval, a thread here
appends it (rule 22). It does so at once, because others may wait for the time.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from streams.compute.checkpoints import Sightings, removable
from streams.errors import SlackwaterError
from streams.ids import CollectionId
from streams.replica.driver import steady_planner
from streams.replica.driver.checkpoint_store import CheckpointStore
from streams.replica.driver.checkpoint_writer import CheckpointWriter
from streams.replica.driver.commit import Committer
from streams.replica.driver.dataflow import Phase
from streams.replica.driver.dataflow_state import run_names
from streams.replica.driver.events import Released, Taken
from streams.replica.driver.holds import HoldMover
from streams.replica.driver.import_state import Imports
from streams.replica.driver.scheduler import Scheduler
from streams.replica.driver.work_units import IdleUnit
from streams.storage.client.maintenance import keep_small
from streams.trace.arrange.disk_reserve import missing_bytes

log = logging.getLogger(__name__)

IDLE_POLL_MS = 200
HOLDS_EVERY_S = 2.0
RECORDS_EVERY_S = 5.0
GARBAGE_EVERY_S = 10.0
ROOM_EVERY_S = 2.0
LANES_EVERY_S = 0.5
SHARDS_EVERY_S = 30.0
RETRY_S = 0.5


@dataclass(slots=True)
class IdleAdvancer:
    """Moves idle dataflows."""

    scheduler: Scheduler
    committer: Committer

    def move(self) -> None:
        """Append every idle interval that exists now."""
        scheduler = self.scheduler
        with scheduler.lock:
            quiet = self._plan()
            for advance in quiet:
                scheduler.tell(advance.flow, Taken())
        if not quiet:
            return
        try:
            self.committer.commit_quiet(quiet)
        finally:
            with scheduler.lock:
                for advance in quiet:
                    scheduler.tell(advance.flow, Released())
            scheduler.wakeup.ring()

    def _plan(self) -> tuple[IdleUnit, ...]:
        scheduler = self.scheduler
        view, now_ms = Imports(scheduler.shards), scheduler.now_ms()
        budget = scheduler.config.budgets.step_bytes
        may_write = scheduler.may_write
        quiet = steady_planner.plan(
            scheduler.sound(), view, now_ms, budget, may_write=may_write
        ).quiet
        alone = [[flow] for flow in scheduler.suspects() if flow.binds]
        for sources in (None, *alone):  # a tick runs nothing that could end a worker
            fed = scheduler.plan_sources(view, now_ms, sources)
            if not fed.units:
                quiet = (*quiet, *fed.quiet)
        return quiet


@dataclass(slots=True)
class Maintenance:
    """Moves holds, writes deferred records, collects garbage; `run_once` runs repeatedly."""

    scheduler: Scheduler
    store: CheckpointStore
    recorder: CheckpointWriter
    tend_lanes: Callable[[], None]
    clock: Callable[[], float] = time.monotonic
    due: dict[str, float] = field(default_factory=dict)
    sightings: Sightings = field(default_factory=Sightings)

    def run_once(self) -> None:
        """Do what is due."""
        for name, every_s, duty in (
            ("holds", HOLDS_EVERY_S, HoldMover(self.scheduler).move),
            ("records", RECORDS_EVERY_S, self._record),
            ("garbage", GARBAGE_EVERY_S, self._collect),
            ("room", ROOM_EVERY_S, self._make_room),
            ("lanes", LANES_EVERY_S, self._tend),
            ("shards", SHARDS_EVERY_S, self._keep_small),
        ):
            if self.clock() >= self.due.get(name, 0.0):
                self.due[name] = self.clock() + every_s
                duty()

    def _keep_small(self) -> None:
        if self.scheduler.may_write:
            keep_small(self.scheduler.shards)

    def _tend(self) -> None:
        self.tend_lanes()

    def _record(self) -> None:
        """Write records for idle flows too, or their holds would not move.

        Until the store is away: then the others are tried the next time.
        """
        with self.scheduler.lock:
            idle = [flow for flow in self.scheduler.flows.values() if not flow.busy]
            due = [flow.id for flow in self.recorder.due(idle)]
        for dataflow in due:
            if not self._record_one(dataflow):
                return

    def _record_one(self, dataflow: CollectionId) -> bool:
        """Write the record of a dataflow that is still idle; return whether the store is there.

        It is taken meanwhile: what is written stays its state, and no other one waits.
        """
        scheduler = self.scheduler
        with scheduler.lock:
            flow = scheduler.flows.get(dataflow)
            if flow is None or flow.busy or not self.recorder.due([flow]):
                return True
            taken = scheduler.tell(flow, Taken())
        try:
            return self.recorder.write([taken])
        finally:
            scheduler.tell(taken, Released())
            scheduler.wakeup.ring()

    def _make_room(self) -> None:
        """On a full disk, delete the remains of a failed attempt at once."""
        if missing_bytes(self.store.directory):
            self._collect()

    def _collect(self) -> None:
        """Delete run files that nothing names (rule 19).

        The store is read without the lock. What dataflows name that do not know their state yet
        is read before the others are looked at: these may have found theirs meanwhile, and one
        that lost its state meanwhile has the collection wait for the next time.
        """
        present = self.store.run_files()
        if not self.store.is_owner():
            return
        with self.scheduler.lock:
            with_state = self._with_state()
        # another recovery may still find its records, and so may a dataflow
        # that this process, just started, was not told of yet
        named = {name: self.store.named(name) for name in self.store.stored() - with_state}
        with self.scheduler.lock:
            if not with_state <= self._with_state():
                return
            lanes = self.scheduler.lanes.values()
            running = frozenset(lane.current.step for lane in lanes if lane.current)
            files = self.sightings.complete(present, running)
            flows = list(self.scheduler.flows.values())
            used = [run_names(flow.own.runs) for flow in flows if flow.own is not None]
            used += [run_names(flow.build.runs) for flow in flows if flow.build is not None]
            records = [record.checkpoint for flow in flows for record in flow.records]
        self.store.delete_runs(removable(files, records, [*used, *named.values()]))

    def _with_state(self) -> frozenset[CollectionId]:
        """The dataflows that know their state, or that they have none. Under the lock."""
        flows = self.scheduler.flows.values()
        return frozenset(flow.id for flow in flows if flow.phase is not Phase.STARTING)


@dataclass(slots=True)
class PeriodicThread:
    """A thread that repeats a job at each wake-up, and periodically without one."""

    name: str
    duty: Callable[[], None]
    scheduler: Scheduler
    thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self.thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self.thread.start()

    def join(self) -> None:
        """Wait for the end of the running job; the scheduler is stopping."""
        if self.thread is not None:
            self.thread.join(timeout=10)

    def _run(self) -> None:
        heard = 0
        while not self.scheduler.stopping:
            heard = self.scheduler.wakeup.wait(heard, IDLE_POLL_MS)
            try:
                self.duty()
            except SlackwaterError as failure:
                log.warning(
                    "background task %s failed; retrying",
                    self.name,
                    extra={"why": str(failure)},
                )
                time.sleep(RETRY_S)
            except Exception as defect:
                log.exception("%s failed", self.name)
                self.scheduler.defect = defect
                return
