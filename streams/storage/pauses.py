"""Pauses that grow, for what is tried again after a defect of ours, which may well stay."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from streams.ids import CollectionId

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0


def longer_s(pause_s: float) -> float:
    """The seconds of the pause after one of `pause_s`, which is 0 before the first."""
    return min(max(2 * pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)


@dataclass(slots=True)
class Pauses:
    """Collections that a try failed for, and when each is due again. `clock` is in seconds."""

    clock: Callable[[], float] = time.monotonic
    _pauses: dict[CollectionId, tuple[float, float]] = field(default_factory=dict)
    """Until when, and how long it was."""

    def __contains__(self, collection: CollectionId) -> bool:
        """Whether its last try failed."""
        return collection in self._pauses

    def is_due(self, collection: CollectionId) -> bool:
        """Whether to try it now; one that has not failed is due."""
        until, _ = self._pauses.get(collection, (self.clock(), 0.0))
        return self.clock() >= until

    def failed(self, collection: CollectionId) -> None:
        """It was tried and failed; it is due again after a pause."""
        _, before_s = self._pauses.get(collection, (0.0, 0.0))
        pause_s = longer_s(before_s)
        self._pauses[collection] = (self.clock() + pause_s, pause_s)

    def over(self, collection: CollectionId) -> None:
        """It was tried with success, or is of no interest any more."""
        self._pauses.pop(collection, None)

    def keep(self, collections: Iterable[CollectionId]) -> None:
        """Forget all but these."""
        kept = set(collections)
        self._pauses = {name: each for name, each in self._pauses.items() if name in kept}
