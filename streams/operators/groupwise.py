"""Groupwise: recomputes any DuckDB function of a group's rows at every time it changes.

It computes windows, LIMIT by a percentage, and all functions without an operator of their own.
For each pair of a changed group and a time (`operators.group_contents`) DuckDB computes the
result of the group; the change is the difference of two successive pairs of the group:

    d(t) = f(contents at t) - f(contents just before t)

The result before the interval is recomputed, not stored: f depends only on the contents, so it
equals what was emitted, bit for bit (rule 23). A pair for which DuckDB raises, or which has a
row of negative multiplicity, is an error of that group at that time.

Cost: O(rows of the changed groups * times), in chunks of bounded size. EXPLAIN says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from streams.operators import group_contents
from streams.operators.context import ERRORS, NEGATIVE, EngineCall, NodeOutput, Ports
from streams.operators.evaluation import (
    Evaluate,
    EvaluationResults,
    Types,
    evaluate,
    port,
    source,
)
from streams.operators.group_contents import GroupTimes
from streams.operators.interesting_times import of_rows as moments_of
from streams.plan.physical import Groupwise
from streams.trace.arrange.runs import RunName
from streams.trace.columns import Ints, canonical, int64
from streams.trace.kernel.kernel import Kernel, arrow_schema, data_schema
from streams.trace.updates import consolidate, consolidate_if_needed, flatten

_ROWS = "rows"


def step(
    node: Groupwise,
    ports: Ports,
    runs: Mapping[str, list[RunName]],
    types: Sequence[str],
    output_types: Sequence[str],
    scope: EngineCall,
) -> NodeOutput:
    """The changes of the groups' results, the errors, and the new runs.

    Args:
        node: the operator.
        ports: updates on port `in`.
        runs: the operator's runs.
        types: the DuckDB types of the input's columns.
        output_types: those of the output.
        scope: the worker's means.
    """
    rows = flatten(ports.get("in", []), arrow_schema(types))
    rows = consolidate(rows, scope.kernel)
    if not rows.num_rows:
        return NodeOutput(None, runs=runs)
    keys = [canonical(rows.column(key)) for key in node.keys]
    moments, _ = moments_of(keys, int64(rows.column("time")), scope.kernel)
    shape = group_contents.schema([key.type for key in keys], list(rows.schema)[:-2])
    changes = pa.RecordBatch.from_arrays([*keys, *rows.columns], schema=shape)
    contents, run_names = group_contents.of_changes(
        changes, len(keys), moments, runs.get(_ROWS, []), scope
    )
    statement = _statement(node, types, scope.kernel)
    collected = DifferenceCollector(contents.pairs, output_types, scope)
    for start, end in contents.chunks():
        collected.add(evaluate(contents, start, end, statement), start)
    return NodeOutput(collected.output(), collected.errors(label(node)), {_ROWS: run_names})


def label(node: Groupwise) -> str:
    """The operator's name in errors: the names of its outputs."""
    width = len(node.outputs)
    computed = [
        expression.label
        for i, expression in enumerate(node.outputs)
        if expression.sql != f"c{i}"
    ]
    return ", ".join(computed) if computed and width else "LIMIT"


def _statement(node: Groupwise, types: Sequence[str], kernel: Kernel) -> Evaluate:
    named: Types = {f"c{index}": kind for index, kind in enumerate(types)}
    outputs = [f"{expression.sql} AS c{index}" for index, expression in enumerate(node.outputs)]
    where = f" QUALIFY {node.condition.sql}" if node.condition else ""
    text = f"SELECT {', '.join(['p', *outputs])} FROM {source(named)}{where}"
    return lambda rows: kernel.prepare(text, t=port(named)).run(rows)


@dataclass(slots=True)
class DifferenceCollector:
    """The differences of consecutive pairs, chunk after chunk."""

    pairs: GroupTimes
    output_types: Sequence[str]
    scope: EngineCall
    parts: list[pa.RecordBatch] = field(default_factory=list)
    failed: list[Ints] = field(default_factory=list)
    negative: list[Ints] = field(default_factory=list)

    def add(self, some: EvaluationResults, start: int) -> None:
        """The results of the pairs from `start` on, each valid until the next one's time."""
        pair = some.rows["p"].combine_chunks().to_numpy() + start
        data = some.rows.select([f"c{index}" for index in range(len(self.output_types))])
        columns = flatten([data], data_schema(self.output_types))
        changes = [self._moved(columns, *change) for change in self._times(pair)]
        whole = flatten(changes, arrow_schema(self.output_types))
        self.parts.append(consolidate(whole, self.scope.kernel))
        self.failed.append(some.failed)
        self.negative.append(some.negative)

    def _times(self, pair: Ints) -> list[tuple[Ints, Ints, int]]:
        """The rows that appear and disappear within the interval, with times and diffs."""
        moment, owner = self.pairs.moment, self.pairs.owner
        times = self.pairs.moments.times
        come = np.flatnonzero(moment[pair] >= 0)
        following = np.minimum(pair + 1, len(owner) - 1)
        gone = np.flatnonzero((pair + 1 < len(owner)) & (owner[following] == owner[pair]))
        return [
            (come, times[moment[pair[come]]], 1),
            (gone, times[moment[pair[gone] + 1]], -1),
        ]

    def _moved(
        self, rows: pa.RecordBatch, places: Ints, times: Ints, diff: int
    ) -> pa.RecordBatch:
        arrays = rows.take(pa.array(places)).columns
        diffs = np.full(len(places), diff, np.int64)
        schema = arrow_schema(self.output_types)
        return pa.RecordBatch.from_arrays(
            [*arrays, pa.array(times), pa.array(diffs)], schema=schema
        )

    def output(self) -> pa.RecordBatch | None:
        """The changes of all chunks."""
        whole = flatten(self.parts, arrow_schema(self.output_types))
        return consolidate(whole, self.scope.kernel) if whole.num_rows else None

    def errors(self, label: str) -> tuple[pa.RecordBatch, ...]:
        """The errors of the pairs that failed."""
        batches = [
            self._errors(f"cannot evaluate {label}", self.failed),
            self._errors(NEGATIVE, self.negative),
        ]
        return tuple(batch for batch in batches if batch.num_rows)

    def _errors(self, text: str, parts: list[Ints]) -> pa.RecordBatch:
        pair = np.concatenate([*parts, np.empty(0, np.int64)]).astype(np.int64)
        changes = []
        for places, times, diff in self._times(pair):
            texts = pa.array([text] * len(places), pa.string())
            diffs = pa.array(np.full(len(places), diff, np.int64))
            changes.append(
                pa.RecordBatch.from_arrays([texts, pa.array(times), diffs], schema=ERRORS)
            )
        return consolidate_if_needed(flatten(changes, ERRORS), self.scope.kernel)
