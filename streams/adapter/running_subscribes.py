"""The SUBSCRIBE statements that run now, and how far each is. Thread-safe."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from streams.ids import CollectionId, Timestamp
from streams.plan.sql.subscribe import Subscribe
from streams.progress import Antichain, end_of
from streams.storage.client.shards import fresh_uuid


@dataclass(frozen=True, slots=True)
class RunningSubscribe:
    """One that has not ended: the client was sent all before `upper`.

    `reader` is `coordinator`, `replicas`, or `replica`, which has the name.
    """

    uuid: str
    id: CollectionId
    reader: str
    replica: str
    as_of: Timestamp
    until: Timestamp | None
    upper: Timestamp


@dataclass(frozen=True, slots=True)
class Running:
    """Notes what becomes of one of them."""

    _running: dict[str, RunningSubscribe]
    _uuid: str

    def note(self, upper: Antichain) -> None:
        """Note that the client was sent all before upper."""
        running = self._running[self._uuid]
        reached = max(running.upper, end_of(upper))
        self._running[self._uuid] = replace(running, upper=reached)

    def read_by_coordinator(self) -> None:
        """Note that no replica reads for it, or none any more."""
        running = self._running[self._uuid]
        self._running[self._uuid] = replace(running, reader="coordinator", replica="")


@dataclass(slots=True)
class RunningSubscribes:
    """All of them, by uuid."""

    _running: dict[str, RunningSubscribe] = field(default_factory=dict)

    @property
    def now(self) -> tuple[RunningSubscribe, ...]:
        """Those that run, in the order in which they began."""
        return tuple(self._running.values())

    @contextmanager
    def running(
        self, id_: CollectionId, wanted: Subscribe, as_of: Timestamp
    ) -> Iterator[Running]:
        """One more while the block runs; yields what notes how far it is, and who reads."""
        uuid, replica = fresh_uuid(), wanted.replica
        reader = "replicas" if wanted.by_replicas else "coordinator"
        reader = "replica" if replica else reader
        self._running[uuid] = RunningSubscribe(
            uuid, id_, reader, replica, as_of, wanted.until, as_of
        )
        try:
            yield Running(self._running, uuid)
        finally:
            del self._running[uuid]
