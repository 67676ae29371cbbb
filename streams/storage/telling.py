"""Whoever wants to know is told when brokers fall silent or answer, and when a group fails."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

from streams.kafka.log import Tail
from streams.storage.status import Status
from streams.storage.waiting import guarded

log = logging.getLogger(__name__)


class Telling:
    """The status of a client's logs, and those who watch it. `lock` guards what is told."""

    def __init__(
        self, tail: Tail, lock: threading.RLock, failures: Callable[[], Mapping[str, str]]
    ) -> None:
        """`failures` are the reasons of the groups that have failed, by their names."""
        self._tail, self._lock, self._failures = tail, lock, failures
        self._watchers: list[Callable[[Status], None]] = []
        self._told = Status()
        self.answering_since = 0.0
        """By the monotonic clock: when the last silence was over."""
        self.is_news = False
        """Whether a group has failed, or a failed one was left, and nobody was told yet."""

    def status(self) -> Status:
        """How things stand with the brokers and with the groups."""
        return Status(self._tail.silent_ms(), self._failures())

    @property
    def is_returning(self) -> bool:
        """Whether brokers that were silent answer again, which nobody was told yet."""
        return bool(self._told.silent_ms) and not self._tail.silent_ms()

    def watch(self, callback: Callable[[Status], None]) -> Callable[[], None]:
        """Call back at each change that is worth telling; returns what ends it."""
        with self._lock:
            self._watchers.append(callback)
        return lambda: self._watchers.remove(callback)

    def tell(self) -> None:
        """Tell whoever watches, if something changed that is worth telling."""
        told = self._told
        if not self.is_news and bool(self._tail.silent_ms()) == bool(told.silent_ms):
            return  # the path of every poll: no look at a thousand groups
        with self._lock:
            self.is_news = False
            now = self.status()
            if told.silent_ms and not now.silent_ms:
                self.answering_since = time.monotonic()
            self._told = now
            watchers = tuple(self._watchers)
        if now.silent_ms and not told.silent_ms:
            log.warning("no broker answers: waiting")
        if told.silent_ms and not now.silent_ms:
            log.info("the brokers answer again")
        for watcher in watchers:
            guarded(partial(watcher, now))
