"""Writes checkpoint records over a flow's life, periodically, and deletes old ones.

Not every step writes a record: a restart then repeats a longer interval, and the part that the
shard has already is clipped (rules 16 and 17). A record of a view may be ahead of the shard;
one of a source is written only after its Append counted, because its state is usable only
together with the binding (`streams.compute.reclocking`).
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from streams.compute.checkpoints import retained
from streams.errors import Determinate
from streams.progress import Antichain
from streams.replica.driver.checkpoints import Store, record_of
from streams.replica.driver.flow import Flow, Phase, Record
from streams.replica.driver.scheduler import Scheduler

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Recorder:
    """Writes the records of one replica."""

    scheduler: Scheduler
    store: Store
    every_ms: int

    def record(self, flows: Iterable[Flow]) -> None:
        """Write the records that are due, and the progress of builds.

        If the disk is full, the dataflow continues without a record: it costs a hydration if
        this process dies before the next one is written.
        """
        now_ms = self.scheduler.now_ms()
        for flow in flows:
            if flow.gone:
                continue
            try:
                if flow.phase is Phase.BUILDING:
                    self._record_build(flow)
                elif is_due(flow, now_ms, self.every_ms):
                    self._record_state(flow, now_ms)
            except Determinate as full:
                log.warning(
                    "checkpoint record not written",
                    extra={"dataflow": flow.id, "reason": str(full)},
                )

    def _record_build(self, flow: Flow) -> None:
        build = flow.build
        # other builds start over from the shard: their divisions are not snapshots
        if build is not None and build.as_of and len(build.slices) > 1:
            self.store.put_build(flow.id, flow.fingerprint, build)

    def _record_state(self, flow: Flow, now_ms: int) -> None:
        assert flow.own is not None
        record = record_of(flow.fingerprint, flow.own)
        self.scheduler.crash("before-record")
        self.store.put_record(flow.id, record)
        if not flow.recorded_ms:
            self.store.put_build(flow.id, flow.fingerprint, None)
        flow.recorded_ms = now_ms
        upper = self.scheduler.upper(flow)
        if upper is None:
            return
        known = (*flow.records, record)
        flow.records = keep(known, upper)
        kept = {each.checkpoint.frontier for each in flow.records}
        dropped = [each for each in known if each.checkpoint.frontier not in kept]
        self.store.delete_records(flow.id, dropped)


def is_due(flow: Flow, now_ms: int, every_ms: int) -> bool:
    """Whether the last record is old enough, and the state has moved on from it."""
    if flow.own is None or flow.own.frontier.is_empty or flow.phase is not Phase.RUNNING:
        return False
    if flow.is_source and flow.plan.depth == 0:
        return False  # no state but the position, which the shard has
    if flow.records and flow.records[-1].checkpoint.frontier == flow.own.frontier.time:
        return False
    return now_ms - flow.recorded_ms >= every_ms


def keep(records: tuple[Record, ...], shard_upper: Antichain) -> tuple[Record, ...]:
    """Return the records to keep; of two at one frontier the later."""
    latest = {each.checkpoint.frontier: each for each in records}
    kept = set(retained([each.checkpoint for each in latest.values()], shard_upper))
    return tuple(each for each in latest.values() if each.checkpoint in kept)
