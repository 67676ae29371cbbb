"""The sinks of a replica: one thread each, outside of Spark.

A sink writes a few records for a few changes, in order and in transactions, so there is nothing
to distribute. Of several replicas the owner runs the sinks, and the others stand by. For some
seconds there may be two owners: then the newer runner of a sink fences the older one
(`streams.storage.sinks.runner`).
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from streams.compute.description import DataflowDescription
from streams.compute.protocol import Response
from streams.compute.replica_responses import STANDBY
from streams.compute.sinks import sink_responses, sink_spec
from streams.ids import CollectionId
from streams.kafka.client.transactions import Transactions
from streams.kafka.settings import ClientSettings
from streams.storage.client.shards import Shards
from streams.storage.sinks.runner import SinkRunner, SinkSpec, SinkStatus


@dataclass(slots=True)
class Sinks:
    """The sinks, the runners of the owner, and the statuses that are not reported yet."""

    namespace: str
    kafka: ClientSettings
    shards: Shards
    now_ms: Callable[[], int]
    crash: Callable[[str], None]
    is_owner: bool = True
    obstacle: str = ""
    """Why this replica cannot become the owner; empty if it can."""
    specs: dict[CollectionId, SinkSpec] = field(default_factory=dict)
    runners: dict[CollectionId, SinkRunner] = field(default_factory=dict)
    untold: dict[CollectionId, SinkStatus] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def groups(self) -> frozenset[str]:
        """The groups that sinks read."""
        return frozenset(spec.group for spec in self.specs.values())

    def create(self, description: DataflowDescription) -> None:
        """Run a sink, if this replica is the owner."""
        self.specs[description.export] = sink_spec(description, self.namespace)
        if self.is_owner:
            self._run(description.export)
        else:
            self._stand_by(description.export)

    def drop(self, sink: CollectionId) -> bool:
        """Forget a sink, if there is one, and stop it, if it runs here."""
        if self.specs.pop(sink, None) is None:
            return False
        self._stop(sink)
        return True

    def own(self, *, is_owner: bool, obstacle: str) -> None:
        """Run all sinks from here on, or stop all and stand by."""
        self.is_owner, self.obstacle = is_owner, obstacle
        for sink in self.specs:
            if not is_owner:
                self._stand_by(sink)
            elif sink not in self.runners:
                self._run(sink)

    def _stand_by(self, sink: CollectionId) -> None:
        self._stop(sink)
        self._say(sink, SinkStatus("stalled" if self.obstacle else STANDBY, self.obstacle))

    def _run(self, sink: CollectionId) -> None:
        spec = self.specs[sink]
        runner = SinkRunner(
            spec,
            self.shards,
            Transactions(self.kafka, spec.transactional_id),
            now_ms=self.now_ms,
            report=partial(self._say, sink),
            crash=self.crash,
        )
        self.runners[sink] = runner
        self._say(sink, runner.status)
        runner.start()

    def _stop(self, sink: CollectionId) -> None:
        runner = self.runners.pop(sink, None)
        if runner is not None:
            runner.stop()
        with self.lock:
            self.untold.pop(sink, None)

    def repeat(self) -> None:
        """Report all statuses again: a new iteration has begun."""
        for sink in self.specs:
            runner = self.runners.get(sink)
            if runner is None:
                self._stand_by(sink)
            else:
                self._say(sink, runner.status)

    def responses(self) -> list[Response]:
        """Return the responses to write."""
        with self.lock:
            untold, self.untold = self.untold, {}
        return [
            sink_response
            for sink, status in untold.items()
            for sink_response in sink_responses(sink, status)
        ]

    def close(self) -> None:
        """Stop all."""
        for sink in list(self.specs):
            self.drop(sink)

    def _say(self, sink: CollectionId, status: SinkStatus) -> None:
        with self.lock:
            self.untold[sink] = status
