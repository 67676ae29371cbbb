"""Finds the first rows of groups in a sorted arrangement, from a lower bound on (rule 37).

The arrangement is that of `trace.arrange.ordered`, whose runs here have the columns of a row
between the value that orders it and its multiplicity. Cost: O(log n) places of each run for
each group, and what is read from there until the rows wanted are found, whatever the group's
size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streams.trace.arrange import order, ordered
from streams.trace.arrange.ordered import Cursor, Entries, Read
from streams.trace.arrange.runs import Run
from streams.trace.columns import Flags, Ints, Words, group
from streams.trace.exact.diffs import saturated, sum_at
from streams.trace.kernel.kernel import Kernel

_FARTHEST = 1 << 40


@dataclass(frozen=True, slots=True)
class Leading:
    """Rows found: which of the groups asked for, the rows as runs have them, their counts.

    For each group in order of value; as many as were wanted, or all there are.
    """

    which: Ints
    rows: pa.RecordBatch
    counts: Ints

    def choose(self, places: Ints, which: Ints) -> "Leading":
        """The rows at these places, as those of other groups."""
        return Leading(which, self.rows.take(pa.array(places)), self.counts[places])


@dataclass(frozen=True, slots=True)
class Gaps:
    """Stretches of keys' values: beyond `low` (if there is one) and before `high` (likewise).

    `keys` are the columns of each gap's key in key form, `hashes` theirs. `low` and `high` are
    what orders values, NULL where a gap has no such end. `within` has for each run the places
    [low, high) that each gap is within; empty if they are not known.
    """

    keys: Sequence[pa.Array]
    hashes: Words
    low: pa.Array
    high: pa.Array
    within: Sequence[tuple[Ints, Ints]] = ()

    def choose(self, places: Ints) -> "Gaps":
        """These gaps alone."""
        at = pa.array(places)
        keys = [key.take(at) for key in self.keys]
        within = [(low[places], high[places]) for low, high in self.within]
        low, high = self.low.take(at), self.high.take(at)
        return Gaps(keys, self.hashes[places], low, high, within)

    def places(self, run: Run, number: int) -> tuple[Ints, Ints]:
        """The places [low, high) of each gap in a run, the `number`-th."""
        if self.within:
            low, high = (ends.copy() for ends in self.within[number])
        else:
            low = np.searchsorted(run.hashes, self.hashes, "left")
            high = np.searchsorted(run.hashes, self.hashes, "right")
        for ends, column, after in ((low, self.low, True), (high, self.high, False)):
            if column.null_count == len(column):
                continue
            read = order.reader(ordered.order_column(run.rows))
            some = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
            values = order.comparables(column.take(pa.array(some)))
            ends[some] = order.bound(read, low[some], high[some], values, after=after)
        return low, high


def first_rows(
    runs: Sequence[Run],
    start: Entries,
    touched: Entries,
    wanted: Ints,
    kernel: Kernel,
    *,
    last: bool = False,
) -> Leading | None:
    """For each entry of `start` the rows of its key from its value on; None for none.

    They go up, or for `last` down. Rows are counted with their multiplicity until there are as
    many as the entry has `wanted`, or a few more. Values among the `touched` are passed over.
    `start` has a key at most once.
    """
    cursors = [ordered.cursor_at(run, start, largest=last) for run in runs]
    cursors = [cursor for cursor in cursors if (cursor.left > 0).any()]
    return _Walk(cursors, start, touched, kernel, largest=last).until(wanted)


def first_rows_in_ranges(
    runs: Sequence[Run],
    gaps: Gaps,
    wanted: Ints,
    kernel: Kernel,
    *,
    last: bool,
    signed: bool = False,
) -> Leading | None:
    """The first rows of each gap, or the last: `wanted` different ones or a few more, or all.

    Rows of one gap come in order of value, or for `last` in the opposite order. Rows of a
    negative count are there only if counts may be `signed`.
    """
    size = len(gaps.hashes)
    nothing = gaps.low.slice(0, 0)
    start = Entries(gaps.keys, np.arange(size), gaps.hashes, gaps.low, gaps.low)
    none = Entries(gaps.keys, np.empty(0, np.int64), gaps.hashes[:0], nothing, nothing)
    cursors = [_cursor(run, gaps.places(run, i), last=last) for i, run in enumerate(runs)]
    cursors = [cursor for cursor in cursors if (cursor.left[wanted > 0] > 0).any()]
    walk = _Walk(cursors, start, none, kernel, last, rows=False, signed=signed)
    return walk.until(wanted)


def concatenate(parts: Sequence[Leading]) -> Leading | None:
    """The results of several searches; None for none."""
    if not parts:
        return None
    which = np.concatenate([part.which for part in parts])
    counts = np.concatenate([part.counts for part in parts])
    return Leading(which, pa.concat_batches([part.rows for part in parts]), counts)


def _cursor(run: Run, places: tuple[Ints, Ints], *, last: bool) -> Cursor:
    """A cursor over these places of a run, [low, high) for each gap."""
    low, high = places
    return Cursor(run, high - 1, high - low, -1) if last else Cursor(run, low, high - low, 1)


@dataclass(frozen=True, slots=True)
class _Walk:
    """Reading on in all runs; rows count as often as they are there, or once each."""

    cursors: Sequence[Cursor]
    start: Entries
    touched: Entries
    kernel: Kernel
    largest: bool = False
    rows: bool = True
    signed: bool = False

    def until(self, wanted: Ints) -> Leading | None:
        """Rows of each key until so many are found."""
        lacking = wanted.copy()
        ranges: list[tuple[Ints, Ints, Ints, Ints]] = []
        # The last row that is read of a run is judged only with the next ones.
        reach = np.clip(wanted + 1, 4, _FARTHEST)
        while True:
            nothing = np.zeros(len(wanted), np.int64)
            left = sum((cursor.left for cursor in self.cursors), nothing)
            todo = np.flatnonzero((lacking > 0) & (left > 0))
            if not len(todo):
                break
            read = ordered.read_on(self.cursors, self.start, todo, reach[todo], self.kernel)
            live, counts = self._judged(read, todo)
            which = todo[read.which[live]]
            weight = counts if self.rows else np.ones(len(which), np.int64)
            starts = order.starts([which])
            ends = np.append(starts, len(which))[1:] - 1
            met = which[starts]
            lacking[met] = np.maximum(lacking[met] - saturated(weight, starts)[ends], 0)
            ranges.append((which, read.cursor[live], read.places[live], counts))
            reach *= 2
        return _gathered([cursor.run for cursor in self.cursors], ranges)

    def _judged(self, read: Read, todo: Ints) -> tuple[Ints, Ints]:
        """The rows read that are there, one of each, and their counts; the cursors move on."""
        touched, owners = self.touched, (self.start.owner, self.touched.owner)
        number = np.full(max(int(owner.max(initial=0)) for owner in owners) + 1, -1)
        number[self.start.owner[todo]] = np.arange(len(todo))
        passed = np.flatnonzero(number[touched.owner] >= 0)
        skipped = touched.compared.take(pa.array(passed))
        compared = pa.concat_arrays([read.compared, skipped])
        ranks = order.directed_ranks(compared, largest=self.largest)
        rank, size = ranks[: len(read.which)], len(read.which)
        horizon = ordered.horizon(self.cursors, read, rank, todo)
        judged: Flags = rank < horizon[read.which]
        whose = np.concatenate((read.which, number[touched.owner[passed]]))
        ids = group([whose, ranks], len(whose)).ids
        counts = sum_at(ids[:size], int(ids.max()) + 1, np.where(read.same, read.counts, 0))
        counts[ids[size:]] = 0
        there = counts != 0 if self.signed else counts > 0
        live = np.flatnonzero(judged & read.same & there[ids[:size]])
        live = live[np.unique(ids[live], return_index=True)[1]]
        live = live[np.lexsort((rank[live], read.which[live]))]
        ordered.advance_cursors(self.cursors, read, judged, todo)
        return live, counts[ids[live]]


def _gathered(
    runs: Sequence[Run], ranges: Sequence[tuple[Ints, Ints, Ints, Ints]]
) -> Leading | None:
    if not ranges:
        return None
    which, cursor, places, counts = (
        np.concatenate([part[i] for part in ranges]) for i in range(4)
    )
    parts, order_of = [], np.empty(len(which), np.int64)
    done = 0
    for index, run in enumerate(runs):
        mine = np.flatnonzero(cursor == index)
        order_of[mine] = done + np.arange(len(mine))
        parts.append(run.rows.take(pa.array(places[mine])))
        done += len(mine)
    rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
    return Leading(which, rows.take(pa.array(order_of)), counts)
