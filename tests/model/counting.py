"""The view of the model: rows by key, of `tab` while they live and of `src`.

Its state is a sum of *contributions* (time, key, diff); those at or beyond its frontier are
scheduled. A run file holds the contributions of one step or of one slice.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from streams.progress import EMPTY, Antichain, frontier
from tests.model.world import Row, Update

Contribution = tuple[int, int, int]
"""A time, a key, a diff."""


@dataclass(frozen=True, slots=True)
class State:
    """State at a frontier, and the run files that it is made of."""

    frontier: int
    runs: tuple[str, ...]
    contributions: tuple[Contribution, ...]

    def counts(self) -> Counter[int]:
        """The rows by key before the frontier."""
        count: Counter[int] = Counter()
        for time, key, diff in self.contributions:
            if time < self.frontier:
                count[key] += diff
        return count

    @property
    def scheduled(self) -> Antichain:
        """When the output may change by itself."""
        later = [time for time, _, _ in self.contributions if time >= self.frontier]
        return frontier(min(later)) if later else EMPTY


def shown(version: str, row: Row) -> Row:
    """How a version of the view says that a key has so many rows."""
    key, rows = row
    assert rows is not None
    return (key, rows if version == "v1" else -rows)


def contributions(updates: Iterable[Update]) -> list[Contribution]:
    """What updates of the imports do to the counts, and when."""
    collected: list[Contribution] = []
    for row, time, diff in updates:
        key, until = row[0], row[2] if len(row) == 3 else None
        assert key is not None
        if until is None or time < until:
            collected.append((time, key, diff))
            if until is not None:
                collected.append((until, key, -diff))
    return collected


def changes(before: State, after: State) -> list[Update]:
    """The output's updates between two states, at every time in between."""
    count = before.counts()
    updates: list[Update] = []
    due = sorted(c for c in after.contributions if before.frontier <= c[0] < after.frontier)
    for time in sorted({c[0] for c in due}):
        for key in sorted({c[1] for c in due if c[0] == time}):
            old = count[key]
            count[key] += sum(c[2] for c in due if c[:2] == (time, key))
            if count[key] != old:
                updates += [
                    ((key, rows), time, d) for rows, d in ((old, -1), (count[key], 1)) if rows
                ]
    return updates
