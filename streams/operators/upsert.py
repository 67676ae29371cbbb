"""Upsert: the latest row of each key, from a stream of complete rows and deletions.

Updates of one key at one time are ordered by `position`; the highest wins. A deletion removes
the row of the key, an error replaces it by an error row. The previous value of the key is
retracted at the time of the change:

    contents at t = { the value of the last update at or before t | its kind is value }
    errors at t   = { the error of the last update at or before t | its kind is error }

If the node is dated, event times come before `position`, and an update whose event time is
below that of its key's row is dropped. Its time is not its event time, because it came late;
such updates are at the lower of an interval.

State: for each key its row or its error, and its event time if the node is dated
(`trace.arrange.keyed`). Cost: O(changes), and a search in the state for each key that changed.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from streams.operators.context import ERRORS, EngineCall, NodeOutput, Ports
from streams.plan.physical import Upsert
from streams.trace.arrange import keyed
from streams.trace.arrange.runs import RunName
from streams.trace.columns import (
    Flags,
    Ints,
    canonical,
    equal_rows,
    group,
    hash_keys,
    int64,
    key_form,
)
from streams.trace.kernel.kernel import Kernel, arrow_schema, arrow_type
from streams.trace.updates import flatten

VALUE, DELETION, ERROR = 0, 1, 2
_KEYS = "keys"
_EVENT_TIME = "event_time"
_EARLIEST = np.iinfo(np.int64).min


def partial(node: Upsert, rows: pa.RecordBatch, kernel: Kernel) -> pa.RecordBatch:
    """The updates that win among these: one for each (key, time)."""
    forms = [key_form(canonical(rows.column(key)), kernel) for key in node.keys]
    return rows.take(pa.array(_winners(node, rows, group(forms, rows.num_rows).ids)))


def step(
    node: Upsert,
    ports: Ports,
    runs: Mapping[str, list[RunName]],
    types: Sequence[str],
    output_types: Sequence[str],
    scope: EngineCall,
) -> NodeOutput:
    """The changes of the collection over the interval, the errors, and the new runs.

    Args:
        node: the operator.
        ports: updates on port `in`: value columns, position, kind, error, if the node is dated
            event_time, time, diff.
        runs: the operator's runs.
        types: the DuckDB types of the input's columns.
        output_types: those of the value columns.
        scope: the worker's means.
    """
    rows = flatten(ports.get("in", []), arrow_schema(types))
    if not rows.num_rows:
        return NodeOutput(None, runs=runs)
    kernel, files, width = scope.kernel, scope.context.files, len(output_types)
    forms = [key_form(canonical(rows.column(key)), kernel) for key in node.keys]
    by_key = group(forms, rows.num_rows)
    winners = _winners(node, rows, by_key.ids)
    rows, owner = rows.take(pa.array(winners)), by_key.ids[winners]
    first = pa.array(by_key.first)
    forms = [form.take(first) for form in forms]
    hashes = hash_keys(forms, by_key.count)
    shape = _shape(node, types, width)
    stored = keyed.find(files, runs.get(_KEYS, []), forms, hashes, shape, kernel)
    if node.dated:
        stands = _stands(stored, rows, owner)
        rows, owner = rows.filter(pa.array(stands)), owner[stands]
        if not rows.num_rows:
            return NodeOutput(None, runs=runs)
    new = np.append(owner[1:] != owner[:-1], [True])
    changes = _changes(stored, rows, owner, width, scope)
    last = rows.take(pa.array(np.flatnonzero(new)))
    kinds = _kinds(last, width)
    keys = [canonical(last.column(key)) for key in node.keys]
    columns = [pa.array(hashes[owner[new]]), *keys, pa.array(kinds != DELETION)]
    columns += [*last.columns[:width], pa.array(kinds), *last.columns[width + 2 : -2]]
    state = pa.RecordBatch.from_arrays(columns, schema=shape)
    run_names = keyed.insert(files, runs.get(_KEYS, []), state, len(node.keys), kernel)
    return NodeOutput(changes.output, changes.errors, {_KEYS: run_names})


def _shape(node: Upsert, types: Sequence[str], width: int) -> pa.Schema:
    kinds = [arrow_type(type_) for type_ in types]
    more = [pa.field(f"c{i}", kind) for i, kind in enumerate(kinds[:width])]
    more += [pa.field("kind", pa.int64()), pa.field("error", pa.string())]
    more += [pa.field(_EVENT_TIME, pa.int64())] if node.dated else []
    return keyed.schema([kinds[key] for key in node.keys], more)


def _kinds(rows: pa.RecordBatch, width: int) -> Ints:
    kinds: Ints = int64(rows.column(width + 1).cast(pa.int64()))
    return kinds


def _event_times(rows: pa.RecordBatch) -> Ints:
    """The event times of updates of a dated node: the last column before time and diff."""
    return int64(rows.column(rows.num_columns - 3))


def _stands(stored: keyed.Found, rows: pa.RecordBatch, owner: Ints) -> Flags:
    """Whether the event time of each winner is at least that of its key's current row."""
    stored_times = stored.rows_or_null(_EVENT_TIME).fill_null(_EARLIEST)
    times = _event_times(rows)
    in_order = (times[1:] >= times[:-1]) | (owner[1:] != owner[:-1])
    assert in_order.all(), "an update came late in the midst of an interval"
    stands: Flags = times >= int64(stored_times)[owner]
    return stands


def _winners(node: Upsert, rows: pa.RecordBatch, owner: Ints) -> Ints:
    """The last row of each (key, time) by position, in order of key, then time."""
    width = rows.num_columns - (6 if node.dated else 5)
    times, positions = int64(rows.column("time")), int64(rows.column(width))
    by_event_time = (_event_times(rows),) if node.dated else ()
    order = np.lexsort((positions, *by_event_time, times, owner))
    keys, moments = owner[order], times[order]
    last = np.append((keys[1:] != keys[:-1]) | (moments[1:] != moments[:-1]), [True])
    winners: Ints = order[last]
    return winners


def _same(
    columns: Sequence[pa.Array], kinds: Ints, previous: Ints, current: Ints, kernel: Kernel
) -> Flags:
    """Whether each winner leaves its key's value unchanged; `previous` is -1 for no value.

    Columns are compared in order, only for rows that are equal so far: most differ early.
    """
    equal = np.flatnonzero((previous >= 0) & (kinds[previous] == kinds[current]))
    for column in columns:
        before, after = (
            key_form(column.take(pa.array(rows[equal])), kernel) for rows in (previous, current)
        )
        equal = equal[equal_rows(before, after)]
    same = np.zeros(len(current), np.bool_)
    same[equal] = True
    return same


def _changes(
    stored: keyed.Found, rows: pa.RecordBatch, owner: Ints, width: int, scope: EngineCall
) -> NodeOutput:
    """The retractions and insertions, given the winners in order of key, then time."""
    state = stored.rows
    offset = state.schema.get_field_index("live") + 1
    before, after = state.num_rows, rows.num_rows
    values = [
        pa.concat_arrays([state.column(offset + i), rows.column(i)]) for i in range(width)
    ]
    errors = pa.concat_arrays([state.column("error"), rows.column(width + 2)])
    kinds = np.concatenate((int64(state.column("kind")), _kinds(rows, width)))
    current = before + np.arange(after)
    first = np.append([True], owner[1:] != owner[:-1])
    previous = np.where(first, stored.places[owner], current - 1)
    had = np.where(previous >= 0, kinds[previous], DELETION)
    has = kinds[current]
    same = _same([*values, errors], kinds, previous, current, scope.kernel)
    times = int64(rows.column("time"))

    def moved(kind: int, columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
        gone = np.flatnonzero((had == kind) & ~same)
        come = np.flatnonzero((has == kind) & ~same)
        source = pa.array(np.concatenate((previous[gone], current[come])))
        arrays = [column.take(source) for column in columns]
        arrays.append(pa.array(times[np.concatenate((gone, come))]))
        arrays.append(pa.array(np.repeat(np.array([-1, 1]), [len(gone), len(come)])))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    data = [(f"c{i}", column.type) for i, column in enumerate(values)]
    schema = pa.schema([*data, ("time", pa.int64()), ("diff", pa.int64())])
    output, failed = moved(VALUE, values, schema), moved(ERROR, [errors], ERRORS)
    return NodeOutput(output, (failed,) if failed.num_rows else ())
