"""Writes checkpoint records over a flow's life, periodically, and deletes old ones.

Not every step writes a record: a restart then repeats a longer interval, and the part that the
shard has already is clipped (rules 16 and 17). A record of a view may be ahead of the shard;
one of a source is written only after its Append counted, because its state is usable only
together with the binding (`streams.compute.reclocking`).
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from streams.errors import Determinate
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

    def record(self, flows: Iterable[Dataflow]) -> None:
        """Write the records that are due, and the progress of builds.

        If the disk is full, the dataflow continues without a record: it costs a hydration if
        this process dies before the next one is written.
        """
        now_ms = self.scheduler.now_ms()
        for flow in map(self.scheduler.present, flows):
            if flow.gone:
                continue
            try:
                if flow.phase is Phase.BUILDING:
                    self._record_build(flow)
                elif is_due(flow, now_ms, self.every_ms):
                    self._record_state(flow)
            except Determinate as full:
                log.warning(
                    "checkpoint record not written",
                    extra={"dataflow": flow.id, "reason": str(full)},
                )

    def _record_build(self, flow: Dataflow) -> None:
        build = flow.build
        # other builds start over from the shard: their divisions are not snapshots
        if build is not None and build.as_of and len(build.slices) > 1:
            self.store.put_build(flow.id, flow.fingerprint, build)

    def _record_state(self, flow: Dataflow) -> None:
        assert flow.own is not None
        record = record_of(flow.fingerprint, flow.own)
        self.scheduler.crash("before-record")
        self.store.put_record(flow.id, record)
        self.scheduler.tell(flow, Recorded(record, self.scheduler.upper(flow)))
