"""ASOF join: pairs each left row with the right row whose range contains it.

The ranges of the right rows of a key never overlap: the range of a row ends where the range of
its neighbour begins (`plan.bind.asof`). So this is an ordinary join by the bilinear rule
(`operators.join`), in which matching rows are found by search in key order:

    dA join B      the last range that begins before the point
    A join dB      the points within the inserted and deleted ranges
    dA join dB     the changed points within the changed ranges, compared directly

A change of a right row moves the end of a neighbour's range: the range is deleted and inserted
again at the same time, shorter or longer. Only the difference of the two ranges is searched, so
left rows whose match does not change cost nothing; for that reason the output does not contain
the end of a range.

Rows with a NULL in a key, unless it is `null_equal`, in the point or in the start match nothing
and are not kept, and neither are rows of an empty range.

State: either side's rows in order (`trace.arrange.ordered`). Cost: O(changes + pairs that come
or go), and a search of O(log n) places of each run for each change. Where both sides change at
many times of the interval, a change on the left meets as many changes of its range.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streams.operators import join
from streams.operators.context import NodeOutput
from streams.operators.frame_visibility import keys, upper_bound_of_prefix
from streams.operators.join import JoinInputs, JoinSide
from streams.operators.ordered_groups import sort_keys_of
from streams.plan.physical import Asof
from streams.trace.arrange import order, ordered
from streams.trace.arrange.first_rows import Gaps, first_rows_in_ranges
from streams.trace.arrange.runs import Run, RunName
from streams.trace.columns import Ints, group, key_form, spans
from streams.trace.exact.diffs import running_values
from streams.trace.kernel.kernel import Kernel, arrow_schema, data_schema
from streams.trace.updates import consolidate, flatten, key_columns

_ALL = 1 << 40
"""More rows than a key can have."""


@dataclass(frozen=True, slots=True)
class _Ranged:
    """Changes of right's rows: each row's range, from `low` and before `high`, as sort keys."""

    side: JoinSide
    low: pa.Array
    high: pa.Array


def step(node: Asof, sides: JoinInputs) -> NodeOutput:
    """The changes of the join over the interval, and the new runs of both sides."""
    work = _Work(node, sides)
    points = work.changed(0, node.point)
    ranged = work.ranged(work.changed(1, node.start))
    if not points.rows.num_rows and not ranged.side.rows.num_rows:
        return NodeOutput(None, runs=sides.runs)
    values = work.points(points)
    moved = _moved(ranged, node.end, work.kernel)
    parts = [*work.found(points, values), *work.within(moved)]
    parts += work.together(points, values, moved)
    output = consolidate(flatten(parts, arrow_schema(sides.output_types)), work.kernel)
    run_names = {"left": work.kept(0, points), "right": work.kept(1, ranged.side)}
    return NodeOutput(output if output.num_rows else None, runs=run_names)


def _moved(ranged: _Ranged, end: int, kernel: Kernel) -> _Ranged:
    """The parts of ranges that change, for rows whose range changes at a time.

    For a row with the ends e1 < e2 < .., whose diffs are d1, d2, .., the part from e1 to e2
    changes by d2 + d3 + ..; parts with a sum of 0 are left out.
    """
    side, size = ranged.side, ranged.side.rows.num_rows
    columns = [c for i, c in enumerate(side.rows.columns[:-1]) if i != end]
    row = group([key_form(column, kernel) for column in columns], size).ids
    ranks = order.ranks(pa.concat_arrays([ranged.low, ranged.high]))
    places = np.lexsort((ranks[size:], row))
    row, diffs = row[places], side.diffs[places]
    first = np.searchsorted(row, row)
    behind = _behind(diffs, row)
    own = np.arange(size)
    high = ranged.high.take(pa.array(places))
    low = pc.if_else(
        pa.array(first == own),
        ranged.low.take(pa.array(places)),
        high.take(pa.array(np.maximum(own - 1, 0))),
    )
    shown = np.flatnonzero((behind != 0) & pc.less(low, high).to_numpy(zero_copy_only=False))
    at, by = pa.array(shown), places[shown]
    return _Ranged(_chosen(side, by, behind[shown]), low.take(at), high.take(at))


def _behind(diffs: Ints, row: Ints) -> Ints:
    """The sum of each row's diffs from each of them on. Errors: DiffOverflow."""
    starts = order.starts([row[::-1]])
    return running_values(diffs[::-1], starts, np.zeros(len(starts), np.int64))[::-1]


def _chosen(side: JoinSide, places: Ints, diffs: Ints) -> JoinSide:
    """These changes of a side, with other diffs."""
    at = pa.array(places)
    times = None if side.times is None else side.times[places]
    forms = [form.take(at) for form in side.forms]
    return JoinSide(side.rows.take(at), side.hashes[places], forms, diffs, times)


@dataclass(frozen=True, slots=True)
class _Work:
    """The state of a step."""

    node: Asof
    sides: JoinInputs

    @property
    def kernel(self) -> Kernel:
        """The worker's DuckDB."""
        return self.sides.scope.kernel

    @property
    def schema(self) -> pa.Schema:
        """Both sides' columns, time and diff."""
        return arrow_schema([*self.sides.types[0], *self.sides.types[1]])

    def opened(self, side: int) -> list[Run]:
        """The runs of a side before the interval."""
        return self.sides.scope.context.files.open(self.sides.names(side))

    def by(self, side: int) -> tuple[int, ...]:
        """The columns of a side's key."""
        return (self.node.left_keys, self.node.right_keys)[side]

    def changed(self, side: int, place: int) -> JoinSide:
        """A side's updates that can match: those with a value at this place."""
        rows = consolidate(self.sides.updates(side), self.kernel)
        if rows.column(place).null_count:
            rows = rows.filter(rows.column(place).is_valid())
        return join.changed_side(rows, self.by(side), self.node, self.kernel)

    def ranged(self, side: JoinSide) -> _Ranged:
        """Right's changes whose ranges are not empty."""
        low, high = self.ranges(side.rows.columns[:-2])
        there = pc.less(low, high).to_numpy(zero_copy_only=False)
        if there.all():
            return _Ranged(side, low, high)
        places = np.flatnonzero(there)
        at = pa.array(places)
        return _Ranged(_chosen(side, places, side.diffs[places]), low.take(at), high.take(at))

    def points(self, side: JoinSide) -> pa.Array:
        """The sort keys of the points of left's changes."""
        columns, types = side.rows.columns[:-2], self.sides.types[0]
        return keys([self.node.sorts[0]], columns, types, self.kernel)[0]

    def ranges(self, columns: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
        """The begin and end positions of the points in the ranges of right's rows."""
        low, high = keys(self.node.sorts[1:], columns, self.sides.types[1], self.kernel)
        return (
            (low, high)
            if self.node.closed
            else (upper_bound_of_prefix(low), upper_bound_of_prefix(high))
        )

    def found(self, points: JoinSide, values: pa.Array) -> Iterator[pa.RecordBatch]:
        """Left's changes beside the rows that were there before the interval."""
        size, runs = points.rows.num_rows, self.opened(1)
        if not size or not runs:
            return
        nothing = pa.nulls(size, pa.binary())
        high = upper_bound_of_prefix(values) if self.node.closed else values
        gaps = Gaps(points.forms, points.hashes, nothing, high)
        nearest = first_rows_in_ranges(
            runs, gaps, np.ones(size, np.int64), self.kernel, last=True
        )
        if nearest is None:
            return
        columns = nearest.rows.columns[2 + len(self.by(1)) : -1]
        _, ends = self.ranges(columns)
        keys_of_pairs = values.take(pa.array(nearest.which))
        inside = np.flatnonzero(pc.less(keys_of_pairs, ends).to_numpy(zero_copy_only=False))
        contents = self._held(columns, nearest.counts, 1)
        yield self._pairs(points, contents, nearest.which[inside], inside)

    def within(self, moved: _Ranged) -> Iterator[pa.RecordBatch]:
        """The rows on the left that were there before the interval beside right's changes."""
        size, runs = moved.side.rows.num_rows, self.opened(0)
        if not size or not runs:
            return
        gaps = Gaps(moved.side.forms, moved.side.hashes, moved.low, moved.high)
        enough = np.full(size, _ALL)
        some = first_rows_in_ranges(runs, gaps, enough, self.kernel, last=False, signed=True)
        if some is not None:
            columns = some.rows.columns[2 + len(self.by(0)) : -1]
            contents = self._held(columns, some.counts, 0)
            yield self._pairs(contents, moved.side, np.arange(len(some.which)), some.which)

    def together(
        self, points: JoinSide, values: pa.Array, moved: _Ranged
    ) -> Iterator[pa.RecordBatch]:
        """The changes of both sides, at the later one's time."""
        size, width = points.rows.num_rows, moved.side.rows.num_rows
        if not size or not width:
            return
        both = zip(points.forms, moved.side.forms, strict=True)
        owner = group([pa.concat_arrays(pair) for pair in both], size + width).ids
        ranks = order.ranks(pa.concat_arrays([values, moved.low, moved.high]))
        most = int(ranks.max()) + 1
        codes = owner[:size] * most + ranks[:size]
        by_code = np.argsort(codes, kind="stable")
        ends = [owner[size:] * most + codes for codes in np.split(ranks[size:], 2)]
        low, high = (np.searchsorted(codes[by_code], end) for end in ends)
        counts = high - low
        for begin, end in join.bounded_ranges(counts):
            here = counts[begin:end]
            left_rows, right_rows = (
                by_code[spans(low[begin:end], here)],
                np.repeat(np.arange(begin, end), here),
            )
            yield consolidate(
                self._pairs(points, moved.side, left_rows, right_rows), self.kernel
            )

    def _held(self, columns: Sequence[pa.Array], counts: Ints, side: int) -> JoinSide:
        """Rows of a side's state as a side of pairs."""
        schema = data_schema(self.sides.types[side])
        rows = pa.RecordBatch.from_arrays(list(columns), schema=schema)
        return JoinSide(rows, np.empty(0, np.uint64), [], counts, None)

    def _pairs(
        self, left: JoinSide, right: JoinSide, left_places: Ints, right_places: Ints
    ) -> pa.RecordBatch:
        """Pairs of rows, by place, without the end of the range."""
        self.kernel.allow(len(left_places) * join.LEAST_OF_PAIR)
        joined = join.pairs(left, right, left_places, right_places, self.schema)
        place = len(self.sides.types[0]) + self.node.end
        nothing = pa.nulls(joined.num_rows, self.schema.field(place).type)
        return joined.set_column(place, self.schema.field(place), nothing)

    def kept(self, side: int, changes: JoinSide) -> list[RunName]:
        """A side's runs from now on."""
        files, kernel = self.sides.scope.context.files, self.kernel
        rows, kinds = changes.rows, self.sides.types[side]
        data, by = rows.columns[:-2], key_columns(rows, self.by(side), kernel)[0]
        values = sort_keys_of(self.node.orders[side], rows, kinds, kernel)
        fields = [("h", pa.uint64()), *((f"k{i}", key.type) for i, key in enumerate(by))]
        shape = pa.schema(
            [*fields, ("v", pa.binary()), *list(rows.schema)[:-2], ("n", pa.int64())]
        )
        columns = [pa.array(changes.hashes), *by, values, *data, pa.array(changes.diffs)]
        added = pa.RecordBatch.from_arrays(columns, schema=shape)
        return ordered.insert(files, self.sides.names(side), added, kernel)
