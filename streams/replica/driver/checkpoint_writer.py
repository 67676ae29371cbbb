"""Writes checkpoint records over a flow's life, periodically, and deletes old ones.

Not every step writes a record: a restart then repeats a longer interval, and the part that the
shard has already is clipped (rules 16 and 17). A record of a view may be ahead of the shard;
one of a source is written only after its Append counted, because its state is usable only
together with the binding (`streams.compute.reclocking`).
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streams.errors import Determinate, Indeterminate
from streams.replica.driver.checkpoint_store import CheckpointStore, record_of
from streams.replica.driver.dataflow import Dataflow, Phase, is_due
from streams.replica.driver.events import Recorded
from streams.replica.driver.scheduler import Scheduler

log = logging.getLogger(__name__)


@dataclass(slots=True)
class CheckpointWriter:
    """Writes the records of one replica."""

    scheduler: Scheduler
    store: CheckpointStore
    every_ms: int

    def due(self, flows: Iterable[Dataflow]) -> list[Dataflow]:
        """Return the dataflows, as they are now, whose records or builds are to be written."""
        now_ms = self.scheduler.now_ms()
        present = map(self.scheduler.present, flows)
        return [flow for flow in present if self._is_due(flow, now_ms)]

    def write(self, due: Sequence[Dataflow]) -> bool:
        """Write the records, and the progress of builds, of dataflows that are taken.

        Returns whether the store is there and this process's.

        If the disk is full or the store is away, the dataflow continues without a record: it
        costs a hydration if this process dies before the next one is written. One whose store
        is another process's now writes none: it would replace its successor's.
        """
        if not due:
            return True
        if not self._is_owner():
            return False
        is_there = True
        for flow in due:
            try:
                if flow.phase is Phase.BUILDING:
                    assert flow.build is not None, "a dataflow that is built has a build"
                    buckets = self.scheduler.buckets
                    self.store.put_build(flow.id, flow.fingerprint, flow.build, buckets)
                else:
                    self._record_state(flow)
            except (Determinate, Indeterminate) as cause:
                is_there = is_there and not isinstance(cause, Indeterminate)
                log.warning(
                    "checkpoint record not written",
                    extra={"dataflow": flow.id, "reason": str(cause)},
                )
            self.scheduler.table.delete_needless(flow)
        return is_there

    def _is_due(self, flow: Dataflow, now_ms: int) -> bool:
        if flow.gone:
            return False
        if flow.phase is Phase.BUILDING:
            # other builds start over from the shard: their divisions are not snapshots
            return flow.build is not None and flow.build.as_of and len(flow.build.slices) > 1
        return is_due(flow, now_ms, self.every_ms)

    def _is_owner(self) -> bool:
        try:
            return self.store.is_owner()
        except Indeterminate as away:
            log.warning("checkpoint records not written", extra={"reason": str(away)})
            return False

    def _record_state(self, flow: Dataflow) -> None:
        assert flow.own is not None
        record = record_of(flow.fingerprint, flow.own, self.scheduler.buckets)
        self.scheduler.crash("before-record")
        self.store.put_record(flow.id, record)
        self.scheduler.tell(flow, Recorded(record, self.scheduler.upper(flow)))
