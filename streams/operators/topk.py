"""Top-k: of each group's rows in order, those at [offset, upto), at every time.

The state holds each group's rows in order (`trace.arrange.ordered`, by DuckDB's sort key of the
row). A change touches some rows; all others, the *core*, are unchanged. The rows that can be
among the first `upto` rows at a time t of the interval are

    the touched rows that exist at t,  and  the first `upto` rows of the core

No row of the core is below the first row that existed before the interval, so the search starts
there (rule 37): deleted rows at the beginning of a run are not read again. A touched row behind
the first `upto` core rows is never among the first; it is looked up only if its count might be
negative, and its times are not evaluated unless another row changes at them. The counts of the
other candidates are summed in order at every moment; a row is emitted as often as its positions
are in the range. A long interval is split into pieces: of the rows that a piece does not touch
only the first `upto` are read, so a piece costs as much as its changes.

A group with a row of negative multiplicity is an error at that time.

State: the sorted rows, and for each group its first existing row and its number of negative
counts.
Cost: O(changes * sqrt(times) + times * upto) for the changes of rows that may be among the
first, and O(log n + upto) places of each run for each group; of other changes, their sort keys.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streams.operators import min_max, ordered_groups
from streams.operators.context import EngineCall, NodeOutput, Ports
from streams.operators.evaluation import EvaluationResults
from streams.operators.groupwise import DifferenceCollector
from streams.operators.interesting_times import InterestingTimes
from streams.operators.interesting_times import of_rows as moments_of
from streams.operators.min_max import AffectedValues
from streams.operators.ordered_groups import CandidateRows, UnchangedRows
from streams.plan.physical import TopK
from streams.trace.arrange import keyed, order, ordered
from streams.trace.arrange.first_rows import first_rows
from streams.trace.arrange.runs import Run, RunName
from streams.trace.columns import Flags, Ints, canonical, int64, spans
from streams.trace.exact.diffs import LARGEST, repeat_positions, saturated
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import consolidate, flatten

_ROWS, _FIRST = "rows", "first"
_MOST_CELLS = 1 << 18
"""Candidates of pairs that are looked at together."""


def step(
    node: TopK,
    ports: Ports,
    runs: Mapping[str, list[RunName]],
    types: Sequence[str],
    scope: EngineCall,
) -> NodeOutput:
    """The changes of the first rows, the errors, and the new runs.

    Args:
        node: the operator.
        ports: updates on port `in`.
        runs: the operator's runs.
        types: the DuckDB types of the rows.
        scope: the worker's means.
    """
    rows = consolidate(flatten(ports.get("in", []), arrow_schema(types)), scope.kernel)
    if not rows.num_rows:
        return NodeOutput(None, runs=runs)
    kernel, files = scope.kernel, scope.context.files
    keys = [canonical(rows.column(key)) for key in node.keys]
    moments, _ = moments_of(keys, int64(rows.column("time")), kernel)
    changes = ordered_groups.changes(node.order, rows, keys, types, kernel)
    touched = min_max.affected_values(changes, moments, kernel)
    before = files.open(runs.get(_ROWS, []))
    shape = keyed.schema(
        [key.type for key in keys], [pa.field("v", pa.binary()), pa.field("below", pa.int64())]
    )
    stored = keyed.find(
        files, runs.get(_FIRST, []), moments.forms, moments.hashes, shape, kernel
    )
    core = _core(node, before, stored, touched, moments, kernel)
    near = _near(node, core, touched)
    base = _base(before, touched, near, (moments, stored), kernel)
    sorted_rows = ordered_groups.arrangement_changes(rows, touched, moments)
    below = ordered_groups.negative_rows(touched, base, moments, stored)
    touched, moments, below = _relevant(touched.only(near), moments, below)
    candidates = ordered_groups.candidates(rows, touched, base[near], core, moments)
    collected = DifferenceCollector(candidates.pairs, types, scope)
    for start, end in _pieces(candidates):
        negative = np.flatnonzero(below[start:end] > 0) + start
        collected.add(_chosen(candidates, node, start, end, negative), start)
    first = _first(candidates, below, moments, shape)
    run_names = {
        _ROWS: ordered.insert(files, runs.get(_ROWS, []), sorted_rows, kernel),
        _FIRST: keyed.insert(files, runs.get(_FIRST, []), first, len(keys), kernel),
    }
    return NodeOutput(collected.output(), collected.errors("LIMIT"), run_names)


def _core(
    node: TopK,
    runs: Sequence[Run],
    stored: keyed.Found,
    touched: AffectedValues,
    moments: InterestingTimes,
    kernel: Kernel,
) -> list[UnchangedRows]:
    """The first rows that no change touches."""
    low = stored.rows_or_null("v")
    groups = np.flatnonzero(low.is_valid().to_numpy(zero_copy_only=False))
    if not len(groups) or not runs:
        return []
    values = low.take(pa.array(groups))
    start = ordered.Entries(moments.forms, groups, moments.hashes[groups], values, values)
    enough = np.full(len(start.owner), min(max(node.upto, 1), LARGEST), np.int64)
    some = first_rows(runs, start, touched.entries(moments), enough, kernel)
    return [] if some is None else [UnchangedRows(groups[some.which], some.rows, some.counts)]


def _near(node: TopK, core: Sequence[UnchangedRows], touched: AffectedValues) -> Ints:
    """The touched rows that may be among the first: the others are behind enough others."""
    if not core:
        return np.arange(len(touched.owner))
    (some,) = core
    by_group = np.argsort(some.owner, kind="stable")
    owner = some.owner[by_group]
    upto = saturated(some.counts[by_group], order.starts([owner]))
    enough = np.flatnonzero(upto >= node.upto)
    groups, first = np.unique(owner[enough], return_index=True)
    place = np.full(int(touched.owner.max()) + 1, -1, np.int64)
    place[groups] = by_group[enough[first]]
    at = place[touched.owner]
    last = some.rows.column("v").take(pa.array(at, mask=at < 0))
    own = touched.values.take(pa.array(touched.place))
    is_behind = pc.greater(own, last).fill_null(False)  # noqa: FBT003 - NULL: none is
    return np.flatnonzero(~is_behind.to_numpy(zero_copy_only=False))


def _base(
    runs: Sequence[Run],
    touched: AffectedValues,
    near: Ints,
    of: tuple[InterestingTimes, keyed.Found],
    kernel: Kernel,
) -> Ints:
    """How often touched rows were there before; 0 for those of which it does not matter.

    That is those that are not near and cannot be there a negative number of times: they only
    come, in groups without any such row.
    """
    moments, stored = of
    below = stored.rows_or_null("below").fill_null(0).to_numpy(zero_copy_only=False)
    base = np.zeros(len(touched.owner), np.int64)
    matters = below[touched.owner] != 0
    matters[touched.entry[touched.counts(base) < 0]] = True
    matters[near] = True
    some = np.flatnonzero(matters)
    base[some] = ordered.counts(runs, touched.entries(moments, some), kernel)
    return base


def _relevant(
    touched: AffectedValues, moments: InterestingTimes, below: Ints
) -> tuple[AffectedValues, InterestingTimes, Ints]:
    """The moments at which touched rows or negative ones change, and the last of each group."""
    pair = np.arange(len(moments.owner)) + moments.owner + 1
    kept = below[pair] != below[pair - 1]
    kept[touched.moment] = True
    kept[moments.last] = True
    number, chosen = np.cumsum(kept) - 1, np.flatnonzero(kept)
    before = moments.bounds[0] + np.arange(len(moments.hashes))
    pairs = np.sort(np.concatenate((before, pair[chosen])))
    fewer = replace(moments, owner=moments.owner[chosen], times=moments.times[chosen])
    return replace(touched, moment=number[touched.moment]), fewer, below[pairs]


def _pieces(candidates: CandidateRows) -> Iterator[tuple[int, int]]:
    """Ranges of pairs that are evaluated together.

    A piece reads all candidates once, and the changes of each of its pairs: for n candidates
    and c changes at t times, pieces of sqrt(t n / c) times cost the least.
    """
    owner, size = candidates.pairs.owner, len(candidates.pairs.owner)
    sizes, times = np.bincount(candidates.owner, minlength=size), np.bincount(owner)
    changes = np.bincount(candidates.owner[candidates.entry], minlength=size)
    best = np.sqrt(times * sizes[: len(times)] / np.maximum(changes[: len(times)], 1))
    cells = np.minimum(sizes[: len(times)], _MOST_CELLS // (best.astype(np.int64) + 1))
    ends, start = np.cumsum(cells[owner] + 1), 0
    while start < len(owner):
        before = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, before + _MOST_CELLS, "right"))
        end = max(end, start + 1)
        yield start, end
        start = end


def _chosen(
    candidates: CandidateRows, node: TopK, start: int, end: int, negative: Ints
) -> EvaluationResults:
    """The rows that the pairs [start, end) come to; none of the `negative` ones."""
    owner = candidates.pairs.owner[start:end]
    entries = _piece(candidates, node, start, end)
    first = np.searchsorted(candidates.owner[entries], owner)
    sizes = np.searchsorted(candidates.owner[entries], owner, "right") - first
    entry, pair = entries[spans(first, sizes)], np.repeat(np.arange(end - start), sizes)
    counts = np.maximum(candidates.counts(entry, candidates.pairs.moment[start:end][pair]), 0)
    before, upto = _ranks(counts, pair)
    low, high = min(node.offset, LARGEST), min(node.upto, LARGEST)
    times = np.clip(upto, low, high) - np.clip(before, low, high)
    times[np.isin(pair + start, negative)] = 0
    place = repeat_positions(times)
    rows = candidates.rows.take(pa.array(entry[place]))
    columns = [pa.array(pair[place]), *rows.columns]
    names = ["p", *(f"c{index}" for index in range(candidates.rows.num_columns))]
    table = pa.Table.from_arrays(columns, names=names)
    return EvaluationResults(table, np.empty(0, np.int64), negative)


def _ranks(counts: Ints, owner: Ints) -> tuple[Ints, Ints]:
    """The number of rows of the same owner before each row, and up to it.

    What is beyond 64 bits is beyond any bound too, and is no more than `LARGEST`.
    """
    starts = order.starts([owner])
    upto = saturated(counts, starts)
    before = np.roll(upto, 1)
    before[starts] = 0
    return before, upto


def _piece(candidates: CandidateRows, node: TopK, start: int, end: int) -> Ints:
    """The entries that matter to these pairs: those they change, and the first others."""
    owners = candidates.pairs.owner[start:end]
    low, high = np.searchsorted(candidates.owner, [owners[0], owners[-1] + 1])
    entries = np.arange(low, high)
    moments = candidates.pairs.moment[start:end]
    inside = moments[moments >= 0]
    changed = np.zeros(len(entries), np.bool_)
    if len(inside):
        mine = (candidates.moment >= inside[0]) & (candidates.moment <= inside[-1])
        changed[candidates.entry[mine] - low] = True
    at = np.full(len(candidates.pairs.owner), -1, np.int64)
    at[owners[::-1]] = moments[::-1]  # the first of these pairs of each group
    counts = np.maximum(candidates.counts(entries, at[candidates.owner[entries]]), 0)
    still = np.where(changed, 0, counts)
    ahead, _ = _ranks(still, candidates.owner[entries])
    return entries[changed | ((still > 0) & (ahead < node.upto))]


def _first(
    candidates: CandidateRows, below: Ints, moments: InterestingTimes, shape: pa.Schema
) -> pa.RecordBatch:
    """For each group, its first row from now on, and the number of negative rows."""
    entries = np.arange(len(candidates.owner))
    alive: Flags = candidates.counts(entries, moments.last[candidates.owner]) > 0
    there = np.flatnonzero(alive)
    groups, at = np.unique(candidates.owner[there], return_index=True)
    place = np.full(len(moments.hashes), -1, np.int64)
    place[groups] = there[at]
    values = candidates.values.take(pa.array(place, mask=place < 0))
    pairs = moments.last + np.arange(len(moments.hashes)) + 1
    live = pa.array((place >= 0) | (below[pairs] != 0))
    columns = [pa.array(moments.hashes), *moments.keys, live, values, pa.array(below[pairs])]
    return pa.RecordBatch.from_arrays(columns, schema=shape)
