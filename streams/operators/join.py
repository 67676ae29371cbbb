"""Inner join on equal keys, by the bilinear rule.

With A and B the state before the interval and dA, dB the changes in it:

    d(A join B) = dA join B + A join dB + dA join dB

where a pair of changes has the later of its two times: it exists exactly while both rows do.
State has no times, so the first two terms have the time of the change. Diffs are multiplied.
The rule is exact at every time, for any number of times in the interval.

A NULL in a key matches nothing, unless the position is `null_equal`; such rows are not stored.
Residual predicates are evaluated for each matching pair separately, as by a filter: a pair for
which one fails is an error while both its rows exist, and does not affect other pairs.

Both sides are sorted by the hashes of their keys once: matches are found in one pass, pairs of
a key are adjacent, and changes are added to the state without sorting them again.

Cost: O(changes + rows they match), and a search in the state for each key that changed. With
residual predicates at most `MOST_PAIRS` pairs, or those of one row, are in memory at a time.
Where the kernel bounds its answers, pairs that would take more bytes are not made.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streams.operators import linear
from streams.operators.context import EngineCall, NodeOutput, Ports
from streams.plan.physical import Arrange, Asof, Expression, Join, Linear
from streams.trace.arrange import multiset
from streams.trace.arrange.runs import RunName
from streams.trace.columns import (
    Ints,
    Words,
    ascending,
    equal_rows,
    hash_keys,
    int64,
    is_ascending,
    is_exact,
    new_runs,
    search_sorted,
    spans,
    uint64,
)
from streams.trace.exact.diffs import products
from streams.trace.kernel.kernel import Kernel, arrow_schema, data_schema
from streams.trace.updates import flatten, key_columns, permute

SIDES = ("left", "right")
MOST_PAIRS = 1 << 20
LEAST_OF_PAIR = 32
"""Bytes that a pair takes at least: the places of its rows, a time and a diff."""


@dataclass(frozen=True, slots=True)
class JoinSide:
    """Rows of one side that can match, in the order of their keys' hashes.

    `forms` are the keys in key form; rows have times where they are changes.
    """

    rows: pa.RecordBatch
    hashes: Words
    forms: list[pa.Array]
    diffs: Ints
    times: Ints | None


@dataclass(frozen=True, slots=True)
class JoinInputs:
    """The inputs of a join step: the sides are 0, `left`, and 1, `right`.

    `ports` have the updates of each side and `runs` its state; `types` are the DuckDB types of
    its columns, and `output_types` those of the output.
    """

    ports: Ports
    runs: Mapping[str, list[RunName]]
    types: tuple[Sequence[str], Sequence[str]]
    output_types: Sequence[str]
    scope: EngineCall

    def updates(self, side: int) -> pa.RecordBatch:
        """The changes of a side."""
        return flatten(self.ports.get(SIDES[side], []), arrow_schema(self.types[side]))

    def names(self, side: int) -> list[RunName]:
        """The runs of a side."""
        return self.runs.get(SIDES[side], [])


def step(node: Join, sides: JoinInputs) -> NodeOutput:
    """The changes of the join over the interval, and the new runs of both sides."""
    scope, types = sides.scope, sides.types
    kernel = scope.kernel
    keys = (node.left_keys, node.right_keys)
    changes = [changed_side(sides.updates(i), keys[i], node, kernel) for i in (0, 1)]
    if not any(change.rows.num_rows for change in changes):
        return NodeOutput(None, runs=sides.runs)
    states = [
        stored_side(sides.names(i), changes[1 - i].hashes, types[i], keys[i], scope)
        for i in (0, 1)
    ]
    terms = ((changes[0], states[1]), (states[0], changes[1]), (changes[0], changes[1]))
    output, errors = product(terms, node, sides.output_types, kernel)
    run_names = {
        side: multiset.insert(
            scope.context.files, sides.names(i), stored_rows(changes[i], types[i]), kernel
        )
        for i, side in enumerate(SIDES)
    }
    return NodeOutput(output if output.num_rows else None, errors, run_names)


def product(
    terms: Sequence[tuple[JoinSide, JoinSide]],
    node: Join,
    output_types: Sequence[str],
    kernel: Kernel,
) -> tuple[pa.RecordBatch, tuple[pa.RecordBatch, ...]]:
    """The pairs of each term, of which one side at least has times, and the errors of pairs."""
    parts: list[pa.RecordBatch] = []
    errors: list[pa.RecordBatch] = []
    size = 0
    for left, right in terms:
        for match in matches(left, right, kernel, in_portions=bool(node.residual)):
            paired = pairs(left, right, *match, arrow_schema(output_types))
            judged = _judged(paired, node.residual, output_types, kernel)
            errors += judged.errors
            if judged.output is not None:
                parts.append(judged.output)
                size += judged.output.nbytes
                kernel.allow(size)
    return flatten(parts, arrow_schema(output_types)), tuple(errors)


def changed_side(
    rows: pa.RecordBatch, keys: Sequence[int], node: Join | Asof | Arrange, kernel: Kernel
) -> JoinSide:
    """A side's updates, those that can match."""
    rows = _matchable(rows, keys, node.null_equal)
    hashes = hash_keys(key_columns(rows, keys, kernel)[1], rows.num_rows)
    if not is_ascending(hashes):
        order = ascending(hashes)
        rows, hashes = permute(rows, order), hashes[order]
    forms = key_columns(rows, keys, kernel)[1]
    return JoinSide(rows, hashes, forms, int64(rows.column("diff")), int64(rows.column("time")))


def _matchable(
    rows: pa.RecordBatch, keys: Sequence[int], null_equal: Sequence[bool]
) -> pa.RecordBatch:
    keep = np.ones(rows.num_rows, np.bool_)
    for key, equal in zip(keys, null_equal, strict=True):
        column = rows.column(key)
        if column.null_count and not equal:
            keep &= column.is_valid().to_numpy(zero_copy_only=False)
    return rows if keep.all() else rows.filter(pa.array(keep))


def stored_side(
    names: Sequence[RunName],
    hashes: Words,
    types: Sequence[str],
    keys: Sequence[int],
    scope: EngineCall,
) -> JoinSide:
    """The rows of state whose keys' hashes are among these, which ascend."""
    shape = multiset.schema(data_schema(types))
    wanted = hashes[new_runs(hashes)]
    rows = multiset.candidates(scope.context.files.open(names), wanted, shape)
    if not is_ascending(uint64(rows.column(0))):
        rows = rows.take(pa.array(ascending(uint64(rows.column(0)))))
    data = rows.select(list(range(1, 1 + len(types))))
    forms = key_columns(data, keys, scope.kernel)[1]
    return JoinSide(data, uint64(rows.column(0)), forms, int64(rows.column("diff")), None)


def _judged(
    paired: pa.RecordBatch,
    residual: tuple[Expression, ...],
    output_types: Sequence[str],
    kernel: Kernel,
) -> NodeOutput:
    """The pairs for which every residual predicate is true, and the errors."""
    if not residual:
        return NodeOutput(paired)
    columns = tuple(Expression(f"c{i}", kind, f"c{i}") for i, kind in enumerate(output_types))
    return linear.step(Linear(0, residual, columns), paired, output_types, output_types, kernel)


def matches(
    left: JoinSide, right: JoinSide, kernel: Kernel, *, in_portions: bool = False
) -> Iterator[tuple[Ints, Ints]]:
    """The pairs of rows of equal keys, by place; in portions if they are to be judged.

    Errors: AnswerTooLarge.
    """
    if not left.rows.num_rows or not right.rows.num_rows:
        return
    swapped = left.rows.num_rows > right.rows.num_rows
    wanted, present = (right.hashes, left.hashes) if swapped else (left.hashes, right.hashes)
    starts = search_sorted(present, wanted, after=False)
    counts = search_sorted(present, wanted, after=True) - starts
    for begin, end in bounded_ranges(counts) if in_portions else [(0, len(wanted))]:
        here = counts[begin:end]
        kernel.allow(int(here.sum()) * LEAST_OF_PAIR)
        wanted_places = np.repeat(np.arange(begin, end), here)
        present_places = spans(starts[begin:end], here)
        yield _of_equal_keys(
            left,
            right,
            *((present_places, wanted_places) if swapped else (wanted_places, present_places)),
        )


def _of_equal_keys(
    left: JoinSide, right: JoinSide, left_places: Ints, right_places: Ints
) -> tuple[Ints, Ints]:
    """The pairs whose keys are equal, not only their hashes."""
    if is_exact(left.forms) and is_exact(right.forms):
        return left_places, right_places
    equal = np.ones(len(left_places), np.bool_)
    at_left, at_right = pa.array(left_places), pa.array(right_places)
    for a, b in zip(left.forms, right.forms, strict=True):
        equal &= equal_rows(a.take(at_left), b.take(at_right))
    return (
        (left_places, right_places)
        if equal.all()
        else (left_places[equal], right_places[equal])
    )


def bounded_ranges(matches: Ints) -> Iterator[tuple[int, int]]:
    """Ranges of rows that have `MOST_PAIRS` matches together, or are of one row."""
    ends, begin = np.cumsum(matches), 0
    while begin < len(matches):
        before = int(ends[begin]) - int(matches[begin])
        end = int(np.searchsorted(ends, before + MOST_PAIRS, "right"))
        yield begin, max(end, begin + 1)
        begin = max(end, begin + 1)


def pairs(
    left: JoinSide, right: JoinSide, left_places: Ints, right_places: Ints, schema: pa.Schema
) -> pa.RecordBatch:
    """The pairs of left's rows at `left_places` with right's at `right_places`, as updates."""
    times = [
        side.times[at]
        for side, at in ((left, left_places), (right, right_places))
        if side.times is not None
    ]
    time = np.maximum(times[0], times[1]) if len(times) > 1 else times[0]
    at_left, at_right = pa.array(left_places), pa.array(right_places)
    width = _width(left), _width(right)
    columns = [column.take(at_left) for column in left.rows.columns[: width[0]]]
    columns += [column.take(at_right) for column in right.rows.columns[: width[1]]]
    columns += [
        pa.array(time),
        pa.array(products(left.diffs[left_places], right.diffs[right_places])),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _width(side: JoinSide) -> int:
    """The number of data columns: changes carry time and diff beside them."""
    return int(side.rows.num_columns) - (0 if side.times is None else 2)


def stored_rows(side: JoinSide, types: Sequence[str]) -> pa.RecordBatch:
    """A side's updates as they are kept."""
    columns = [pa.array(side.hashes), *side.rows.columns[: len(types)], pa.array(side.diffs)]
    return pa.RecordBatch.from_arrays(columns, schema=multiset.schema(data_schema(types)))
