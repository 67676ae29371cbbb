"""Meters the nodes of a dataflow in one task: time, rows in, rows out."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from streams.operators.context import Context
from streams.plan.physical import NodeId

MeteredNode = tuple[int, int, int]
"""Microseconds, rows in, rows out."""


@dataclass(slots=True)
class NodeWatch:
    """Adds the time between its entry and its exit to a node's microseconds.

    A class, because a generator takes three times as long, for each node in each task.
    """

    micros: dict[NodeId, float]
    node: NodeId
    began: float = 0.0

    def __enter__(self) -> None:
        self.began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        spent = (time.perf_counter() - self.began) * 1_000_000
        self.micros[self.node] = self.micros.get(self.node, 0.0) + spent


@dataclass(slots=True)
class NodeMeter:
    """The work for each node so far; times are by the clock."""

    micros: dict[NodeId, float] = field(default_factory=dict)
    rows: dict[NodeId, tuple[int, int]] = field(default_factory=dict)

    def on(self, context: Context) -> Context:
        """Return the context with this meter."""
        return replace(context, watch=self.watch, count=self.count)

    def watch(self, node: NodeId) -> "NodeWatch":
        """Return a context manager that adds the time spent in it to the node's time."""
        return NodeWatch(self.micros, node)

    def count(self, node: NodeId, rows_in: int, rows_out: int) -> None:
        """Add rows to a node's."""
        came, went = self.rows.get(node, (0, 0))
        self.rows[node] = (came + rows_in, went + rows_out)

    @property
    def nodes(self) -> Mapping[NodeId, MeteredNode]:
        """Return the work of the nodes that had any."""
        return {
            node: (round(self.micros.get(node, 0.0)), *self.rows.get(node, (0, 0)))
            for node in sorted(self.micros.keys() | self.rows.keys())
        }
