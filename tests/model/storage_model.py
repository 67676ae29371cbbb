"""What Storage must answer, said as plainly as can be: one collection, no log, no chunks.

Since and upper are recomputed from the capabilities after every command; contents are summed
from all updates ever written.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

Row = tuple[str, int]
Update = tuple[Row, int, int]
Key = TypeVar("Key", bound=Hashable)


@dataclass
class Model:
    """One collection. Frontiers are times, None the empty one."""

    start: int
    since: int | None = 0
    upper: int | None = 0
    reads: dict[str, int] = field(default_factory=dict)
    writes: dict[str, int] = field(default_factory=dict)
    updates: list[Update] = field(default_factory=list)
    sealing: bool = False

    def __post_init__(self) -> None:
        self.since = self.upper = self.start

    def settle(self, *, released: bool = False) -> None:
        """After a command; `released` says that it gave up a write capability on purpose.

        `sealing` says that who moved a write capability last moved it to the empty frontier.
        """
        if self.upper is not None and self.writes:
            self.upper = max(self.upper, min(self.writes.values()))
        if (released or self.sealing) and not self.writes:
            self.upper = None
        if self.since is not None and self.reads:
            newest = min(self.reads.values())
            if self.upper is not None:
                newest = min(newest, self.upper - 1)
            self.since = max(self.since, newest)

    def drop(self) -> None:
        """All is gone but the id."""
        self.since = self.upper = None
        self.reads, self.writes = {}, {}

    def goes_below_zero(self, fresh: Iterable[Update]) -> bool:
        """Whether some row would be there less often than never, at some time."""
        every = [*self.updates, *fresh]
        return any(
            sum(diff for row, time, diff in every if row == one and time <= last) < 0
            for one, last, _ in every
        )

    def contents(self, as_of: int) -> dict[Row, int]:
        """How often each row is there at a time."""
        return summed((row, diff) for row, time, diff in self.updates if time <= as_of)

    def changes(self, lower: int, upper: int | None) -> dict[tuple[Row, int], int]:
        """The updates in [lower, upper)."""
        return summed(
            ((row, time), diff)
            for row, time, diff in self.updates
            if lower <= time and (upper is None or time < upper)
        )


def summed(pairs: Iterable[tuple[Key, int]]) -> dict[Key, int]:
    """The sum of the diffs of each key; those of nothing are left out."""
    counts: dict[Key, int] = {}
    for key, diff in pairs:
        counts[key] = counts.get(key, 0) + diff
    return {key: count for key, count in counts.items() if count}
