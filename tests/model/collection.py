"""A collection as a multiset that is recomputed from scratch at every time.

    Update = (row, time, diff)      contents(updates, t) = sum of diff by row over time <= t

The operators below are the plainest functions over such contents. Nothing here knows of
intervals, state, buckets or runs: properties compare the engine against it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Row = tuple[Any, ...]
Update = tuple[Row, int, int]
Contents = Counter[Row]


def contents(updates: Iterable[Update], time: int) -> Contents:
    """The rows that are there at a time, with their multiplicities; none of zero."""
    total: Contents = Counter()
    for row, at, diff in updates:
        if at <= time:
            total[row] += diff
    return Counter({row: count for row, count in total.items() if count})


def times(*updates: Iterable[Update]) -> list[int]:
    """Every time at which something may change."""
    return sorted({at for update in updates for _, at, _ in update})


def join(left: Contents, right: Contents, on: Callable[[Row, Row], bool]) -> Contents:
    """All pairs that match; multiplicities multiply."""
    pairs: Contents = Counter()
    for one, m in left.items():
        for two, n in right.items():
            if on(one, two):
                pairs[one + two] += m * n
    return pairs


def distinct(rows: Contents) -> Contents:
    """Every row once."""
    return Counter(dict.fromkeys((row for row, count in rows.items() if count > 0), 1))


def groups(rows: Contents, keys: Sequence[int]) -> dict[Row, list[Row]]:
    """The rows of each group, as often as they are there."""
    matches: dict[Row, list[Row]] = defaultdict(list)
    for row, count in rows.items():
        matches[tuple(row[key] for key in keys)] += [row] * count
    return {key: members for key, members in matches.items() if members}


def reduce(
    rows: Contents, keys: Sequence[int], aggregate: Callable[[list[Row]], Row]
) -> Contents:
    """One row a group: its key and what `aggregate` makes of its members."""
    if not keys:
        return Counter([aggregate(groups(rows, keys).get((), []))])
    return Counter(key + aggregate(members) for key, members in groups(rows, keys).items())


def latest(updates: Iterable[Update], time: int, keys: Sequence[int]) -> list[Row]:
    """Of each key the last row by (time, position); a row ends in position, kind, error."""
    last: dict[Row, tuple[tuple[int, int], Row]] = {}
    for row, at, _ in updates:
        key, place = tuple(row[key] for key in keys), (at, row[-3])
        if at <= time and (key not in last or last[key][0] <= place):
            last[key] = (place, row)
    return [row for _, row in last.values()]
