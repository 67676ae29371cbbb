"""Which queries of the corpora stand for all of them on Spark, and what a query asks of it.

What a query means is the engine's, which the corpora prove in process. Spark carries blobs
between its workers: so each kind of node, each type of a column and each number of exchanges
has to come along once. `make test` steps the queries below on Spark, `make test-long` all.
"""

from collections.abc import Iterable
from typing import Any

import pytest

from streams.plan.physical import Dataflow, Threshold

SHORT = {
    "tpch": (2, 5, 8, 16, 21),
    "nexmark": ("q0", "q5", "q6", "q11"),
    "retail": (
        "neighbours in time by a join with itself",
        "customers of all channels",
        "what is sold in one channel more often",
        "customers that buy in shops and elsewhere",
    ),
}


def marked(corpus: str, queries: Iterable[Any]) -> list[Any]:
    """The queries as parameters, those that others stand for marked as long."""
    short = SHORT[corpus]
    return [
        query if query in short else pytest.param(query, marks=pytest.mark.long)
        for query in queries
    ]


def asked(dataflow: Dataflow) -> frozenset[str]:
    """Its kinds of nodes, its columns' types without their parameters, and its rounds."""
    types = {kind.partition("(")[0] for kinds in dataflow.types for kind in kinds}
    return frozenset({f"{dataflow.depth} rounds", *types, *map(_kind, dataflow.nodes)})


def _kind(node: object) -> str:
    name = type(node).__name__
    return f"{name} {node.rule}" if isinstance(node, Threshold) else name
