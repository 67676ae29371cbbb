"""One process's client of the catalog's log: reads it and appends changes."""

import logging
import threading
from collections.abc import Callable

from streams.adapter.catalog import Body, Catalog, CatalogEvent, Open
from streams.adapter.catalog_codec import decode, encode
from streams.adapter.catalog_outcomes import Accepted, Fenced, Outcome, Refused, VersionMismatch
from streams.errors import Corrupt, Indeterminate, InvalidUsage, SlackwaterError
from streams.ids import EventId, Offset, Topic
from streams.kafka.client.bounded_read import records_until
from streams.kafka.log import Logs

log = logging.getLogger(__name__)

ATTEMPTS = 10


class Deposed(SlackwaterError):
    """Another coordinator opened a later epoch: this one has to end, without retries."""


class CatalogLog:
    """The catalog as folded so far, and a way to change it. Thread-safe.

    Any client may write to the topic: a record that is not an event is logged and skipped, by
    every coordinator alike.

    Invariant: `state` is the fold of the events in a prefix of the log. An attempt is decided
    when it is read back, so its outcome is known although an append's result may not be.
    """

    def __init__(self, logs: Logs, topic: Topic, new_id: Callable[[], str]) -> None:
        self._logs, self._topic, self._new_id = logs, topic, new_id
        self._lock = threading.RLock()
        self._state, self._epoch = Catalog(), 0
        low, _ = logs.bounds(topic)
        self._position = low
        self._tail = logs.tail({topic: low})

    @property
    def state(self) -> Catalog:
        """The newest catalog that this process has read."""
        return self._state

    def open(self) -> int:
        """Begin a new epoch; every earlier coordinator is fenced from here on."""
        with self._lock:
            while True:
                self.sync()
                epoch = self._state.epoch + 1
                outcome = self._attempt(Open(), epoch)
                if isinstance(outcome, Accepted):
                    self._epoch = epoch
                    return epoch

    def sync(self) -> Catalog:
        """Read the log to its present end.

        Errors: Deposed if a later epoch than ours was opened.
        """
        with self._lock:
            _, end = self._logs.bounds(self._topic)
            self._read_until(end, None)
            if self._epoch and self._state.epoch > self._epoch:
                raise Deposed(f"epoch {self._epoch} was followed by {self._state.epoch}")
            return self._state

    def change(self, decide: Callable[[Catalog], Body]) -> Catalog:
        """Append the event that `decide` returns for the newest catalog; return the new one.

        Errors: Deposed; InvalidUsage if the change is invalid.
        """
        with self._lock:
            while True:
                body = decide(self._state)
                match self._attempt(body, self._epoch):
                    case Accepted():
                        return self._state
                    case VersionMismatch():
                        continue
                    case Refused(reason):
                        raise InvalidUsage(f"catalog: {reason}")
                    case Fenced(epoch):
                        raise Deposed(f"epoch {self._epoch} was followed by {epoch}")

    def close(self) -> None:
        """Stop reading."""
        self._tail.close()

    def _attempt(self, body: Body, epoch: int) -> Outcome:
        event = CatalogEvent(EventId(self._new_id()), epoch, self._state.version, body)
        record = (self._topic, encode(event))
        for _ in range(ATTEMPTS):
            try:
                (offset,) = self._logs.append([record])
            except Indeterminate:
                continue  # the same event again: its first copy decides
            outcome = self._read_until(Offset(offset + 1), event.id)
            assert outcome is not None, "an event that was appended is read back"
            return outcome
        raise Indeterminate(f"catalog {self._topic}: no append of {ATTEMPTS} was confirmed")

    def _read_until(self, end: Offset, wanted: EventId | None) -> Outcome | None:
        """Fold up to the offset `end`; return the outcome of the event's first copy."""
        first_outcome: Outcome | None = None
        bounds = self._position, end
        for entry in records_until(self._logs, self._tail, self._topic, bounds):
            self._position = Offset(entry.offset + 1)
            try:
                event = decode(entry.value)
            except Corrupt as foreign:
                facts = {"log": self._topic, "offset": entry.offset, "cause": str(foreign)}
                log.warning("skipping a record that is not a catalog event", extra=facts)
                continue
            at_ms = entry.at_ms if entry.is_append_time else None
            self._state, outcome = self._state.step(event, at_ms)
            if event.id == wanted and first_outcome is None:
                first_outcome = outcome
        self._position = max(self._position, end)
        return first_outcome
