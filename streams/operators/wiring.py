"""Routes the updates of each node to its consumers, in the form that they need.

Each consumer reads *ports*: named tables of one schema each. A Reduce reads the output of
`reduce.partial` and not the updates, so its first part runs with the producer. A port of a
keyed operator names the columns by which its rows are distributed to buckets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never

import pyarrow as pa

from streams.operators import pre_aggregation, reduce, temporal, upsert
from streams.plan.physical import (
    Arrange,
    Asof,
    Constant,
    Dataflow,
    Distinct,
    EmitOnClose,
    Groupwise,
    Join,
    Linear,
    Lookup,
    Loop,
    Negate,
    Node,
    NodeId,
    Reduce,
    Source,
    Temporal,
    Threshold,
    TopK,
    Union,
    Unnest,
    Upsert,
    inputs,
)
from streams.trace.kernel.kernel import Kernel, arrow_type


@dataclass(frozen=True, slots=True)
class Edge:
    """A consumer of a node's updates.

    `port` is the consumer's, `keys` the columns to spread by; None where they stay.
    """

    consumer: NodeId
    port: str
    keys: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Wiring:
    """A plan prepared for execution: the edges out of each node, and the shapes of the Reduces.

    `settled` says of each node whether its updates never cancel each other; `presummed` has
    the Linears whose rows go to one Reduce alone, which may be given their sums.
    """

    edges: tuple[tuple[Edge, ...], ...]
    shapes: dict[NodeId, reduce.ReduceShape]
    settled: tuple[bool, ...]
    presummed: dict[NodeId, Edge]

    def prepared(
        self, edge: Edge, dataflow: Dataflow, rows: pa.RecordBatch, kernel: Kernel
    ) -> dict[str, tuple[pa.RecordBatch, tuple[int, ...] | None]]:
        """The packets of an edge: by port, the rows and the columns to partition them by."""
        node = dataflow.nodes[edge.consumer]
        match node:
            case Reduce() | Distinct():
                shape = self.shapes[edge.consumer]
                by = tuple(range(len(shape.node.keys)))
                partials = reduce.partial(shape, rows, kernel)
                return {port: (part, by) for port, part in partials.items()}
            case Upsert():
                return {edge.port: (upsert.partial(node, rows, kernel), edge.keys)}
            case Temporal(input=source):
                types = (dataflow.types[source], dataflow.types[edge.consumer])
                lives = temporal.partial(node, rows, *types, kernel)
                return {edge.port: (lives, edge.keys)}
            case Linear() | Union() | Unnest() | Negate() | Source() | Constant() | Loop():
                return {edge.port: (rows, edge.keys)}
            case EmitOnClose():
                return {edge.port: (rows, edge.keys)}
            case Join() | Asof() | Arrange() | Lookup() | Groupwise() | TopK() | Threshold():
                return {edge.port: (rows, edge.keys)}
            case _:
                assert_never(node)


@lru_cache(maxsize=4096)
def layout(dataflow: Dataflow) -> Wiring:
    """The layout of a dataflow.

    Errors: InvalidUsage for an aggregate we do not have.
    """
    edges: list[list[Edge]] = [[] for _ in dataflow.nodes]
    shapes: dict[NodeId, reduce.ReduceShape] = {}
    for number, node in enumerate(dataflow.nodes):
        for source, port, keys in _ports(node, dataflow):
            edges[source].append(Edge(number, port, keys))
        match node:
            case Reduce():
                shapes[number] = _shape(dataflow, node)
            case Distinct(input=source):
                everything = tuple(range(len(dataflow.types[source])))
                shapes[number] = _shape(dataflow, Reduce(source, everything, ()))
            case _:
                pass
    out = tuple(tuple(edge) for edge in edges)
    return Wiring(out, shapes, _settled(dataflow), _presummed(dataflow, out, shapes))


def _presummed(
    dataflow: Dataflow,
    edges: Sequence[tuple[Edge, ...]],
    shapes: Mapping[NodeId, reduce.ReduceShape],
) -> dict[NodeId, Edge]:
    by_node: dict[NodeId, Edge] = {}
    for number, node in enumerate(dataflow.nodes):
        if not isinstance(node, Linear) or len(edges[number]) != 1:
            continue
        (edge,) = edges[number]
        types = dataflow.types[node.input], dataflow.types[number]
        shape = shapes.get(edge.consumer)
        if shape is not None and pre_aggregation.is_summed(node, shape, *types):
            by_node[number] = edge
    return by_node


def _settled(dataflow: Dataflow) -> tuple[bool, ...]:
    """Flags the nodes with settled output: keyed operators, until a column is dropped."""
    settled: list[bool] = []
    for node in dataflow.nodes:
        match node:
            case Reduce() | Groupwise() | TopK() | Distinct() | Threshold() | Upsert():
                settled.append(True)
            case Linear(input=source):
                names = {output.sql for output in node.outputs}
                width = len(dataflow.types[source])
                settled.append(settled[source] and names >= {f"c{i}" for i in range(width)})
            case _:
                settled.append(False)
    return tuple(settled)


def _ports(  # noqa: C901, PLR0911, PLR0912 - one case for each kind of node
    node: Node, dataflow: Dataflow
) -> list[tuple[NodeId, str, tuple[int, ...] | None]]:
    """The ports of a node: the columns of each, and those by which it is partitioned."""
    match node:
        case Source() | Constant():
            return []
        case Linear() | Union() | Unnest() | Negate() | EmitOnClose():
            return [(source, "in", None) for source in inputs(node)]
        case Temporal(input=source, outputs=outputs, keys=keys):
            types = [output.type for output in outputs]
            return [(source, "in", temporal.sent_by(types) if keys is None else keys)]
        case Loop():
            return [(source, str(i), ()) for i, source in enumerate(node.inputs)]
        case Threshold(keys=keys):
            return [(source, str(i), keys) for i, source in enumerate(node.inputs)]
        case Join() | Asof():
            return [(node.left, "left", node.left_keys), (node.right, "right", node.right_keys)]
        case Reduce(input=source, keys=keys):
            return [(source, "partial", keys)]
        case Distinct(input=source):
            return [(source, "partial", tuple(range(len(dataflow.types[source]))))]
        case Lookup(arranged=arranged):
            keeper = dataflow.nodes[arranged]
            assert isinstance(keeper, Arrange), keeper
            return [(node.stream, "stream", node.keys), (arranged, "arranged", keeper.keys)]
        case Upsert() | Groupwise() | TopK() | Arrange():
            return [(node.input, "in", node.keys)]
        case _:
            assert_never(node)


def _shape(dataflow: Dataflow, node: Reduce) -> reduce.ReduceShape:
    return reduce.shape(node, [arrow_type(kind) for kind in dataflow.types[node.input]])
