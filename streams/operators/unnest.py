"""Unnest: each row once for each element of its lists. Linear: no state, no exchange.

DuckDB unnests the lists, and pads shorter lists with NULL. The lists are columns, so no
expression can fail here. Cost: one call of DuckDB for all rows of an interval. A list column
that no later node reads is NULL in the output: n copies of n elements would be n^2 values.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import pyarrow as pa

from streams.operators.context import NodeOutput
from streams.operators.linear import source_of
from streams.plan.physical import Unnest
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import flatten


def step(
    node: Unnest,
    rows: pa.RecordBatch,
    types: Sequence[str],
    output_types: Sequence[str],
    read: AbstractSet[int],
    kernel: Kernel,
) -> NodeOutput:
    """The updates of the elements.

    Args:
        node: which columns are lists.
        rows: the input's updates.
        types: the DuckDB types of the input's columns.
        output_types: those of the output.
        read: the places of the output's columns that are read.
        kernel: the worker's DuckDB.
    """
    if not rows.num_rows:
        return NodeOutput(None)
    width = len(types)
    unread = set(node.lists) - read
    columns = [f"NULL::{types[i]} AS c{i}" if i in unread else f"c{i}" for i in range(width)]
    columns += [f"unnest(c{at}) AS c{width + i}" for i, at in enumerate(node.lists)]
    text = f"SELECT {', '.join([*columns, 'time', 'diff'])} FROM {source_of(types)}"
    result = kernel.prepare(text, t=rows.schema).run(rows)
    return NodeOutput(flatten([result], arrow_schema(output_types)))
