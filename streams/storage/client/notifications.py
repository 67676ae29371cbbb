"""Notifies subscribers when brokers stop or resume answering, and when a group fails."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

from streams.kafka.log import Tail
from streams.storage.client.status import ClientStatus
from streams.storage.client.waiters import call_guarded

log = logging.getLogger(__name__)


class Notifications:
    """The status of a client's logs, and its subscribers. `lock` guards what was notified."""

    def __init__(
        self, tail: Tail, lock: threading.RLock, failures: Callable[[], Mapping[str, str]]
    ) -> None:
        """`failures` returns the reasons of failed groups, by the name of the group."""
        self._tail, self._lock, self._failures = tail, lock, failures
        self._watchers: list[Callable[[ClientStatus], None]] = []
        self._told = ClientStatus()
        self.answering_since = 0.0
        """When the last outage ended (monotonic seconds)."""
        self.is_news = False
        """Whether a group failed, or a failed one was closed, since the last notification."""

    def status(self) -> ClientStatus:
        """Return the status of the brokers and of the groups."""
        return ClientStatus(self._tail.silent_ms(), self._failures())

    @property
    def is_returning(self) -> bool:
        """Tell whether brokers answer again, and subscribers have not been told yet."""
        return bool(self._told.silent_ms) and not self._tail.silent_ms()

    def watch(self, callback: Callable[[ClientStatus], None]) -> Callable[[], None]:
        """Call back at each change of the status; return a function that unsubscribes."""
        with self._lock:
            self._watchers.append(callback)
        return lambda: self._watchers.remove(callback)

    def tell(self) -> None:
        """Call the subscribers if the status has changed."""
        status = self._told
        if not self.is_news and bool(self._tail.silent_ms()) == bool(status.silent_ms):
            return  # the hot path of every poll: no scan of a thousand groups
        with self._lock:
            self.is_news = False
            now = self.status()
            if status.silent_ms and not now.silent_ms:
                self.answering_since = time.monotonic()
            self._told = now
            watchers = tuple(self._watchers)
        if now.silent_ms and not status.silent_ms:
            log.warning("no broker answers: waiting")
        if status.silent_ms and not now.silent_ms:
            log.info("the brokers answer again")
        for watcher in watchers:
            call_guarded(partial(watcher, now))
