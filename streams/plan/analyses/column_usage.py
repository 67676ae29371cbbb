"""Computes which columns of imports and nodes a dataflow reads; others are not produced."""

import re
from functools import lru_cache

from streams.plan.physical import (
    Dataflow,
    Expression,
    Linear,
    Node,
    NodeId,
    Source,
    Temporal,
    inputs,
)

_COLUMN = re.compile(r"\bc(\d+)\b")


def columns_imported(dataflow: Dataflow, index: int) -> frozenset[int]:
    """The positions of an import's columns that are read, as `columns_read` knows them."""
    sources = [i for i, node in enumerate(dataflow.nodes) if node == Source(index)]
    return frozenset[int]().union(*(columns_read(dataflow, number) for number in sources))


@lru_cache(maxsize=4096)
def columns_read(dataflow: Dataflow, number: NodeId) -> frozenset[int]:
    """The positions of a node's columns that something is computed from.

    There may be some too many: text in an expression may look like a column. Not for a value
    of a loop, which the loop itself reads; an Unnest is none, for its lists end above it.
    """
    every = frozenset(range(len(dataflow.types[number])))
    readers = [node for node in dataflow.nodes if number in inputs(node)]
    by_row = bool(readers) and all(isinstance(reader, Linear | Temporal) for reader in readers)
    if not by_row or number == len(dataflow.nodes) - 1:
        return every
    texts = [expression.sql for reader in readers for expression in _expressions(reader)]
    return every & {int(place) for text in texts for place in _COLUMN.findall(text)}


def _expressions(node: Node) -> tuple[Expression, ...]:
    match node:
        case Linear(predicates=predicates, outputs=outputs):
            return (*predicates, *outputs)
        case Temporal(predicates=predicates, bounds=bounds, outputs=outputs):
            return (*predicates, *(bound.value for bound in bounds), *outputs)
        case _:
            raise AssertionError("other nodes look at whole rows")
