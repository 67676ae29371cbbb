"""Recovery: finds a new flow's state, and moves it to RUNNING or BUILDING (rule 17).

A flow first acquires this replica's own hold on each import, so that its input stays readable
whatever other replicas of the dataflow release; then `stepping.resume` decides whether a
checkpoint is used or the state is rebuilt.
"""

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from streams.compute.checkpoints import Checkpoint, newest, of_fingerprint, usable_hydration
from streams.compute.reclocking import Position
from streams.compute.stepping import (
    FromCheckpoint,
    Hydrate,
    Overtaken,
    Resume,
    can_hydrate,
    resume,
)
from streams.errors import Determinate, Indeterminate, SlackwaterError
from streams.ids import Timestamp
from streams.operators.rescaling import rescaled
from streams.plan import json as plan_json
from streams.progress import frontier
from streams.replica.driver import event_planner, hydration_planner
from streams.replica.driver.append_attempt import fenced_by
from streams.replica.driver.checkpoint_store import CheckpointStore, hydration_of, record_of
from streams.replica.driver.dataflow import Dataflow, Phase
from streams.replica.driver.dataflow_state import Build, OwnState, Record
from streams.replica.driver.error_causes import failure_of
from streams.replica.driver.events import Failed, Hydrates, Known, Recovered, Released, Taken
from streams.replica.driver.holds import acquire
from streams.replica.driver.import_state import Imports
from streams.replica.driver.retry_policy import Failure
from streams.replica.driver.scheduler import Scheduler
from streams.storage.client.group import is_lost
from streams.storage.log.outcomes import Acquired

log = logging.getLogger(__name__)


@dataclass(slots=True)
class RecoveryThread:
    """Starts flows, in a thread of its own: it waits for Kafka, and for the store.

    A flow is taken meanwhile, so nothing else steps it, and no lock is held.
    """

    scheduler: Scheduler
    store: CheckpointStore

    def start_all(self) -> None:
        """Continue every flow that is STARTING and can proceed."""
        scheduler = self.scheduler
        with scheduler.lock:
            now_ms = scheduler.now_ms()
            flows = [f for f in scheduler.flows.values() if f.is_ready(Phase.STARTING, now_ms)]
            for flow in flows:
                scheduler.tell(flow, Taken())
        started = [self._start(flow) for flow in flows]
        # a flow that waits for imports is checked again when they move: ringing for it would
        # wake ourselves at once
        if any(flow.phase is not Phase.STARTING for flow in started):
            scheduler.wakeup.ring()

    def _start(self, flow: Dataflow) -> Dataflow:
        scheduler = self.scheduler
        try:
            self._prepare(flow)
            self._resume(scheduler.present(flow))
        except SlackwaterError as cause:
            scheduler.tell(flow, Failed(failure_to_start(cause)))
        finally:
            started = scheduler.tell(flow, Released())
        return started

    def _prepare(self, flow: Dataflow) -> None:
        """Write the plan for the workers, follow the shards, and hold the imports."""
        self.store.inputs.put_plan(flow.plan_name, plan_json.dumps(flow.plan))
        shards, description = self.scheduler.shards, flow.description
        for group in flow.groups - frozenset(shards.groups()):
            followed = shards.following.groups.get(group)
            if followed is not None and not is_lost(followed.failure):
                shards.group_state(group)  # raises its failure: the follower opens it again
            shards.close(group)  # if it is lost, to open what is there now
        shards.open(*sorted(flow.groups))
        present = shards.group_state(description.group).collections
        if flow.dead_letters is not None and present.get(flow.dead_letters) is None:
            shards.sync_group(description.group)  # ALTER SOURCE has just made their collection
        wanted = [
            (imported.group, acquire(flow, imported, shards.group_state(imported.group).upto))
            for imported in description.imports
            if flow.holds[imported.collection]
            not in shards.state(imported.collection).capabilities
        ]
        for (_, body), outcome in zip(wanted, shards.submit(wanted), strict=True):
            if not isinstance(outcome, Acquired):
                log.warning("hold refused", extra={"hold": body.capability, "why": outcome})
        if not flow.records:
            self.scheduler.tell(flow, Known(self.store.records(flow.id)))

    def _resume(self, flow: Dataflow) -> None:
        view = Imports(self.scheduler.shards)
        if flow.binds:
            self._resume_source(flow, view)
            return
        if self._is_of_another_version(flow, view):
            return
        records = self._fitting(flow)
        fitting = [record.checkpoint for record in records]
        flow = self.scheduler.tell(flow, Known(records))
        stored = self._stored_build(flow, view)
        match self._decide(flow, view, fitting, stored):
            case FromCheckpoint(time):
                at_time = [r for r in flow.records if r.checkpoint.frontier == time]
                self.scheduler.tell(flow, Recovered(at_time[-1].state))
                log.info("dataflow resumed", extra={"dataflow": flow.id, "frontier": time})
            case Hydrate(as_of, done) if can_hydrate(as_of, view.of_flow(flow, _NOWHERE)):
                self._hydrate(flow, view, as_of, stored if done else None)
            case Hydrate():
                pass  # the imports do not exist yet: checked again when they move
            case Overtaken(as_of, since):
                lost = f"an import can no longer be read at {as_of}: its since is {since}"
                self.scheduler.tell(flow, Failed(Failure(lost)))

    def _fitting(self, flow: Dataflow) -> tuple[Record, ...]:
        """Return the records of the flow's fingerprint, over the buckets that there are now."""
        present = of_fingerprint([r.checkpoint for r in flow.records], flow.fingerprint)
        buckets, fitting = self.scheduler.buckets, list[Record]()
        for record in flow.records:
            if record.checkpoint not in present:
                continue
            if record.buckets == buckets:
                fitting.append(record)
                continue
            facts = {"dataflow": flow.id, "from": record.buckets, "to": buckets}
            runs = rescaled(flow.plan, record.state.runs, record.buckets, buckets)
            if runs is None:
                log.info("state dropped: it is not told apart by buckets", extra=facts)
                continue
            log.info("state rescaled", extra=facts)
            state = replace(record.state, runs=runs)
            fitting.append(record_of(flow.fingerprint, state, buckets))
        return tuple(fitting)

    def _is_of_another_version(self, flow: Dataflow, view: Imports) -> bool:
        """Upgrade a flow whose shard another fingerprint wrote, or fail it if that is newer.

        What EMIT ON CLOSE let out is final. So there a version goes on where the one before
        stopped, and corrects nothing.
        """
        state = view.state(flow.id)
        if flow.fingerprint in state.fenced:
            self.scheduler.tell(flow, fenced_by(state.fingerprint))
            return True
        if flow.plan.emits_on_close or state.fingerprint in {"", flow.fingerprint}:
            return False
        self._upgrade(flow, view, state.fingerprint)
        return True

    def _upgrade(self, flow: Dataflow, view: Imports, before: str) -> None:
        """Plan an upgrade where another fingerprint wrote the shard (rule 24)."""
        state = view.state(flow.id)
        if state.upper.is_empty:
            self.scheduler.tell(flow, Recovered(OwnState("", state.upper, {})))
            return
        as_of = state.upper.time
        if not can_hydrate(as_of, view.of_flow(flow, _NOWHERE)):
            return  # checked again when the imports move
        budget = self.scheduler.config.budgets.slice_bytes
        build = hydration_planner.upgrade(flow, view, as_of, budget)
        self.scheduler.tell(flow, Known(()))
        self.scheduler.tell(flow, Hydrates(_nothing(as_of), build))
        log.info("upgrading dataflow", extra={"dataflow": flow.id, "from": before})

    def _decide(
        self,
        flow: Dataflow,
        view: Imports,
        fitting: Sequence[Checkpoint],
        stored: Build | None,
    ) -> Resume:
        hydration = None if stored is None else hydration_of(flow.fingerprint, stored)
        return resume(
            fitting,
            view.state(flow.id).upper,
            view.sinces(flow).values(),
            flow.description.as_of,
            hydration,
        )

    def _stored_build(self, flow: Dataflow, view: Imports) -> Build | None:
        """Return the stored progress of a hydration, if it can be resumed (rule 20)."""
        stored = self.store.build(flow.id, flow.fingerprint)
        if stored is None:
            return None
        build, before = stored
        runs = rescaled(flow.plan, build.runs, before, self.scheduler.buckets)
        if runs is None:
            return None
        build = replace(build, runs=runs)
        live = {
            chunk.key
            for imported in flow.description.imports
            for batch in view.state(imported.collection).batches
            for chunk in batch.chunks
        }
        hydration = hydration_of(flow.fingerprint, build)
        if usable_hydration(hydration, flow.fingerprint, live, self.store.run_files()) is None:
            return None
        group = self.scheduler.shards.group_state(flow.description.group)
        stage = group.stages.get(build.stage)
        return hydration_planner.resumed(build, 0 if stage is None else len(stage.chunks))

    def _hydrate(
        self, flow: Dataflow, view: Imports, as_of: Timestamp, stored: Build | None
    ) -> None:
        budget = self.scheduler.config.budgets.slice_bytes
        build = stored or hydration_planner.snapshot(flow, view, as_of, budget)
        if stored is None and len(build.slices) > 1:
            self.store.put_build(flow.id, flow.fingerprint, build, self.scheduler.buckets)
        self.scheduler.tell(flow, Hydrates(_nothing(as_of), build))
        log.info(
            "hydrating dataflow",
            extra={"dataflow": flow.id, "as_of": as_of, "slices": len(build.slices)},
        )

    def _resume_source(self, flow: Dataflow, view: Imports) -> None:
        """Resume a source from its last record, or without keyed state from the shard.

        With a watermark it begins at the shard, too, and reads what is pending again; with keys
        it is born, and replays the shard.
        """
        shard = view.state(flow.id)
        if flow.has_watermark and flow.is_keyed:
            self.scheduler.tell(flow, Recovered(_nothing(flow.description.as_of)))
            return
        if flow.has_watermark:
            at = Position(shard.upper, shard.source or {})
            self.scheduler.tell(flow, Recovered(event_planner.without_pending(at)))
            return
        if flow.plan.depth == 0:
            own = OwnState("", shard.upper, {}, shard.source or {})
            self.scheduler.tell(flow, Recovered(own))
            return
        records_by_checkpoint = {record.checkpoint: record for record in self._fitting(flow)}
        best = newest(tuple(records_by_checkpoint), shard.upper)
        self.scheduler.tell(flow, Known(() if best is None else (records_by_checkpoint[best],)))
        born = _nothing(flow.description.as_of)
        self.scheduler.tell(
            flow, Recovered(born if best is None else records_by_checkpoint[best].state)
        )


def failure_to_start(cause: SlackwaterError) -> Failure:
    """Classify a failure to start: an outage is not caused by the state."""
    outside = isinstance(cause, Determinate | Indeterminate)
    return failure_of(cause) if outside else Failure(str(cause))


_NOWHERE = frontier(0)


def _nothing(time: Timestamp) -> OwnState:
    """Return empty state at a time."""
    return OwnState(uuid.uuid4().hex, frontier(time), {}, {})
