"""Tells the controller the sinces of views, so that their inputs can be let go.

Since of a shard follows from the holds on it (rule 4). A view's inputs are held at the since of
the view, which travels to the replicas in AllowCompaction. Only what has moved is looked at,
every few seconds: a command for each move would be as many as there are beats.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from streams.errors import SlackwaterError
from streams.ids import CollectionId
from streams.progress import Antichain
from streams.storage.client.shards import Shards

EVERY_S = 10.0
"""Seconds between two sends of sinces: inputs keep that much more history than their views."""


class Receiver(Protocol):
    """The part of the controller that takes sinces."""

    def allow_compaction(self, sinces: Mapping[CollectionId, Antichain]) -> None:
        """Compact the history of views before these sinces."""


@dataclass(slots=True)
class Compactions:
    """Follows the sinces of all shards; one thread calls `tell`."""

    shards: Shards
    controller: Receiver
    clock: Callable[[], float] = time.monotonic
    _next: float = 0.0
    _moved: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.shards.subscribe(self._note)

    def _note(self, groups: frozenset[str]) -> None:
        with self._lock:
            self._moved |= groups

    def tell(self) -> None:
        """Send the sinces that have moved. Errors: as `Controller.create`; then sent later."""
        if self.clock() < self._next:
            return
        self._next = self.clock() + EVERY_S
        with self._lock:
            moved, self._moved = self._moved, set()
        try:
            self.controller.allow_compaction(self._sinces(moved))
        except SlackwaterError:
            self._note(frozenset(moved))
            raise

    def _sinces(self, groups: set[str]) -> dict[CollectionId, Antichain]:
        """Return the sinces of all collections of the groups."""
        sinces: dict[CollectionId, Antichain] = {}
        for group in groups:
            try:
                collections = self.shards.group_state(group).collections
            except SlackwaterError:  # it is in trouble, as SHOW says; or it is gone
                continue
            sinces |= {state.id: state.since for state in collections.live.values()}
        return sinces
