"""A thin arrangement: for each key its values in order, each with its multiplicity.

Columns of a run: `h`, the key columns `k0 ..`, `v`, for types without an order of their own
`s` (DuckDB's sort key), and `n`. A run is sorted by (h, v) and has a (key, value) at most
once; the runs add up. It serves min, max and the DISTINCT aggregates of one column (rule 37).

Cost: finding the count of a value, or where a search starts, is a binary search in the slice
of the key's hash: O(log n) places of each run, whatever the group's size. `extreme` walks on
from there, twice as far each round, until every key has found a value that is there.

Two keys may share a hash: their values then lie in one slice, and the key columns decide.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streams.trace.arrange import merge, order
from streams.trace.arrange.runs import Run, RunFiles, RunName
from streams.trace.columns import (
    Flags,
    Ints,
    Words,
    equal_rows,
    group,
    int64,
    key_form,
    spans,
    uint64,
)
from streams.trace.exact.diffs import sum_at, sum_by
from streams.trace.kernel.kernel import Kernel

_FIRST_REACH = 4
_SCANNED = 32
"""Places of a run for each value, on average, up to which reading all beats a search."""


@dataclass(frozen=True, slots=True)
class Entries:
    """(key, value) pairs asked for: the key's number, hash, the value and what compares it.

    All are aligned but `keys`: the keys' columns in key form, one row a key number.
    """

    keys: Sequence[pa.Array]
    owner: Ints
    hashes: Words
    values: pa.Array
    compared: pa.Array

    def choose(self, places: Ints) -> "Entries":
        """These entries alone."""
        at = pa.array(places)
        return Entries(
            self.keys,
            self.owner[places],
            self.hashes[places],
            self.values.take(at),
            self.compared.take(at),
        )


def schema(keys: Sequence[pa.DataType], value: pa.DataType) -> pa.Schema:
    """The schema of the runs of a thin arrangement."""
    fields = [
        ("h", pa.uint64()),
        *((f"k{i}", kind) for i, kind in enumerate(keys)),
        ("v", value),
    ]
    if not (order.is_ranked(value) or order.is_bytes(value)):
        fields.append(("s", pa.binary()))
    return pa.schema([*fields, ("n", pa.int64())])


def order_column(rows: pa.RecordBatch) -> pa.Array:
    """The column that orders the rows of a run."""
    return rows.column("s" if "s" in rows.schema.names else "v")


def same_key(run: Run, places: Ints, entries: Entries, which: Ints, kernel: Kernel) -> Flags:
    """Whether the run's row at a place has the key of the entry it was found for."""
    result = np.ones(len(places), np.bool_)
    at, owners = pa.array(places), pa.array(entries.owner[which])
    for index, key in enumerate(entries.keys):
        column = key_form(run.rows.column(1 + index).take(at), kernel)
        result &= equal_rows(column, key.take(owners))
    return result


@dataclass(frozen=True, slots=True)
class Positions:
    """The places of entries in a run: [low, high) of the key's hash, [first, end) of the value.

    With two keys of one hash some may be of the other key.
    """

    low: Ints
    high: Ints
    first: Ints
    end: Ints


def positions(run: Run, entries: Entries) -> Positions:
    """The places of each entry in a run."""
    low = np.searchsorted(run.hashes, entries.hashes, "left")
    high = np.searchsorted(run.hashes, entries.hashes, "right")
    read = order.reader(order_column(run.rows))
    wanted, sizes = order.comparables(entries.compared), high - low
    if sizes.sum() > _SCANNED * len(sizes):
        first = order.bound(read, low, high, wanted, after=False)
        return Positions(low, high, first, _end(read, first, high, wanted))
    which = np.repeat(np.arange(len(sizes)), sizes)
    here, wanted_here = read(spans(low, sizes)), order.choose(wanted, which)
    before = np.bincount(which[order.less(here, wanted_here)], minlength=len(sizes))
    beyond = np.bincount(which[order.less(wanted_here, here)], minlength=len(sizes))
    return Positions(low, high, low + before, high - beyond)


def counts(runs: Sequence[Run], entries: Entries, kernel: Kernel) -> Ints:
    """The multiplicity of each entry. Errors: DiffOverflow."""
    return counts_at(runs, [positions(run, entries) for run in runs], entries, kernel)


def counts_at(
    runs: Sequence[Run], places_of: Sequence[Positions], entries: Entries, kernel: Kernel
) -> Ints:
    """The multiplicity of each entry, which is at these places of each run."""
    none = np.empty(0, np.int64)
    met, numbers = [none], [none]
    for run, at in zip(runs, places_of, strict=True):
        sizes = at.end - at.first
        which, places = np.repeat(np.arange(len(sizes)), sizes), spans(at.first, sizes)
        mine = same_key(run, places, entries, which, kernel)
        met.append(which[mine])
        numbers.append(int64(run.rows.column("n"))[places[mine]])
    return sum_at(np.concatenate(met), len(entries.owner), np.concatenate(numbers))


def _end(
    read: Callable[[Ints], order.Comparable], first: Ints, high: Ints, wanted: order.Comparable
) -> Ints:
    """For each i the first place from first[i], but for high[i], that is beyond wanted[i].

    There is one value at most from first[i] on, but for keys of equal hash.
    """
    last = first.copy()
    for _ in range(2):
        some = np.flatnonzero(last < high)
        some = some[~order.less(order.choose(wanted, some), read(last[some]))]
        if not len(some):
            return last
        last[some] += 1
    return order.bound(read, last, high, wanted, after=True)


def insert(
    files: RunFiles, names: Sequence[RunName], rows: pa.RecordBatch, kernel: Kernel
) -> list[RunName]:
    """The runs with these rows added; `rows` has the schema of the runs, sorted by `h`."""
    if not rows.num_rows:
        return list(names)
    count = files.victims(names, rows)
    remaining, merged = list(names[: len(names) - count]), names[len(names) - count :]
    parts = [*(run.rows for run in files.open(merged)), rows]
    pieces = _pieces(parts, files.piece)
    return [*remaining, *files.write(_merged(piece, kernel) for piece in pieces)]


def _pieces(parts: Sequence[pa.RecordBatch], limit: int) -> Iterator[list[pa.RecordBatch]]:
    """The parts in pieces of at most `limit` bytes; the values of a key are cut apart too."""
    if merge.buffer_bytes(parts) <= limit:
        yield list(parts)
        return
    *runs, new = parts
    parts = [*runs, new.take(pa.array(_sorted([new], order.ranks(order_column(new)))[0]))]
    for piece in merge.by_hash(parts, limit):
        columns = [uint64(part.column("h")) for part in piece]
        ends = {int(column[place]) for column in columns for place in (0, -1)}
        if len(ends) > 1 or merge.size_of(piece) <= limit:
            yield piece
        else:
            yield from _by_value(piece, limit)


def _by_value(parts: Sequence[pa.RecordBatch], limit: int) -> Iterator[list[pa.RecordBatch]]:
    """Parts of one hash, each in order of value, in pieces of at most `limit` bytes."""
    places = merge.sample_positions(parts, limit)
    samples = order.comparables(
        pa.concat_arrays(
            [
                order_column(part).take(pa.array(at))
                for part, at in zip(parts, places, strict=True)
            ]
        )
    )
    none = np.zeros(len(samples), np.int64)
    before = [
        order.bound(
            order.reader(order_column(part)), none, none + part.num_rows, samples, after=True
        )
        for part in parts
    ]
    yield from merge.cut(parts, before, limit)


def _merged(parts: Sequence[pa.RecordBatch], kernel: Kernel) -> pa.RecordBatch:
    """The rows of these parts as a run has them."""
    everything = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
    hashes = np.concatenate([uint64(part.column("h")) for part in parts])
    ranks = order.ranks(order_column(everything))
    places, starts = _sorted(parts, ranks)
    if len(starts) < len(places):
        return _summed(everything, places, hashes, ranks, kernel)
    return everything.take(pa.array(places))


def _sorted(parts: Sequence[pa.RecordBatch], ranks: Ints) -> tuple[Ints, Ints]:
    """The order by hash and rank, and where in it each (hash, rank) starts."""
    return order.sort([_numbers(parts), ranks], nearly=True)


def _numbers(parts: Sequence[pa.RecordBatch]) -> Ints:
    """A small number for each row's hash, in the order of the hashes; each part is sorted."""
    columns = [uint64(part.column("h")) for part in parts]
    begins = [order.starts([column.view(np.int64)]) for column in columns]
    firsts = [column[begin] for column, begin in zip(columns, begins, strict=True)]
    everything = np.sort(np.concatenate(firsts), kind="stable")
    distinct = everything[order.starts([everything.view(np.int64)])]
    return np.concatenate(
        [
            np.repeat(np.searchsorted(distinct, first), np.diff(np.append(begin, len(column))))
            for column, begin, first in zip(columns, begins, firsts, strict=True)
        ]
    )


def _summed(
    rows: pa.RecordBatch, places: Ints, hashes: Words, ranks: Ints, kernel: Kernel
) -> pa.RecordBatch:
    """The rows in this order with equal (key, value) summed, and none of zero."""
    hashes, ranks, numbers = hashes[places], ranks[places], int64(rows.column("n"))[places]
    twin = (hashes[1:] == hashes[:-1]) & (ranks[1:] == ranks[:-1])
    if twin.any():
        both = np.zeros(len(places), np.bool_)
        both[1:] |= twin
        both[:-1] |= twin
        suspects = np.flatnonzero(both)
        chosen = rows.take(pa.array(places[suspects]))
        forms = [key_form(column, kernel) for column in chosen.columns[1:-1]]
        groups = group(forms, len(suspects))
        totals = sum_by(groups, numbers[suspects])
        numbers = numbers.copy()
        numbers[suspects] = 0
        numbers[suspects[groups.first]] = totals
    nonzero = np.flatnonzero(numbers)
    columns = [column.take(pa.array(places[nonzero])) for column in rows.columns[:-1]]
    return pa.RecordBatch.from_arrays(
        [*columns, pa.array(numbers[nonzero])], schema=rows.schema
    )


@dataclass(slots=True)
class Cursor:
    """The position in one run from which to read on for each key, and the places left."""

    run: Run
    at: Ints
    left: Ints
    stride: int

    def places(self, todo: Ints, reach: int | Ints) -> tuple[Ints, Ints]:
        """The next places of these keys, at most `reach` of each, and whose they are."""
        counts = np.minimum(self.left[todo], reach)
        steps = spans(np.zeros(len(todo), np.int64), counts)
        which = np.repeat(np.arange(len(todo)), counts)
        return which, self.at[todo][which] + self.stride * steps


@dataclass(frozen=True, slots=True)
class Read:
    """Rows read from all cursors: whose, from which cursor, at which place, what they hold."""

    which: Ints
    cursor: Ints
    places: Ints
    same: Flags
    counts: Ints
    values: pa.Array
    compared: pa.Array


def extreme(
    runs: Sequence[Run], start: Entries, touched: Entries, kernel: Kernel, *, largest: bool
) -> pa.Array:
    """For each entry of `start` the next value of its key that is there; NULL without one.

    The search begins at the entry's own value and goes up, or down for `largest`. Values
    among the `touched` are passed over. `start` has a key at most once.
    """
    cursors = [cursor_at(run, start, largest=largest) for run in runs]
    todo = np.arange(len(start.owner))
    keys, values = [np.empty(0, np.int64)], [start.values.slice(0, 0)]
    reach = _FIRST_REACH
    while True:
        todo = todo[
            sum((cursor.left[todo] for cursor in cursors), np.zeros(len(todo), int)) > 0
        ]
        if not len(todo):
            break
        read = read_on(cursors, start, todo, reach, kernel)
        hits, places = _settle(cursors, read, start, touched, todo, largest=largest)
        keys.append(todo[hits])
        values.append(read.values.take(pa.array(places)))
        todo = np.delete(todo, hits)
        reach *= 2
    order_of = np.full(len(start.owner), -1, np.int64)
    done = np.concatenate(keys)
    order_of[done] = np.arange(len(done))
    return pa.concat_arrays(values).take(pa.array(order_of, mask=order_of < 0))


def cursor_at(run: Run, start: Entries, *, largest: bool) -> Cursor:
    """The positions in a run from which each entry's values begin, up or down."""
    low = np.searchsorted(run.hashes, start.hashes, "left")
    high = np.searchsorted(run.hashes, start.hashes, "right")
    read, wanted = order.reader(order_column(run.rows)), order.comparables(start.compared)
    first = order.bound(read, low, high, wanted, after=largest)
    if largest:
        return Cursor(run, first - 1, first - low, -1)
    return Cursor(run, first, high - first, 1)


def read_on(
    cursors: Sequence[Cursor], start: Entries, todo: Ints, reach: int | Ints, kernel: Kernel
) -> Read:
    """The next rows of the keys that are still looked for, at most `reach` from each run."""
    parts = []
    for number, cursor in enumerate(cursors):
        which, places = cursor.places(todo, reach)
        rows, at = cursor.run.rows, pa.array(places)
        same = same_key(cursor.run, places, start, todo[which], kernel)
        parts.append(
            Read(
                which,
                np.full(len(which), number),
                places,
                same,
                int64(rows.column("n"))[places],
                rows.column("v").take(at),
                order_column(rows).take(at),
            )
        )
    return Read(
        np.concatenate([part.which for part in parts]),
        np.concatenate([part.cursor for part in parts]),
        np.concatenate([part.places for part in parts]),
        np.concatenate([part.same for part in parts]),
        np.concatenate([part.counts for part in parts]),
        pa.concat_arrays([part.values for part in parts]),
        pa.concat_arrays([part.compared for part in parts]),
    )


def _settle(
    cursors: Sequence[Cursor],
    read: Read,
    start: Entries,
    touched: Entries,
    todo: Ints,
    *,
    largest: bool,
) -> tuple[Ints, Ints]:
    """Judge what was read and move the cursors on: keys that found a value, and where.

    A value is judged when every run has shown all it has of it: when it comes before the last
    value shown by each run that has more (the horizon of its key).
    """
    number = np.full(int(max(start.owner.max(), touched.owner.max(initial=0))) + 1, -1)
    number[start.owner[todo]] = np.arange(len(todo))
    passed = np.flatnonzero(number[touched.owner] >= 0)
    skipped = touched.compared.take(pa.array(passed))
    ranks = order.directed_ranks(pa.concat_arrays([read.compared, skipped]), largest=largest)
    rank = ranks[: len(read.which)]
    judged = rank < horizon(cursors, read, rank, todo)[read.which]
    whose = np.concatenate((read.which, number[touched.owner[passed]]))
    ids = group([whose, ranks], len(whose)).ids
    counts = sum_at(ids[: len(rank)], int(ids.max()) + 1, np.where(read.same, read.counts, 0))
    counts[ids[len(rank) :]] = 0
    live = np.flatnonzero(judged & read.same & (counts[ids[: len(rank)]] > 0))
    advance_cursors(cursors, read, judged, todo)
    live = live[np.lexsort((rank[live], read.which[live]))]
    hits, first = np.unique(read.which[live], return_index=True)
    return hits, live[first]


def advance_cursors(cursors: Sequence[Cursor], read: Read, judged: Flags, todo: Ints) -> None:
    """Move the cursors past what was judged."""
    for index, cursor in enumerate(cursors):
        moved = np.bincount(read.which[judged & (read.cursor == index)], minlength=len(todo))
        cursor.at[todo] += cursor.stride * moved
        cursor.left[todo] -= moved


def horizon(cursors: Sequence[Cursor], read: Read, rank: Ints, todo: Ints) -> Ints:
    """For each key the rank below which all runs have shown everything."""
    horizon = np.full(len(todo), np.iinfo(np.int64).max)
    for index, cursor in enumerate(cursors):
        mine = np.flatnonzero(read.cursor == index)
        shown = np.bincount(read.which[mine], minlength=len(todo))
        more = np.flatnonzero((shown > 0) & (cursor.left[todo] > shown))
        last = mine[np.cumsum(shown)[more] - 1]
        horizon[more] = np.minimum(horizon[more], rank[last])
    return horizon
