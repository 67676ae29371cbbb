"""Follows an output topic as any consumer would that reads what is committed."""

import threading
import uuid
from collections.abc import Callable

from streams.ids import MINIMUM_TIME, Timestamp, Topic
from streams.kafka.client import clients
from streams.kafka.client.headers import headers_of
from streams.kafka.settings import ClientSettings
from streams.progress import Antichain, frontier
from streams.storage.sinks.record_columns import TIME_HEADER

POLL_S = 0.1


class OutputFollower:
    """A consumer of one topic; it calls `moved` when a record with a later time has come."""

    def __init__(self, settings: ClientSettings, topic: Topic) -> None:
        self._settings, self._topic = settings, topic
        self.moved: Callable[[], None] = lambda: None
        self._reached: Timestamp = MINIMUM_TIME
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)

    @property
    def upper(self) -> Antichain:
        """The time before which all records have come, if a time is one transaction."""
        return frontier(self._reached + 1)

    def start(self) -> None:
        """Begin to read, at the start of the topic."""
        self._thread.start()

    def close(self) -> None:
        """Stop reading, and release the connection."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        meaning = {
            "isolation.level": "read_committed",
            "group.id": f"bench-{uuid.uuid4().hex}",
            "auto.offset.reset": "earliest",
        }
        consumer = clients.consumer(self._settings, meaning, {})
        consumer.subscribe([self._topic])
        while not self._stopped.is_set():
            message = consumer.poll(POLL_S)
            if message is None or message.error() is not None:
                continue
            time = int(dict(headers_of(message) or ())[TIME_HEADER] or b"")
            if time > self._reached:
                self._reached = Timestamp(time)
                self.moved()
        consumer.close()
