"""Dispatches each kind of plan node to its operator.

All operators have one interface: they take the rows of their ports and their runs, and return
updates, errors and new runs. A Loop calls the operators of its body itself.
"""

from collections.abc import Mapping
from typing import assert_never

import pyarrow as pa

from streams.operators import (
    asof,
    delta,
    emit_on_close,
    groupwise,
    join,
    linear,
    reduce,
    temporal,
    threshold,
    topk,
    unnest,
    upsert,
    windows,
)
from streams.operators.context import EngineCall, NodeOutput, Ports
from streams.operators.linear import Computed
from streams.operators.wiring import layout
from streams.plan.analyses.column_usage import columns_read
from streams.plan.physical import (
    Arrange,
    Asof,
    Constant,
    Distinct,
    EmitOnClose,
    Groupwise,
    Join,
    Linear,
    Lookup,
    Loop,
    Negate,
    NodeId,
    Reduce,
    Source,
    Temporal,
    Threshold,
    TopK,
    Union,
    Unnest,
    Upsert,
)
from streams.plan.window_frames import Reach
from streams.trace.arrange.runs import RunName
from streams.trace.columns import int64
from streams.trace.exact.diffs import negated
from streams.trace.kernel.kernel import arrow_schema
from streams.trace.updates import flatten, with_diffs


def step(  # noqa: C901, PLR0911, PLR0912 - one case for each kind of node
    number: NodeId,
    ports: Ports,
    runs: Mapping[str, list[RunName]],
    scope: EngineCall,
    *,
    computed: Computed = linear.NOTHING,
    birth: bool = False,
) -> NodeOutput:
    """Step one node of the scope's dataflow.

    Args:
        number: the node.
        ports: what has come to it, by port.
        runs: its runs, by arrangement; of a Lookup those of its Arrange, at the lower.
        scope: the dataflow, the interval and the worker's means.
        computed: of a Linear, what is known of its input's rows.
        birth: whether the row of a Reduce without keys is born here.
    """
    dataflow = scope.dataflow
    node, types = dataflow.nodes[number], dataflow.types[number]
    match node:
        case Source() | Union() | Negate() | Linear() | Unnest() | EmitOnClose():
            return _by_row(number, ports, scope, computed)
        case Constant():
            return NodeOutput(_constant(node, types, scope))
        case Temporal():
            return temporal.step(ports, runs, types, scope)
        case Join() | Asof():
            return _joined(node, ports, runs, types, scope)
        case Arrange() | Lookup():
            return delta.step(node, ports, runs, types, scope)
        case Reduce() | Distinct():
            shape = layout(dataflow).shapes[number]
            return reduce.step(shape, ports, runs, types, scope, birth=birth)
        case Threshold():
            return threshold.step(node, ports, runs, types, scope)
        case TopK(input=source):
            return topk.step(node, ports, runs, dataflow.types[source], scope)
        case Groupwise(input=source, reach=Reach() as reach):
            both = dataflow.types[source], types
            return windows.step(node, reach, ports, runs, both, scope)
        case Groupwise(input=source):
            return groupwise.step(node, ports, runs, dataflow.types[source], types, scope)
        case Upsert(input=source):
            return upsert.step(node, ports, runs, dataflow.types[source], types, scope)
        case Loop():
            raise AssertionError("a loop steps the nodes of its body")
        case _:
            assert_never(node)


def _joined(
    node: Join | Asof,
    ports: Ports,
    runs: Mapping[str, list[RunName]],
    output_types: tuple[str, ...],
    scope: EngineCall,
) -> NodeOutput:
    types = scope.dataflow.types[node.left], scope.dataflow.types[node.right]
    sides = join.JoinInputs(ports, runs, types, output_types, scope)
    return asof.step(node, sides) if isinstance(node, Asof) else join.step(node, sides)


def _by_row(number: NodeId, ports: Ports, scope: EngineCall, computed: Computed) -> NodeOutput:
    """Step a node without state, whose rows are independent of each other."""
    dataflow, kernel = scope.dataflow, scope.kernel
    node, output_types = dataflow.nodes[number], dataflow.types[number]
    types = output_types
    if isinstance(node, Linear | Unnest | EmitOnClose):
        types = dataflow.types[node.input]
    rows = flatten(ports["in"], arrow_schema(types))
    match node:
        case Negate():
            return NodeOutput(with_diffs(rows, negated(int64(rows.column("diff")))))
        case Linear():
            return linear.step(node, rows, types, output_types, kernel, computed)
        case EmitOnClose():
            return NodeOutput(emit_on_close.step(node, rows, output_types))
        case Unnest():
            return unnest.step(
                node, rows, types, output_types, columns_read(dataflow, number), kernel
            )
        case _:
            return NodeOutput(rows)


def _constant(
    node: Constant, output_types: tuple[str, ...], scope: EngineCall
) -> pa.RecordBatch:
    rows = scope.kernel.query(
        f"SELECT *, {int(scope.interval.lower)}::BIGINT, 1::BIGINT FROM ({node.sql})"
    )
    return flatten([rows], arrow_schema(output_types))
