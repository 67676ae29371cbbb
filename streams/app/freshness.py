"""Freshness as a reader sees it: from the producer's flush to readable in the view.

A *mark* is a set of source offsets whose messages were all acknowledged at some instant. Its
messages happen at the time that the source's shard binds to those offsets; they are readable
in a view from the moment at which the view's upper is seen to pass that time. Both are read
from the shards' logs, as any client could.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streams.ids import CollectionId
from streams.progress import Antichain
from streams.storage.client.shards import Shards


@dataclass(frozen=True, slots=True)
class Mark:
    """Offsets of a source that were flushed at an instant.

    Units: `ends` maps a partition to the offset after its last message; `flushed_s` is on the
    monotonic clock.
    """

    source: CollectionId
    ends: Mapping[int, int]
    flushed_s: float


class Freshness:
    """Collects marks, and the milliseconds that each took to every view fed by its source."""

    def __init__(
        self,
        shards: Shards,
        feeds: Mapping[CollectionId, tuple[CollectionId, ...]],
        now_s: Callable[[], float] = time.monotonic,
        upper_of: Callable[[CollectionId], Antichain] | None = None,
    ) -> None:
        """`upper_of` returns how far a view can be read: its shard's upper unless given."""
        self._shards = shards
        self._upper_of = upper_of or (lambda view: shards.state(view).upper)
        self._feeds = feeds
        self._now_s = now_s
        self._lock = threading.Lock()
        self._unbound: list[Mark] = []
        self._bound: list[tuple[Mark, CollectionId, Antichain]] = []
        self.milliseconds: list[float] = []
        self._end = shards.subscribe(lambda _: self.observe())

    def mark(self, source: CollectionId, ends: Mapping[int, int]) -> None:
        """Say that everything below `ends` has just been flushed."""
        with self._lock:
            self._unbound.append(Mark(source, dict(ends), self._now_s()))

    def observe(self) -> None:
        """Look at the shards as folded so far. Called after every fold."""
        with self._lock:
            self._bind()
            self._settle(self._now_s())

    @property
    def pending(self) -> int:
        """The marks that some view has not reached yet."""
        with self._lock:
            return len(self._unbound) + len(self._bound)

    def close(self) -> None:
        """Look no more."""
        self._end()

    def _bind(self) -> None:
        waiting = []
        for mark in self._unbound:
            state = self._shards.state(mark.source)
            if state.source is None or not _covers(state.source, mark.ends):
                waiting.append(mark)
                continue
            views = self._feeds.get(mark.source, ())
            self._bound += [(mark, view, state.upper) for view in views]
        self._unbound = waiting

    def _settle(self, now_s: float) -> None:
        waiting = []
        for mark, view, upper in self._bound:
            if upper.precedes(self._upper_of(view)):
                self.milliseconds.append((now_s - mark.flushed_s) * 1000)
            else:
                waiting.append((mark, view, upper))
        self._bound = waiting


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed; 0 for none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def _covers(binding: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    return all(binding.get(partition, 0) >= end for partition, end in ends.items())
