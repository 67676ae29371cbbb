"""The proof at the end: every view at many times, against DuckDB over the inputs at that time.

The view's contents at t come from the view's own shard, the inputs' contents at t from the
sources' shards; DuckDB answers the view's query over the latter, from scratch. Both are
compared as multisets. Nothing is shared between the two paths but the sources' shards.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from streams.ids import Timestamp
from streams.trace.kernel.kernel import Kernel


@dataclass(frozen=True, slots=True)
class History:
    """A collection as read back: its updates, and the interval in which they are exact.

    Shape: `updates` has columns `c0 .. cn`, `time`, `diff`; `names` are the columns' names.
    """

    name: str
    names: tuple[str, ...]
    updates: pa.Table
    since: Timestamp
    upper: Timestamp

    @property
    def is_grow_only(self) -> bool:
        """Whether every update adds one row, so that nothing ever cancels."""
        return bool(pc.all(pc.equal(self.updates.column("diff"), 1)).as_py())


@dataclass(frozen=True, slots=True)
class Verdict:
    """One view at one time: how many rows were expected, and how many differ."""

    view: str
    time: Timestamp
    rows: int
    wrong: int


def spread(since: Timestamp, upper: Timestamp, moments: Sequence[int], count: int) -> list[int]:
    """About `count` times of [since, upper): both ends, and the others among `moments`.

    `moments` are times at which something changed, ascending: a time between two changes
    would only repeat what the earlier of them shows.
    """
    inside = [moment for moment in moments if since <= moment < upper]
    wanted = max(count - 2, 1)
    step = max(len(inside) / wanted, 1.0)
    picked = {inside[int(i * step)] for i in range(min(wanted, len(inside)))}
    picked |= {since, upper - 1}
    filler = iter(range(since + 1, upper - 1, max((upper - since) // (2 * count), 1)))
    while len(picked) < min(count, upper - since):
        picked.add(next(filler))
    return sorted(picked)


def verify(
    views: Mapping[str, tuple[str, History]],
    inputs: Sequence[History],
    kernel: Kernel,
    times_per_view: int,
) -> Iterator[Verdict]:
    """Check each view, given as (query, history), at `times_per_view` times of its interval.

    Among them are times at which an input changed: what a view did not say is wrong from there
    on, and from nowhere else.
    """
    for name, (query, history) in views.items():
        since = max([history.since, *(history.since for history in inputs)])
        upper = min([history.upper, *(history.upper for history in inputs)])
        moments = changes([history, *inputs])
        for time in spread(Timestamp(since), Timestamp(upper), moments, times_per_view):
            yield _compare(name, query, history, inputs, kernel, Timestamp(time))


def changes(histories: Sequence[History]) -> list[int]:
    """The times at which any of the collections changed, ascending."""
    times = [pc.unique(history.updates.column("time")) for history in histories]
    times_: list[int] = pc.unique(pa.concat_arrays(times)).sort().to_pylist()
    return times_


def contents(history: History, time: Timestamp, kernel: Kernel) -> pa.Table:
    """The rows of a collection at `time`, repeated by multiplicity, under their own names."""
    columns = ", ".join(f'c{i} AS "{name}"' for i, name in enumerate(history.names))
    if not history.is_grow_only:
        plain = ", ".join(f"c{i}" for i in range(len(history.names)))
        source = f"""(SELECT {plain}, CAST(sum(diff) AS BIGINT) AS n FROM updates
                      WHERE time <= {time} GROUP BY ALL HAVING sum(diff) <> 0), range(n)"""
        return kernel.query(f"SELECT {columns} FROM {source}", updates=history.updates)
    return kernel.query(
        f"SELECT {columns} FROM updates WHERE time <= {time}", updates=history.updates
    )


def _compare(
    name: str,
    query: str,
    history: History,
    inputs: Sequence[History],
    kernel: Kernel,
    time: Timestamp,
) -> Verdict:
    tables = {history.name: contents(history, time, kernel) for history in inputs}
    expected = kernel.query(query, **tables)
    actual = contents(history, time, kernel)
    differing = kernel.query(
        """SELECT count(*) AS n FROM (
             (SELECT * FROM expected EXCEPT ALL SELECT * FROM actual)
             UNION ALL
             (SELECT * FROM actual EXCEPT ALL SELECT * FROM expected))""",
        expected=expected,
        actual=actual,
    )
    return Verdict(name, time, expected.num_rows, differing.column("n")[0].as_py())
