"""Recursion: recomputes a body until a fixed point, with differences kept per iteration.

    X(1) = body(nothing), X(i) = body(X(i - 1)), as long as they differ; the result is the last

All outer times of the interval go through iteration i together: operators exchange changes of
the differences, at (time, iteration). The inputs change at iteration 1, and a variable changes
where its value changed one iteration before. An iteration without changes that no operator has
scheduled (`iterative`) is skipped: so the cost of a change is that of the changes it causes, at
any depth of the recursion. Updates that cancel are removed before an operator stores them and
between iterations, so that the loop ends when values stop changing.

State is kept by iteration (rule 25): when the edge that led to a cycle is deleted, the facts of
the cycle are retracted in the order in which they were derived.

A row that fails in some iteration is missing from all later ones, so its error remains in the
result, whatever later values are. If the loop may fail, one iteration beyond its limit is
computed: every difference in it is an error, at the times at which it exists.

State: that of the operators of the body. Cost: O(what they do), and a fixed cost, of the
order of a millisecond, for each operator at each iteration at which something arrives.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from streams.operators import nodes
from streams.operators.context import ERRORS, EngineCall, NodeOutput, Ports
from streams.operators.iterative import (
    Evaluate,
    IterativeGroups,
    IterativeJoin,
    PortInput,
    distinct,
    nonzero_errors,
    time_before,
)
from streams.operators.wiring import Wiring, layout
from streams.plan.physical import (
    Distinct,
    Groupwise,
    Join,
    Loop,
    NodeId,
    Reduce,
    Source,
    Threshold,
    TopK,
)
from streams.progress import interval_of
from streams.temporary import temporary_directory
from streams.trace.arrange.runs import RunCache, RunName, SharedFile
from streams.trace.kernel.kernel import arrow_schema
from streams.trace.updates import consolidate, consolidate_if_needed, flatten

_ERROR = ("VARCHAR",)
"""The columns of errors as a collection of their own."""


def step(
    node: Loop, ports: Ports, runs: Mapping[str, list[RunName]], scope: EngineCall
) -> NodeOutput:
    """The changes of the loop's result over the interval, the errors, and the new runs.

    Args:
        node: the loop.
        ports: updates of each input, by its number.
        runs: the runs of the body's operators, by node and arrangement.
        scope: the worker's means.
    """
    with temporary_directory("slackwater-") as directory:
        turning = _Turning(node, scope, _apart(node, scope, Path(directory)), runs)
        turning.begin(ports)
        turning.run()
        return turning.stepped()


def _apart(node: Loop, scope: EngineCall, directory: Path) -> EngineCall:
    """The scratch context of the body's operators; its state is thrown away."""
    names = map("scratch{}".format, itertools.count())
    context = replace(
        scope.context,
        directory=directory,
        new_name=names.__next__,
        cache=RunCache(limit=1),
        shared=SharedFile(),
    )
    interval = interval_of(time_before(scope.interval), scope.interval.upper, as_of=True)
    return EngineCall(node.body, interval, 1, context)


Operator = IterativeJoin | IterativeGroups
Arriving = dict[NodeId, dict[str, list[pa.RecordBatch]]]


@dataclass(slots=True)
class _Turning:
    """The state of a running loop.

    After the body's nodes there is one that collects errors, and one for each binding that
    checks whether its value still changes.
    """

    node: Loop
    scope: EngineCall
    inside: EngineCall
    runs: Mapping[str, list[RunName]]
    layout: Wiring = field(init=False)
    operators: dict[NodeId, Operator] = field(default_factory=dict)
    arriving: dict[int, Arriving] = field(default_factory=dict)
    output: list[pa.RecordBatch] = field(default_factory=list)
    errors: list[pa.RecordBatch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.layout = layout(self.node.body)
        body = self.node.body
        for number in range(len(body.nodes)):
            operator = self._operator(number)
            if operator is not None:
                self.operators[number] = operator
        self.operators[self._failed] = IterativeGroups(
            {"in": PortInput(_ERROR, (0,))},
            distinct(_ERROR, self.scope.kernel),
            self._own(self._failed),
            self.scope,
        )
        for place, name in enumerate(self.node.names):
            number, types = self._failed + 1 + place, body.types[self.node.values[place]]
            text = f"recursion {name} still changes after {self.node.limit} iterations"
            self.operators[number] = IterativeGroups(
                {"in": PortInput(types, tuple(range(len(types))))},
                nonzero_errors(text, len(types), self.scope.kernel),
                self._own(number),
                self.scope,
            )

    @property
    def _failed(self) -> NodeId:
        return len(self.node.body.nodes)

    @property
    def _last(self) -> int:
        return self.node.limit + self.node.fails

    def begin(self, ports: Ports) -> None:
        """Add the updates of the inputs, at the first iteration."""
        body = self.node.body
        for number, source in enumerate(body.nodes):
            if isinstance(source, Source) and str(source.index) in ports:
                schema = arrow_schema(body.types[number])
                self._arrive(1, number, "in", flatten(ports[str(source.index)], schema))

    def run(self) -> None:
        """Go through the iterations at which there is anything to do, in order."""
        while (iteration := self._next()) <= self._last:
            for number in range(self._failed + 1 + len(self.node.values)):
                here = self.arriving.get(iteration, {}).get(number, {})
                if here or iteration in self._due(number):
                    for later, stepped in self._step(number, iteration, here):
                        self._deliver(number, later, stepped)
            self.arriving.pop(iteration, None)

    def stepped(self) -> NodeOutput:
        """The results."""
        body, kernel = self.node.body, self.scope.kernel
        schema = arrow_schema(body.types[self.node.values[self.node.result]])
        run_names = {
            f"{number}.{port}": names
            for number, operator in self.operators.items()
            for port, names in operator.close().items()
        }
        return NodeOutput(
            consolidate_if_needed(flatten(self.output, schema), kernel),
            tuple(self.errors),
            run_names,
        )

    def _operator(self, number: NodeId) -> Operator | None:
        """The store of differences of a node; None for a stateless one."""
        body = self.node.body
        node, own = body.nodes[number], self._own(number)
        match node:
            case Join():
                types = (body.types[node.left], body.types[node.right])
                return IterativeJoin(node, types, own, self.scope)
            case Reduce() | Groupwise() | TopK():
                inputs = {"in": PortInput(body.types[node.input], node.keys)}
            case Distinct():
                types_ = body.types[node.input]
                evaluate = distinct(types_, self.scope.kernel)
                return IterativeGroups({"in": _whole(types_)}, evaluate, own, self.scope)
            case Threshold():
                inputs = {str(i): _whole(body.types[n]) for i, n in enumerate(node.inputs)}
            case _:
                return None
        born = isinstance(node, Reduce) and not node.keys
        evaluate = self._evaluated(number)
        return IterativeGroups(inputs, evaluate, own, self.scope, born)

    def _own(self, number: NodeId) -> dict[str, list[RunName]]:
        prefix = f"{number}."
        return {
            name.removeprefix(prefix): names
            for name, names in self.runs.items()
            if name.startswith(prefix)
        }

    def _evaluated(self, number: NodeId) -> Evaluate:
        """A node's operator over updates, without state."""
        scope, arranged = self.inside, self.layout
        node = scope.dataflow.nodes[number]
        birth = isinstance(node, Reduce) and not node.keys
        edges = {
            _port(edge.port): edge
            for edges in arranged.edges
            for edge in edges
            if edge.consumer == number
        }

        def evaluate(values: Mapping[str, pa.RecordBatch]) -> NodeOutput:
            ports: dict[str, list[pa.RecordBatch]] = {}
            for port, rows in values.items():
                sent = arranged.prepared(edges[port], scope.dataflow, rows, scope.kernel)
                ports |= {name: [part] for name, (part, _) in sent.items()}
            return nodes.step(number, ports, {}, scope, birth=birth)

        return evaluate

    def _due(self, number: NodeId) -> Mapping[int, object]:
        operator = self.operators.get(number)
        return {} if operator is None else operator.due

    def _next(self) -> int:
        due = (
            min(operator.due, default=self._last + 1) for operator in self.operators.values()
        )
        return min(min(self.arriving, default=self._last + 1), *due)

    def _step(
        self, number: NodeId, iteration: int, ports: Mapping[str, list[pa.RecordBatch]]
    ) -> Iterator[tuple[int, NodeOutput]]:
        operator = self.operators.get(number)
        if operator is not None:
            yield from operator.step(iteration, ports)
            return
        body = self.node.body
        source = body.nodes[number]
        stepped = nodes.step(number, ports, {}, self.inside)
        if isinstance(source, Source) and source.index >= len(self.node.inputs):
            assert stepped.output is not None
            stepped = NodeOutput(consolidate(stepped.output, self.scope.kernel))
        yield iteration, stepped

    def _deliver(self, number: NodeId, iteration: int, stepped: NodeOutput) -> None:
        """Send rows to the consumers of this iteration, and to the variables of the next."""
        if number > self._failed:
            self.errors += stepped.errors
            return
        for errors in stepped.errors:
            self._arrive(iteration, self._failed, "in", errors)
        rows = stepped.output
        if rows is None or not rows.num_rows:
            return
        if number == self._failed:
            self.errors.append(flatten([rows], ERRORS))
            self._arrive(iteration + 1, self._failed, "in", rows)
            return
        for edge in self.layout.edges[number]:
            self._arrive(iteration, edge.consumer, _port(edge.port), rows)
        for place, value in enumerate(self.node.values):
            if value == number:
                self._bind(place, iteration, rows)

    def _bind(self, place: int, iteration: int, rows: pa.RecordBatch) -> None:
        """Pass a change of a binding to the next iteration, or past the limit as an error."""
        if iteration > self.node.limit:
            self._arrive(iteration, self._failed + 1 + place, "in", rows)
            return
        if place == self.node.result:
            self.output.append(rows)
        variable = Source(len(self.node.inputs) + place)
        for number, node in enumerate(self.node.body.nodes):
            if node == variable:
                self._arrive(iteration + 1, number, "in", rows)

    def _arrive(self, iteration: int, number: NodeId, port: str, rows: pa.RecordBatch) -> None:
        if rows.num_rows and iteration <= self._last:
            here = self.arriving.setdefault(iteration, {}).setdefault(number, {})
            here.setdefault(port, []).append(rows)


def _whole(types: tuple[str, ...]) -> PortInput:
    return PortInput(types, tuple(range(len(types))))


def _port(port: str) -> str:
    """A Reduce in a loop receives its whole input: it is summed for each value instead."""
    return "in" if port == "partial" else port
