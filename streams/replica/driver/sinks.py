"""The sinks of a replica: one thread each, outside of Spark.

A sink writes a few records for a few changes, in order and in transactions, so there is nothing
to distribute. Of two replicas that run the same sink the newer fences the older, which then
fails permanently (`streams.storage.sinks.runner`).
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from streams.compute.description import DataflowDescription
from streams.compute.protocol import Response
from streams.compute.sinks import sink_responses, sink_spec
from streams.ids import CollectionId
from streams.kafka.client.transactions import Transactions
from streams.kafka.settings import ClientSettings
from streams.storage.client.shards import Shards
from streams.storage.sinks.runner import SinkRunner, SinkStatus


@dataclass(slots=True)
class Sinks:
    """The runners by sink, and the statuses that are not reported yet."""

    namespace: str
    kafka: ClientSettings
    shards: Shards
    now_ms: Callable[[], int]
    crash: Callable[[str], None]
    runners: dict[CollectionId, SinkRunner] = field(default_factory=dict)
    groups: dict[CollectionId, str] = field(default_factory=dict)
    untold: dict[CollectionId, SinkStatus] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def create(self, description: DataflowDescription) -> None:
        """Run a sink."""
        spec = sink_spec(description, self.namespace)
        runner = SinkRunner(
            spec,
            self.shards,
            Transactions(self.kafka, spec.transactional_id),
            now_ms=self.now_ms,
            report=partial(self._say, description.export),
            crash=self.crash,
        )
        self.runners[description.export] = runner
        self.groups[description.export] = spec.group
        self._say(description.export, runner.status)
        runner.start()

    def drop(self, sink: CollectionId) -> bool:
        """Stop a sink, if it runs here."""
        runner = self.runners.pop(sink, None)
        if runner is None:
            return False
        runner.stop()
        del self.groups[sink]
        with self.lock:
            self.untold.pop(sink, None)
        return True

    def repeat(self) -> None:
        """Report all statuses again: a new iteration has begun."""
        for sink, runner in self.runners.items():
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
        for sink in list(self.runners):
            self.drop(sink)

    def _say(self, sink: CollectionId, status: SinkStatus) -> None:
        with self.lock:
            self.untold[sink] = status
