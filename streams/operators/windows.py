"""Window functions over neighbouring rows: recomputes only the rows that a change affects.

A row's outputs depend on at most `back` rows before it and `ahead` rows behind it, or on as
many groups of peers, or on rows within a distance of values (`Reach`). So at a time t a change
affects the `ahead` rows before it and the `back` rows behind it; recomputing these requires as
many further rows on either side:

    d(t) = f(neighbourhoods of the changes of t, as they are at t)
         - f(the same neighbourhoods, as they were just before t)

The core rows (those no change touches) that can be in a neighbourhood at any time of the
interval are the `back + ahead` nearest on either side of a touched row, found by search
(`affected_rows`). All moments are then evaluated at once, as partitions of one statement
(`neighbourhoods`). Previous outputs are not stored: they are a function of the contents, so
they are recomputed with the same bits (rule 23).

A group with a row of negative multiplicity is an error at that time, and so is a group with a
row whose bounds by value DuckDB cannot compute. Its rows are inserted and deleted as a whole,
so the whole group is a neighbourhood in that interval.

State: the sorted rows, the records of running extremes (`running_extremes`), and for each group
the number of such rows. Cost: O(changes * rows in reach) rows evaluated, and as many places of
each run after a search of O(log n); O(changes * log(times)) cells visited in a group with many
times. A running window evaluates all rows behind a change, and sums the rows before it
(`running_sums`): O(rows before / 1024), and a few ns for each row of a run that is summed for
the first time. A running extreme evaluates the rows behind a change whose extreme the changed
row determines or determined.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streams.operators import affected_rows, min_max, ordered_groups
from streams.operators.context import EngineCall, NodeOutput, Ports
from streams.operators.evaluation import port, source
from streams.operators.frame_visibility import FrameVisibility, evaluated, visibility
from streams.operators.groupwise import DifferenceCollector, label
from streams.operators.interesting_times import InterestingTimes
from streams.operators.interesting_times import of_rows as moments_of
from streams.operators.neighbourhoods import NeighbourhoodRows, neighbourhoods
from streams.operators.ordered_groups import CandidateRows, ChangedRows
from streams.operators.running_extremes import name, record_changes
from streams.operators.running_sums import columns_of, prefixes
from streams.plan.physical import Groupwise
from streams.plan.window_frames import Reach
from streams.trace.arrange import keyed, ordered
from streams.trace.arrange.runs import Run, RunName
from streams.trace.columns import Flags, Ints, canonical, int64
from streams.trace.exact.diffs import repeat_positions
from streams.trace.kernel.kernel import Kernel, Prepared, arrow_schema
from streams.trace.updates import consolidate, flatten

_ROWS, _WRONG = "rows", "wrong"


def step(
    node: Groupwise,
    reach: Reach,
    ports: Ports,
    runs: Mapping[str, list[RunName]],
    types: tuple[Sequence[str], Sequence[str]],
    scope: EngineCall,
) -> NodeOutput:
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
        return NodeOutput(None, runs=runs)
    before = files.open(runs.get(_ROWS, []))
    changed = _changed(node.keys, reach, rows, types[0], before, kernel)
    touched, base, moments = changed.touched, changed.base, changed.moments
    counts = [pa.field("below", pa.int64()), pa.field("failing", pa.int64())]
    shape = keyed.schema([key.type for key in moments.keys], counts)
    counted_runs = runs.get(_WRONG, [])
    stored = keyed.find(files, counted_runs, moments.forms, moments.hashes, shape, kernel)
    wrong = _wrong(reach, changed, stored, kernel)
    none = wrong[0] + wrong[1] > 0
    whole = _whole(none, moments)
    records = [files.open(runs.get(name(i), [])) for i in range(len(reach.extremes))]
    core = affected_rows.unchanged_rows(reach, before, records, changed, whole, kernel)
    candidates = ordered_groups.candidates(rows, touched, base, core, moments)
    statement = _statement(node, reach, types[0], kernel)
    outputs = _Evaluated(candidates, moments, none, reach, statement)
    ahead = prefixes(reach.before, before, candidates, moments, kernel)
    frames = visibility(reach, candidates, types[0], kernel)
    pieces = neighbourhoods(candidates, moments, frames, whole, ahead)
    parts = [outputs.changes(piece, types[1]) for piece in pieces]
    counted = _counted(wrong, moments, shape)
    added = _added(changed, candidates, frames)
    run_names = {
        of: ordered.insert(files, runs.get(of, []), some, kernel) for of, some in added.items()
    }
    run_names[_WRONG] = keyed.insert(files, counted_runs, counted, len(node.keys), kernel)
    output = consolidate(flatten(parts, arrow_schema(types[1])), kernel)
    errors = DifferenceCollector(candidates.pairs, types[1], scope)
    return NodeOutput(output, _errors(errors, wrong, label(node)), run_names)


def _added(
    changed: ChangedRows, candidates: CandidateRows, frames: FrameVisibility
) -> dict[str, pa.RecordBatch]:
    """The changes of the sorted rows, and of the records of each extreme."""
    moments = changed.moments
    added = {_ROWS: ordered_groups.arrangement_changes(changed.rows, changed.touched, moments)}
    for number, rank in enumerate(frames.extremes):
        added[name(number)] = record_changes(rank, candidates, moments)
    return added


def _errors(
    collected: DifferenceCollector, wrong: tuple[Ints, Ints], name: str
) -> tuple[pa.RecordBatch, ...]:
    """The errors of groups with rows of negative counts, and of others with rows that fail."""
    below, failing = wrong
    collected.negative.append(np.flatnonzero(below > 0))
    collected.failed.append(np.flatnonzero((failing > 0) & (below == 0)))
    return collected.errors(name)


def _changed(
    by: Sequence[int],
    reach: Reach,
    rows: pa.RecordBatch,
    types: Sequence[str],
    runs: Sequence[Run],
    kernel: Kernel,
) -> ChangedRows:
    """The changed rows, grouped by these columns, with their interesting times."""
    keys = [canonical(rows.column(key)) for key in by]
    moments, _ = moments_of(keys, int64(rows.column("time")), kernel)
    changes = ordered_groups.changes(reach.order, rows, keys, types, kernel)
    touched = min_max.affected_values(changes, moments, kernel)
    entries = touched.entries(moments)
    places = [ordered.positions(run, entries) for run in runs]
    base = ordered.counts_at(runs, places, entries, kernel)
    return ChangedRows(rows, types, touched, places, base, moments)


def _wrong(
    reach: Reach, changed: ChangedRows, stored: keyed.Found, kernel: Kernel
) -> tuple[Ints, Ints]:
    """For each pair how many rows have a negative count, and for how many DuckDB raises."""
    touched, base, moments = changed.touched, changed.base, changed.moments
    below = ordered_groups.negative_rows(touched, base, moments, stored)
    return below, _failing(reach, changed, stored, kernel)


def _failing(reach: Reach, changed: ChangedRows, stored: keyed.Found, kernel: Kernel) -> Ints:
    """For each pair how many different rows of the group there are for which DuckDB raises."""
    rows = changed.rows
    fails = np.zeros(rows.num_rows, np.bool_)
    if reach.span is not None:
        (flags,) = evaluated([reach.span.fails], rows.columns[:-2], changed.types, kernel)
        fails = flags.to_numpy(zero_copy_only=False)
    return ordered_groups.count_rows(
        changed.touched,
        changed.base,
        changed.moments,
        (stored, "failing"),
        lambda place, counts: fails[place] & (counts > 0),
    )


def _statement(node: Groupwise, reach: Reach, types: Sequence[str], kernel: Kernel) -> Prepared:
    named = {
        "e": "BOOLEAN",
        **{f"b{i}": expression.type for i, expression in enumerate(reach.before)},
    }
    for index, extreme in enumerate(reach.extremes):
        named |= {f"m{index}": types[extreme.argument], f"w{index}": "BOOLEAN"}
    named |= {f"c{index}": kind for index, kind in enumerate(types)}
    outputs = [f"{expression.sql} AS c{index}" for index, expression in enumerate(node.outputs)]
    inner = f"SELECT p, e, {', '.join(outputs)} FROM {source(named)}"
    return kernel.prepare(f"SELECT * EXCLUDE (e) FROM ({inner}) WHERE e", t=port(named))


def _whole(wrong: Flags, moments: InterestingTimes) -> Flags:
    """The groups in which some row is wrong before the interval or in it."""
    counts = np.diff(np.append(moments.bounds[0], len(moments.owner))) + 1
    owner = np.repeat(np.arange(len(counts)), counts)
    whole = np.zeros(len(counts), np.bool_)
    whole[owner[wrong]] = True
    return whole


def _counted(
    wrong: Sequence[Ints], moments: InterestingTimes, shape: pa.Schema
) -> pa.RecordBatch:
    """The number of wrong rows of each group from now on, where it changed."""
    last = moments.last + np.arange(len(moments.hashes)) + 1
    first = moments.bounds[0] + np.arange(len(moments.hashes))
    now = [column[last] for column in wrong]
    moved = np.flatnonzero((wrong[0][first] != now[0]) | (wrong[1][first] != now[1]))
    at, live = pa.array(moved), (now[0] + now[1])[moved] != 0
    columns = [pa.array(moments.hashes[moved]), *(key.take(at) for key in moments.keys)]
    columns += [pa.array(live), *(pa.array(column[moved]) for column in now)]
    return pa.RecordBatch.from_arrays(columns, schema=shape)


@dataclass(frozen=True, slots=True)
class _Evaluated:
    """The outputs of neighbourhoods; none where the group is an error."""

    held: CandidateRows
    moments: InterestingTimes
    wrong: Flags
    reach: Reach
    statement: Prepared

    def changes(self, part: NeighbourhoodRows, output_types: Sequence[str]) -> pa.RecordBatch:
        """Retract the former outputs of these neighbourhoods, and insert the new ones."""
        rows = self._rows(part)
        result = self.statement.run(rows)
        piece = result["p"].combine_chunks().to_numpy()
        moment, sign = part.moment[piece], np.where(part.after[piece], 1, -1)
        columns = [result[f"c{index}"] for index in range(len(output_types))]
        columns += [pa.array(self.moments.times[moment]), pa.array(sign.astype(np.int64))]
        table = pa.Table.from_arrays(columns, names=arrow_schema(output_types).names)
        return flatten([table], arrow_schema(output_types))

    def _rows(self, part: NeighbourhoodRows) -> pa.RecordBatch:
        """The rows, repeated by their counts: piece, number among equals, whether wanted."""
        moment, after = part.moment[part.piece], part.after[part.piece]
        pair = moment + self.moments.owner[moment] + after
        counts = np.where(self.wrong[pair], 0, part.counts)
        which = repeat_positions(counts)
        equal = np.arange(len(which)) - (np.cumsum(counts) - counts)[which]
        data = self.held.rows.take(pa.array(part.entry[which])).columns
        columns = [pa.array(part.piece[which]), pa.array(equal)]
        piece = part.piece[which]
        ahead = columns_of(self.reach.before, part.before[:, piece])
        deciding = self._deciding(part.deciding[:, piece])
        columns += [pa.array(part.wanted[which]), *ahead, *deciding, *data]
        names = ["p", "i", "e", *(f"b{index}" for index in range(len(ahead)))]
        names += [f"{kind}{i}" for i in range(len(self.reach.extremes)) for kind in "mw"]
        names += [f"c{index}" for index in range(len(data))]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def _deciding(self, candidates: Ints) -> Iterator[pa.Array]:
        """For each extreme the value of the row that determines it, and whether it exists."""
        for extreme, places in zip(self.reach.extremes, candidates, strict=True):
            there = places >= 0
            yield self.held.rows.column(extreme.argument).take(pa.array(places, mask=~there))
            yield pa.array(there)
