"""Aggregates without accumulators: DuckDB recomputes them whenever a group changes.

They are computed for each pair of a changed group and a time (`operators.group_contents`) from
the group's rows at that time, in an order that the plan fixes (rule 39). Only the columns that
the aggregates read are stored.

Cost: O(rows of the changed groups * times), in chunks of bounded size. EXPLAIN says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streams.operators.evaluation import (
    Evaluate,
    EvaluationResults,
    Types,
    evaluate,
    port,
    source,
)
from streams.operators.group_contents import GroupContents
from streams.plan.physical import Aggregate
from streams.trace.columns import Flags
from streams.trace.kernel.kernel import Kernel, arrow_type
from streams.trace.updates import flatten

ROWS = "rows"
"""The port and the arrangement of the rows that the aggregates read."""


def columns_read(aggregates: Sequence[Aggregate]) -> tuple[int, ...]:
    """The columns of the input that these aggregates read."""
    return tuple(sorted({column for aggregate in aggregates for column in aggregate.reads}))


@dataclass(frozen=True, slots=True)
class RecomputedValues:
    """An aggregate before the interval for each group, then at each moment; where it failed."""

    column: pa.Array
    failed: Flags


def recomputed(
    contents: GroupContents, calls: Sequence[Aggregate], types: Types, kernel: Kernel
) -> tuple[list[RecomputedValues], Flags]:
    """The aggregates, and where a group has some row a negative number of times.

    Of a group without rows an aggregate is what it is over no rows.
    """
    size, places = len(contents.pairs.owner), contents.pairs.places
    negative, result = np.zeros(size, np.bool_), []
    for call in calls:
        statement, empty = _statement(call, types, kernel), _over_nothing(call, types, kernel)
        parts, failed = [empty.slice(0, 0)], np.zeros(size, np.bool_)
        for start, end in contents.chunks():
            some = evaluate(contents, start, end, statement)
            failed[some.failed] = True
            negative[some.negative] = True
            parts.append(_spread(some, end - start, empty))
        column = pa.concat_arrays(parts).take(pa.array(places))
        result.append(RecomputedValues(column, failed[places]))
    return result, negative[places]


def _statement(call: Aggregate, types: Types, kernel: Kernel) -> Evaluate:
    text = f"SELECT p, {call.sql} AS v FROM {source(types)} GROUP BY p"
    return lambda rows: kernel.prepare(text, t=port(types)).run(rows)


def _over_nothing(call: Aggregate, types: Types, kernel: Kernel) -> pa.Array:
    schema = port(types)
    statement = kernel.prepare(f"SELECT {call.sql} AS v FROM {source(types)}", t=schema)
    results = statement.run(flatten([], schema))["v"]
    return _cast(pa.table([results], ["v"]), arrow_type(call.type))


def _spread(some: EvaluationResults, size: int, empty: pa.Array) -> pa.Array:
    """A value for each of the pairs; that over no rows for those without."""
    pair = some.rows["p"].combine_chunks().to_numpy()
    values = _cast(some.rows.select(["v"]), empty.type)
    places = np.full(size, len(values), np.int64)
    places[pair] = np.arange(len(pair))
    return pa.concat_arrays([values, empty]).take(pa.array(places))


def _cast(table: pa.Table, kind: pa.DataType) -> pa.Array:
    return flatten([table], pa.schema([("v", kind)])).column(0)
