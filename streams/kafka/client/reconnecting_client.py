"""Replaces clients that no broker answers.

librdkafka may lose its brokers for good. A broker that shuts down in order, or is fenced,
answers a request for metadata without any broker. The client then drops all that it knows, and
the same answer may cancel its return to the bootstrap servers: it never connects again, and
each of its requests times out (librdkafka's issue 5301, open in 2.16). So does an admin client
that waits for a controller, and does not look for it again. No setting prevents it; a new
client heals it.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from confluent_kafka import KafkaException

from streams.errors import Indeterminate
from streams.kafka.client import clients
from streams.kafka.client.error_mapping import UNANSWERED, cause_of
from streams.kafka.log import Unanswered

log = logging.getLogger(__name__)

C = TypeVar("C")


class ReconnectingClient(Generic[C]):
    """One client at a time, created when it is first needed; any number of threads."""

    def __init__(self, create: Callable[[], C], youngest_s: float | None = None) -> None:
        """A client younger than `youngest_s` is kept; by default, than the longest request."""
        self._create = create
        self._youngest_s = youngest_s
        self._lock = threading.Lock()
        self._client: C | None = None
        self._retired: C | None = None
        self._created_s = 0.0

    def get(self) -> C:
        """Return the client."""
        with self._lock:
            if self._client is None:
                if self._retired is not None:
                    log.info("no broker answered: a new client asks")
                self._client, self._created_s = self._create(), time.monotonic()
            return self._client

    def failed(self, error: BaseException) -> None:
        """Record why a request failed: a client without an answer is replaced, if not young.

        The one before is kept until the next: other threads may still wait for its answers.
        """
        if not is_unanswered(error):
            return
        youngest_s = clients.ANSWER_TIMEOUT_S if self._youngest_s is None else self._youngest_s
        with self._lock:
            if self._client is None or time.monotonic() - self._created_s < youngest_s:
                return
            self._retired, self._client = self._client, None

    def drop(self) -> C | None:
        """Return the client, if there is one, for the caller to close."""
        with self._lock:
            client, self._client, self._retired = self._client, None, None
        return client


def is_unanswered(error: BaseException) -> bool:
    """Tell whether a request failed because no broker answered, or none that could serve it."""
    if isinstance(error, KafkaException):
        return cause_of(error).code() in UNANSWERED
    return isinstance(error, Unanswered | Indeterminate)
