"""Window functions that look at a row's neighbours: what a change moves is computed anew.

A row's outputs read at most `back` rows before it and `ahead` rows behind it (`Reach`). So at
a time t a change is felt by the `ahead` rows before it and the `back` rows behind it, and to
compute those once more takes as many on either side again:

    d(t) = f(neighbourhoods of the changes of t, as they are at t)
         - f(the same neighbourhoods, as they were just before t)

The core rows (those no change touches) that can be in a neighbourhood at any time of the
interval are the `back + ahead` nearest on either side of a touched row: found by search, in
the gaps between touched rows. All moments are then evaluated at once, as partitions of one
statement (`neighbours`). What the outputs were is not remembered: they are a function of the
contents, so the same bits come again (rule 23).

A group in which some row is there a negative number of times is an error at that time; its
rows come and go as a whole, so all of it is a neighbourhood in that interval.

State: the sorted rows, and of groups with negative counts how many there are.
Cost: O(changes * (back + ahead)) rows evaluated, and as many places of each run behind a
search of O(log n); O(changes * sqrt(times)) comparisons in a group with many times.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streams.operators import extremes, ranked
from streams.operators.context import Ports, Scope, Stepped
from streams.operators.evaluation import port, source
from streams.operators.extremes import Touched
from streams.operators.groupwise import Collected, label
from streams.operators.moments import Moments
from streams.operators.moments import of_rows as moments_of
from streams.operators.neighbours import Part, neighbourhoods
from streams.operators.ranked import Core
from streams.plan.physical import Groupwise, Reach
from streams.trace import keyed, ordered
from streams.trace.columns import Flags, Ints, canonical, int64
from streams.trace.kernel import Kernel, Prepared, arrow_schema
from streams.trace.leading import Gaps, within
from streams.trace.runs import Run, RunName
from streams.trace.updates import consolidate, flatten

_ROWS, _BELOW = "rows", "below"
_ALL = 1 << 40
"""More rows than a group can have."""


def step(
    node: Groupwise,
    reach: Reach,
    ports: Ports,
    runs: Mapping[str, list[RunName]],
    types: tuple[Sequence[str], Sequence[str]],
    scope: Scope,
) -> Stepped:
    """The changes of the outputs, the errors, and the new runs.

    Args:
        node: the operator.
        reach: how far its outputs look.
        ports: updates on port `in`.
        runs: the operator's runs.
        types: the DuckDB types of the input's columns, and of the output's.
        scope: the worker's means.
    """
    kernel, files = scope.kernel, scope.context.files
    rows = consolidate(flatten(ports.get("in", []), arrow_schema(types[0])), kernel)
    if not rows.num_rows:
        return Stepped(None, runs=runs)
    keys = [canonical(rows.column(key)) for key in node.keys]
    moments, _ = moments_of(keys, int64(rows.column("time")), kernel)
    changes = ranked.changes(reach.order, rows, keys, types[0], kernel)
    touched = extremes.touched(changes, moments, kernel)
    before = files.open(runs.get(_ROWS, []))
    base = ordered.counts(before, touched.entries(moments), kernel)
    shape = keyed.schema([key.type for key in keys], [pa.field("below", pa.int64())])
    found = keyed.find(
        files, runs.get(_BELOW, []), moments.forms, moments.hashes, shape, kernel
    )
    below = ranked.below(touched, base, moments, found)
    whole = _whole(below, moments)
    core = _core(reach, before, touched, moments, whole, kernel)
    held = ranked.candidates(rows, touched, base, core, moments)
    evaluated = _Evaluated(held, moments, below > 0, _statement(node, types[0], kernel))
    near = neighbourhoods(held, moments, reach, whole)
    parts = [evaluated.changes(part, types[1]) for part in near]
    errors = Collected(held.pairs, types[1], scope)
    errors.negative.append(np.flatnonzero(below > 0))
    counted = _counted(below, moments, shape)
    added = ranked.added(rows, touched, moments)
    kept = {
        _ROWS: ordered.insert(files, runs.get(_ROWS, []), added, kernel),
        _BELOW: keyed.insert(files, runs.get(_BELOW, []), counted, len(keys), kernel),
    }
    output = consolidate(flatten(parts, arrow_schema(types[1])), kernel)
    return Stepped(output, errors.errors(label(node)), kept)


def _statement(node: Groupwise, types: Sequence[str], kernel: Kernel) -> Prepared:
    named = {"e": "BOOLEAN", **{f"c{index}": kind for index, kind in enumerate(types)}}
    outputs = [f"{each.sql} AS c{index}" for index, each in enumerate(node.outputs)]
    inner = f"SELECT p, e, {', '.join(outputs)} FROM {source(named, kernel)}"
    return kernel.prepare(f"SELECT * EXCLUDE (e) FROM ({inner}) WHERE e", t=port(named))


def _whole(below: Ints, moments: Moments) -> Flags:
    """The groups in which some row has a negative count before the interval or in it."""
    counts = np.diff(np.append(moments.bounds[0], len(moments.owner))) + 1
    owner = np.repeat(np.arange(len(counts)), counts)
    whole = np.zeros(len(counts), np.bool_)
    whole[owner[below > 0]] = True
    return whole


def _counted(below: Ints, moments: Moments, shape: pa.Schema) -> pa.RecordBatch:
    """How many rows of each group have a negative count from now on, where that changed."""
    last = moments.last + np.arange(len(moments.hashes)) + 1
    first = moments.bounds[0] + np.arange(len(moments.hashes))
    moved = np.flatnonzero(below[last] != below[first])
    at, now = pa.array(moved), below[last][moved]
    columns = [pa.array(moments.hashes[moved]), *(key.take(at) for key in moments.keys)]
    return pa.RecordBatch.from_arrays(
        [*columns, pa.array(now != 0), pa.array(now)], schema=shape
    )


def _core(
    reach: Reach,
    runs: Sequence[Run],
    touched: Touched,
    moments: Moments,
    whole: Flags,
    kernel: Kernel,
) -> list[Core]:
    """The rows on either side of each touched one that a neighbourhood may need."""
    if not runs:
        return []
    gaps, owner, ends = _gaps(touched, moments)
    wanted = reach.back + reach.ahead
    after = np.where(whole[owner], _ALL, np.where(ends[0], wanted, 0))
    before = np.where(ends[1] & ~whole[owner], wanted, 0)
    core = []
    for enough, last in ((after, False), (before, True)):
        some = within(runs, gaps, enough, kernel, last=last)
        if some is not None:
            core.append(Core(owner[some.which], some.rows, some.counts))
    return core


def _gaps(touched: Touched, moments: Moments) -> tuple[Gaps, Ints, tuple[Flags, Flags]]:
    """What lies before, between and behind the touched rows of each group; whose each gap is.

    And whether it begins, and ends, at a touched row.
    """
    sizes = np.bincount(touched.owner, minlength=len(moments.hashes)) + 1
    owner = np.repeat(np.arange(len(sizes)), sizes)
    ends = np.cumsum(sizes)
    begins, stops = np.ones(len(owner), np.bool_), np.ones(len(owner), np.bool_)
    begins[ends - sizes] = False
    stops[ends - 1] = False
    place = np.arange(len(owner)) - owner
    values = touched.compared.take(pa.array(touched.place))
    keys = [form.take(pa.array(owner)) for form in moments.forms]
    low = values.take(pa.array(place - 1, mask=~begins))
    high = values.take(pa.array(place, mask=~stops))
    return Gaps(keys, moments.hashes[owner], low, high), owner, (begins, stops)


@dataclass(frozen=True, slots=True)
class _Evaluated:
    """The outputs of neighbourhoods; none where the group is an error."""

    held: ranked.Candidates
    moments: Moments
    wrong: Flags
    statement: Prepared

    def changes(self, part: Part, made: Sequence[str]) -> pa.RecordBatch:
        """What the outputs of these neighbourhoods were, retracted, and what they are."""
        rows = self._rows(part)
        found = self.statement.run(rows)
        piece = found["p"].combine_chunks().to_numpy()
        moment, sign = part.moment[piece], np.where(part.after[piece], 1, -1)
        columns = [found[f"c{index}"] for index in range(len(made))]
        columns += [pa.array(self.moments.times[moment]), pa.array(sign.astype(np.int64))]
        table = pa.Table.from_arrays(columns, names=arrow_schema(made).names)
        return flatten([table], arrow_schema(made))

    def _rows(self, part: Part) -> pa.RecordBatch:
        """The rows as often as they are there: piece, number among equals, whether wanted."""
        moment, after = part.moment[part.piece], part.after[part.piece]
        pair = moment + self.moments.owner[moment] + after
        counts = np.where(self.wrong[pair], 0, part.counts)
        which = np.repeat(np.arange(len(counts)), counts)
        copies = np.arange(len(which)) - (np.cumsum(counts) - counts)[which]
        data = self.held.rows.take(pa.array(part.entry[which])).columns
        columns = [pa.array(part.piece[which]), pa.array(copies)]
        columns += [pa.array(part.wanted[which]), *data]
        names = ["p", "i", "e", *(f"c{index}" for index in range(len(data)))]
        return pa.RecordBatch.from_arrays(columns, names=names)
