"""Expressions of many dataflows over the same rows, computed in one statement.

A DuckDB statement costs at least about 0.4 ms, and each further column of it 20 us. So the
expressions that the first Linear of every dataflow computes over the same updates of an import
are computed in one statement, and each dataflow picks its columns (`linear.step`).

Sharing does not change a result: the value of an expression depends only on its row. If an
expression fails for some row, nothing is shared, and every dataflow evaluates its own
expressions. Expressions that call user-defined functions are never shared, so that their
failures affect only the views that use them.
"""

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from streams.operators.linear import Computed, pick, source_of
from streams.plan.physical import Dataflow, Linear, Source
from streams.trace.kernel.connection import EvaluationFailed, StatementRefused
from streams.trace.kernel.kernel import Kernel, data_schema
from streams.trace.updates import flatten

LARGEST = 1 << 20
"""Values up to which it pays: beyond, statements of their own take less memory."""

Wanted = tuple[str, str]
"""An expression's text and DuckDB type."""


def expressions_over(dataflow: Dataflow, index: int) -> frozenset[Wanted]:
    """The expressions of a dataflow over the rows of an import, besides picking columns."""
    return frozenset(_wanted(dataflow, index))


def _wanted(dataflow: Dataflow, index: int) -> Iterator[Wanted]:
    if dataflow.functions:
        return
    for number, node in enumerate(dataflow.nodes):
        if not isinstance(node, Linear) or node.predicates:
            continue
        if dataflow.nodes[node.input] == Source(index):
            types, output_types = dataflow.types[node.input], dataflow.types[number]
            for output, kind in zip(node.outputs, output_types, strict=True):
                if pick(output, types, kind) is None:
                    yield output.sql, kind


def compute(
    expressions: Collection[Wanted],
    rows: pa.RecordBatch,
    types: Sequence[str],
    kernel: Kernel,
) -> Computed:
    """The values of the expressions over these rows, whose columns have these DuckDB types.

    Empty if sharing saves nothing, or if an expression fails for some row.
    """
    if len(expressions) < 2 or not 0 < rows.num_rows * len(expressions) <= LARGEST:  # noqa: PLR2004
        return {}
    named = sorted(expressions)
    columns = [f"{sql} AS v{number}" for number, (sql, _) in enumerate(named)]
    text = f"SELECT {', '.join(columns)} FROM {source_of(types)}"
    try:
        values = kernel.prepare(text, t=rows.schema).run(rows)
    except (EvaluationFailed, StatementRefused):
        return {}
    whole = flatten([values], data_schema([kind for _, kind in named]))
    return dict(zip(named, whole.columns, strict=True))
