"""The engine: one step of a dataflow, as two functions over Arrow and a run directory.

    start     level 0, where the imports are read: any share of them, anywhere, no state
    advance   one level >= 1 in one bucket: what was sent there, and the bucket's runs

Both are pure except for the run files that `advance` writes, so a call may be repeated: it
returns the same updates and equal runs under other names. The driver delivers packets to their
bucket and level, keeps the runs for the next step, and adds up the outputs: the outputs of all
calls of a step are the changes of the dataflow's output in the interval, exact at every time.

In the first step (`Interval.as_of`) every bucket is advanced at every level, also without
input: one of them produces constants and the row of an operator without keys. Later a bucket is
also advanced without input at the levels in `due`, where the interval reaches pending updates.

The same functions serve the replica on Spark and `streams.testing`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from streams.operators import emit_on_close, linear, loop, nodes, pre_aggregation, temporal
from streams.operators.context import (
    ERRORS,
    Context,
    EngineCall,
    EngineOutput,
    NodeOutput,
    Packet,
    RunsByOperator,
)
from streams.operators.exchange import bucket_of, split, spread
from streams.operators.linear import Computed
from streams.operators.wiring import Edge, Wiring, layout
from streams.plan.physical import (
    Constant,
    Dataflow,
    Linear,
    Lookup,
    Loop,
    NodeId,
    Reduce,
    Source,
    Temporal,
)
from streams.progress import Interval
from streams.trace.arrange import pending
from streams.trace.arrange.runs import RunName
from streams.trace.columns import HASH_SELF_TEST, hash_keys
from streams.trace.kernel.kernel import ENGINE_VERSIONS, arrow_schema
from streams.trace.updates import consolidate_if_needed, flatten, key_columns

__all__ = [
    "Context",
    "EngineOutput",
    "Packet",
    "RunsByOperator",
    "advance",
    "due",
    "fingerprint",
    "next_due",
    "start",
]

ENGINE_VERSION = 4
"""Raised whenever the form of runs or the bits of an output change: state is then dropped."""

NO_IMPORT: Mapping[int, Computed] = {}

_Rows: TypeAlias = pa.Table | pa.RecordBatch


def fingerprint() -> str:
    """The inputs, besides the plan, that state and output bits depend on (rule 24).

    The number of buckets is none: `operators.rescaling` takes state to another one.
    """
    return f"engine {ENGINE_VERSION} {ENGINE_VERSIONS} hash {HASH_SELF_TEST}"


def start(
    dataflow: Dataflow,
    imports: Mapping[int, pa.Table],
    interval: Interval,
    buckets: int,
    ctx: Context,
    *,
    computed: Mapping[int, Computed] = NO_IMPORT,
) -> EngineOutput:
    """Level 0 over a share of the imports' updates.

    Args:
        dataflow: the plan.
        imports: by index of the import, updates in [lower, upper): the import's columns in
            order under any names, then time and diff.
        interval: the step's interval.
        buckets: how many buckets the later levels have.
        ctx: the worker's means.
        computed: by index of the import, what is known of its updates, in their order.
    """
    ctx.kernel.define(dataflow.functions)
    scope = EngineCall(dataflow, interval, buckets, ctx)
    level = _Level(scope, layout(dataflow), 0, None)
    for number, node in enumerate(dataflow.nodes):
        if isinstance(node, Source) and node.index in imports:
            level.computed[number] = computed.get(node.index, linear.NOTHING)
            schema = arrow_schema(dataflow.types[number])
            level.arrive(number, "in", flatten([imports[node.index]], schema))
    level.run({})
    return level.emitted()


def advance(  # noqa: PLR0913, PLR0917 - a worker knows all of these apart, and has no object of them
    dataflow: Dataflow,
    level: int,
    bucket: int,
    inbox: Mapping[tuple[int, str], list[pa.Table]],
    runs: RunsByOperator,
    interval: Interval,
    ctx: Context,
    *,
    buckets: int,
) -> tuple[EngineOutput, RunsByOperator]:
    """One level in one bucket: its nodes in order, over the packets that came and the runs.

    Args:
        dataflow: the plan.
        level: the level, at least 1.
        bucket: the bucket.
        inbox: the tables of the packets sent to this level and bucket, by node and port.
        runs: the bucket's runs after the step before, of every level; empty at birth.
        interval: the step's interval.
        ctx: the worker's means.
        buckets: how many buckets there are.

    Returns:
        What came of it, and the bucket's runs of this level from now on.
    """
    ctx.kernel.define(dataflow.functions)
    scope = EngineCall(dataflow, interval, buckets, ctx)
    here = _Level(scope, layout(dataflow), level, bucket)
    for (node, port), tables in inbox.items():
        for table in tables:
            here.arrive(node, port, table)
    after = here.run(runs)
    return here.emitted(), after


def due(dataflow: Dataflow, runs: RunsByOperator, upper: int) -> frozenset[int]:
    """The levels at which a bucket with these runs has updates pending below `upper`."""
    waiting = _pending(dataflow, runs).items()
    return frozenset(dataflow.levels[number] for number, time in waiting if time < upper)


def next_due(dataflow: Dataflow, runs: RunsByOperator) -> int | None:
    """The time of the next pending update in a bucket with these runs; None for none."""
    return min(_pending(dataflow, runs).values(), default=None)


def _pending(dataflow: Dataflow, runs: RunsByOperator) -> dict[NodeId, int]:
    """For each node, the next time of its pending updates."""
    return {
        number: time
        for number, node in enumerate(dataflow.nodes)
        if isinstance(node, Temporal) and (time := _next_at(number, runs)) is not None
    }


def is_of_pending_rows(name: str) -> bool:
    """Whether runs of this name, as in `RunsByOperator`, hold updates of later times."""
    return name.endswith(f".{temporal.PENDING}")


def _next_at(number: NodeId, runs: RunsByOperator) -> int | None:
    return pending.next_due(runs.get(f"{number}.{temporal.PENDING}", ()))


def _by_operator(runs: RunsByOperator) -> dict[NodeId, dict[str, list[RunName]]]:
    by_node: dict[NodeId, dict[str, list[RunName]]] = {}
    for name, names in runs.items():
        operator, _, arrangement = name.partition(".")
        by_node.setdefault(int(operator), {})[arrangement] = names
    return by_node


@dataclass(slots=True)
class _Level:
    """The running state of one call: rows received at each port, and results so far."""

    scope: EngineCall
    layout: Wiring
    level: int
    bucket: int | None
    ports: dict[NodeId, dict[str, list[_Rows]]] = field(default_factory=dict)
    computed: dict[NodeId, Computed] = field(default_factory=dict)
    packets: list[Packet] = field(default_factory=list)
    errors: list[pa.RecordBatch] = field(default_factory=list)
    output: pa.RecordBatch | None = None

    def arrive(self, node: NodeId, port: str, rows: _Rows) -> None:
        """Add rows to the input of a node's port."""
        if rows.num_rows:
            self.ports.setdefault(node, {}).setdefault(port, []).append(rows)

    def run(self, runs: RunsByOperator) -> dict[str, list[RunName]]:
        """Step every node of the level, in order; return the names of its new runs."""
        before = _by_operator(runs)
        run_names: dict[str, list[RunName]] = {}
        for number, level in enumerate(self.scope.dataflow.levels):
            if level != self.level:
                continue
            after = before.get(number, {})
            if self._is_awake(number, runs) and not self._is_presummed(number):
                with self.scope.context.watch(number):
                    stepped = self._step(number, before.get(self._keeper(number), {}))
                after = {**after, **stepped.runs}
                self.errors += stepped.errors
                rows_out = 0 if stepped.output is None else stepped.output.num_rows
                self.scope.context.count(number, self._rows(number), rows_out)
                if stepped.output is not None and rows_out:
                    self._deliver(number, stepped.output)
            run_names |= {
                f"{number}.{arrangement}": names for arrangement, names in after.items()
            }
        return run_names

    def _keeper(self, number: NodeId) -> NodeId:
        """Whose state a node reads: an arrangement's serves lookups of any level."""
        node = self.scope.dataflow.nodes[number]
        return node.arranged if isinstance(node, Lookup) else number

    def emitted(self) -> EngineOutput:
        """The results of the call."""
        output = errors = None
        if self.output is not None:
            rows = self.output
            if not self.layout.settled[-1]:
                rows = consolidate_if_needed(rows, self.scope.kernel)
            output = pa.Table.from_batches([rows]) if rows.num_rows else None
        if self.errors:
            failed = consolidate_if_needed(flatten(self.errors, ERRORS), self.scope.kernel)
            errors = pa.Table.from_batches([failed]) if failed.num_rows else None
        errors = emit_on_close.lasting_errors(self.scope.dataflow, errors)
        return EngineOutput(tuple(self.packets), output, errors)

    def _is_presummed(self, number: NodeId) -> bool:
        """Send on the sums of a Linear's rows in place of them, where that is possible."""
        edge = self.layout.presummed.get(number)
        if edge is None or self._rows(number) < pre_aggregation.FEWEST:
            return False
        dataflow, shape = self.scope.dataflow, self.layout.shapes[edge.consumer]
        node = dataflow.nodes[number]
        assert isinstance(node, Linear), "only what is linear is summed ahead"
        types = dataflow.types[node.input]
        with self.scope.context.watch(number):
            rows = flatten(self.ports[number]["in"], arrow_schema(types))
            partial_sums = pre_aggregation.partial(node, shape, rows, types, self.scope.kernel)
        if partial_sums is None:
            return False
        self.scope.context.count(number, rows.num_rows, partial_sums.num_rows)
        with self.scope.context.watch(edge.consumer):
            self._route(edge, edge.port, partial_sums, tuple(range(len(shape.node.keys))))
        return True

    def _rows(self, number: NodeId) -> int:
        """The number of input rows of a node."""
        parts = self.ports.get(number, {}).values()
        return sum(part.num_rows for batch in parts for part in batch)

    def _is_awake(self, number: NodeId, runs: RunsByOperator) -> bool:
        """Whether a node has work: input, the first step, or pending updates that are due."""
        if number in self.ports or self._is_born(number):
            return True
        if not isinstance(self.scope.dataflow.nodes[number], Temporal):
            return False
        time = _next_at(number, runs)
        return time is not None and time < self.scope.interval.upper

    def _is_born(self, number: NodeId) -> bool:
        """Whether this call is the one that gives birth to a node's own rows."""
        if not self.scope.interval.as_of or self.bucket is None:
            return False
        node = self.scope.dataflow.nodes[number]
        match node:
            case Constant() | Reduce(keys=()) | Loop():
                return self.bucket == int(bucket_of(hash_keys([], 1), self.scope.buckets)[0])
            case _:
                return False

    def _step(self, number: NodeId, runs: Mapping[str, list[RunName]]) -> NodeOutput:
        node, ports = self.scope.dataflow.nodes[number], self.ports.get(number, {})
        if isinstance(node, Loop):
            return loop.step(node, ports, runs, self.scope)
        computed = linear.NOTHING
        if isinstance(node, Linear):
            computed = self.computed.get(node.input, linear.NOTHING)
        birth = self._is_born(number)
        return nodes.step(number, ports, runs, self.scope, computed=computed, birth=birth)

    def _deliver(self, number: NodeId, rows: pa.RecordBatch) -> None:
        """Send rows to the output, to consumers on this level, and into packets."""
        dataflow = self.scope.dataflow
        if number == len(dataflow.nodes) - 1:
            self.output = rows
        for edge in self.layout.edges[number]:
            with self.scope.context.watch(edge.consumer):
                sent = self.layout.prepared(edge, dataflow, rows, self.scope.kernel)
                for port, (part, keys) in sent.items():
                    self._route(edge, port, part, keys)

    def _route(
        self, edge: Edge, port: str, rows: pa.RecordBatch, keys: tuple[int, ...] | None
    ) -> None:
        if self.scope.dataflow.levels[edge.consumer] == self.level:
            self.arrive(edge.consumer, port, rows)
        else:
            self._send(edge, port, rows, keys)

    def _send(
        self, edge: Edge, port: str, rows: pa.RecordBatch, keys: tuple[int, ...] | None
    ) -> None:
        buckets = self.scope.buckets
        if keys is None:
            bucket = spread(rows.num_rows, self.bucket, buckets)
        else:
            forms = key_columns(rows, keys, self.scope.kernel)[1]
            bucket = bucket_of(hash_keys(forms, rows.num_rows), buckets)
        level = self.scope.dataflow.levels[edge.consumer]
        for index, part in split(rows, bucket, buckets):
            table = pa.Table.from_batches([part])
            self.packets.append(Packet(index, level, edge.consumer, port, table))
