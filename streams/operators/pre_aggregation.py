"""Evaluates a Linear and the partial Reduce after it in one DuckDB statement.

If rows are computed only to be summed, exporting them from DuckDB costs more than computing and
summing them. So DuckDB sums them by key, time and diff; the sums times their diffs equal the
output of `reduce.partial` for the rows, since all of it is linear:

    sum over rows of diff * value = sum over diffs of diff * sum(value)

The result is as exact: DuckDB's sums of integers and decimals have 128 bits, and a sum that
does not fit fails. Floats are not summed here, because their sums depend on the order. If
anything fails, the rows are computed one by one, and a failing row becomes an error.

An expression that is not evaluated cannot fail, so none may be optimized away: every output is
a key, or summed, or a column of the input. A test checks that DuckDB evaluates each expression
that is both counted and summed.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streams.operators import accumulators
from streams.operators.accumulators import COUNTED, NARROW, WIDE, GroupAccumulators
from streams.operators.linear import pick, source_of
from streams.operators.reduce import ReduceShape
from streams.plan.physical import Linear
from streams.trace.columns import Ints, group, int64, key_form, one_array
from streams.trace.exact import bigint_sums
from streams.trace.exact.diffs import products, sum_by
from streams.trace.kernel.connection import EvaluationFailed
from streams.trace.kernel.kernel import Kernel
from streams.trace.updates import flatten

FEWEST = 1 << 14
"""Rows from which on it pays: of fewer, most of the cost is that of a statement."""


def is_summed(
    node: Linear, of: ReduceShape, types: Sequence[str], output_types: Sequence[str]
) -> bool:
    """Whether a Reduce of this shape can be given the sums of a Linear's rows.

    Args:
        node: the Linear.
        of: the shape of the Reduce that reads it.
        types: the DuckDB types of the Linear's input.
        output_types: those of its outputs.
    """
    if of.sorted_arguments or of.reads or any(slot.kind not in _KINDS for slot in of.slots):
        return False
    keys = of.node.keys
    if any(pa.types.is_nested(of.types[key]) or not _is_plain(of.types[key]) for key in keys):
        return False
    summed = {slot.argument for slot in of.slots if slot.kind != COUNTED}
    return all(
        index in summed or index in keys or pick(output, types, output_types[index]) is not None
        for index, output in enumerate(node.outputs)
    )


_KINDS = {COUNTED, NARROW, WIDE}


def _is_plain(kind: pa.DataType) -> bool:
    """Whether of equal values of this type there is only one."""
    if isinstance(kind, pa.BaseExtensionType):
        return False
    return not (pa.types.is_floating(kind) or pa.types.is_interval(kind))


def partial(
    node: Linear, of: ReduceShape, rows: pa.RecordBatch, types: Sequence[str], kernel: Kernel
) -> pa.RecordBatch | None:
    """`reduce.partial` of the Linear's rows; None where some row may fail.

    Args:
        node: the Linear.
        of: the shape of the Reduce that reads it, for which `is_summed` holds.
        rows: the Linear's input.
        types: the DuckDB types of its columns.
        kernel: the worker's DuckDB.
    """
    statement = kernel.prepare(_statement(node, of, types), t=rows.schema)
    try:
        result = statement.run(rows)
    except EvaluationFailed:
        return None
    return _weighted(result, of, kernel)


def _statement(node: Linear, of: ReduceShape, types: Sequence[str]) -> str:
    keys = [f"({node.outputs[key].sql}) AS k{i}" for i, key in enumerate(of.node.keys)]
    sums = ["count(*) AS n"]
    for index, slot in enumerate(of.slots):
        value = node.outputs[slot.argument].sql
        sums.append(f"count({value}) AS n{index}")
        if slot.kind != COUNTED:
            sums.append(f"sum({value}) AS s{index}")
    where = " AND ".join(f"({predicate.sql})" for predicate in node.predicates)
    text = f"SELECT {', '.join([*keys, 'time', 'diff', *sums])}"
    text += f" FROM {source_of(types)}"
    return text + (f" WHERE {where}" if where else "") + " GROUP BY ALL"


def _weighted(result: pa.Table, of: ReduceShape, kernel: Kernel) -> pa.RecordBatch:
    """The totals by key and time of sums by key, time and diff."""
    width = len(of.node.keys)
    kinds = pa.schema(list(of.partial)[:width])
    keys = flatten([result.select(range(width))], kinds).columns if width else []
    names = result.column_names[width:]
    whole = {name: one_array(result.column(name)) for name in names}
    times, diffs = int64(whole["time"]), int64(whole["diff"])
    groups = group([*(key_form(key, kernel) for key in keys), times], result.num_rows)

    def counted(name: str) -> Ints:
        return sum_by(groups, products(int64(whole[name]), diffs))

    digits: list[accumulators.Sum] = []
    for index, slot in enumerate(of.slots):
        if slot.kind == COUNTED:
            digits.append(None)
            continue
        weights = np.where(int64(whole[f"n{index}"]) == 0, 0, diffs)
        values = accumulators.digits_of(whole[f"s{index}"], slot.kind)
        digits.append(bigint_sums.weighted_sums(groups, values, weights))
    counts = tuple(counted(f"n{index}") for index in range(len(of.slots)))
    totals = GroupAccumulators(counted("n"), counts, tuple(digits))
    first = pa.array(groups.first)
    columns = [*(key.take(first) for key in keys), pa.array(times[groups.first])]
    return pa.RecordBatch.from_arrays(
        [*columns, *accumulators.store(totals, of.slots)], schema=of.partial
    )
