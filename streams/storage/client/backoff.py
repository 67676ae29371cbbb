"""Growing pauses between retries after an internal error, which may be permanent."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from streams.ids import CollectionId

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0


def longer_s(pause_s: float) -> float:
    """Return the pause after one of `pause_s`, which is 0 before the first. Units: seconds."""
    return min(max(2 * pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)


@dataclass(slots=True)
class RetryBackoff:
    """Collections whose last attempt failed, with their due times. `clock` is in seconds."""

    clock: Callable[[], float] = time.monotonic
    _pauses: dict[CollectionId, tuple[float, float]] = field(default_factory=dict)
    """Until when the pause lasts, and its length."""

    def __contains__(self, collection: CollectionId) -> bool:
        """Whether the last attempt failed."""
        return collection in self._pauses

    def is_due(self, collection: CollectionId) -> bool:
        """Whether an attempt is due; always if the last one did not fail."""
        until, _ = self._pauses.get(collection, (self.clock(), 0.0))
        return self.clock() >= until

    def failed(self, collection: CollectionId) -> None:
        """Record a failure; the next attempt is due after a pause."""
        _, before_s = self._pauses.get(collection, (0.0, 0.0))
        pause_s = longer_s(before_s)
        self._pauses[collection] = (self.clock() + pause_s, pause_s)

    def over(self, collection: CollectionId) -> None:
        """Record a success, or that the collection is of no interest any more."""
        self._pauses.pop(collection, None)

    def keep(self, collections: Iterable[CollectionId]) -> None:
        """Forget all collections but these."""
        live = set(collections)
        self._pauses = {name: pause for name, pause in self._pauses.items() if name in live}
