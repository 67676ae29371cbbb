"""Dataflows for tests: built by hand, stepped in process, read at every time."""

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from streams.ids import CollectionId
from streams.operators.context import ERRORS
from streams.operators.local import LocalDataflow
from streams.plan.physical import Column, Dataflow, Import, Node, Source
from streams.progress import interval_of
from streams.trace import updates as trace
from streams.trace.arrange.runs import PIECE
from streams.trace.kernel.kernel import Kernel, arrow_schema
from tests.model.collection import Contents, Row, Update

LAST = 6
"""The last time of random updates."""


@cache
def kernel() -> Kernel:
    return Kernel()


def table(updates: Sequence[Update], types: Sequence[str]) -> pa.Table:
    """Updates as the engine's table."""
    schema = arrow_schema(types)
    columns = [[row[i] for row, _, _ in updates] for i in range(len(types))]
    columns += [[at for _, at, _ in updates], [diff for _, _, diff in updates]]
    return pa.Table.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)],
        schema=schema,
    )


def dataflow(
    inputs: Sequence[Sequence[str]], *nodes: tuple[Node, Sequence[str], int]
) -> Dataflow:
    """A dataflow over imports of the given types; further nodes with their types and level."""
    imports = tuple(
        Import(
            CollectionId(f"u{i}"), tuple(Column(f"x{j}", kind) for j, kind in enumerate(types))
        )
        for i, types in enumerate(inputs)
    )
    sources: list[tuple[Node, Sequence[str], int]] = [
        (Source(i), types, 0) for i, types in enumerate(inputs)
    ]
    everything = [*sources, *nodes]
    return Dataflow(
        imports,
        tuple(node for node, _, _ in everything),
        tuple(tuple(types) for _, types, _ in everything),
        tuple(level for _, _, level in everything),
        tuple(Column(f"y{j}", kind) for j, kind in enumerate(everything[-1][1])),
    )


@contextmanager
def running(
    flow: Dataflow, buckets: int = 2, merge_factor: int = 2, piece: int = PIECE
) -> Iterator[LocalDataflow]:
    with tempfile.TemporaryDirectory() as directory:
        yield LocalDataflow(flow, Path(directory), buckets, merge_factor, kernel(), piece)


class History:
    """What a dataflow put out, read at any time."""

    def __init__(self, flow: Dataflow) -> None:
        self.schema = arrow_schema(flow.types[-1])
        self.outputs: list[pa.Table] = []
        self.errors: list[pa.Table] = []

    def at(self, time: int) -> Contents:
        rows = trace.contents_at(
            trace.flatten(self.outputs, self.schema), time, kernel()
        ).to_pylist()
        names = self.schema.names[:-2]
        return Counter({tuple(row[name] for name in names): row["diff"] for row in rows})

    def errors_at(self, time: int) -> Counter[str]:
        rows = trace.contents_at(trace.flatten(self.errors, ERRORS), time, kernel()).to_pylist()
        return Counter({row["error"]: row["diff"] for row in rows})


def run(
    flow: Dataflow,
    inputs: Sequence[Sequence[Update]],
    uppers: Sequence[int],
    buckets: int = 2,
    merge_factor: int = 2,
    piece: int = PIECE,
) -> History:
    """Step a dataflow over the updates, cut at `uppers`; everything before 0 does not exist."""
    history = History(flow)
    with running(flow, buckets, merge_factor, piece) as local:
        for lower, upper in pairwise([0, *uppers]):
            imports = {
                i: table(
                    [update for update in updates if lower <= update[1] < upper],
                    [column.type for column in flow.imports[i].columns],
                )
                for i, updates in enumerate(inputs)
            }
            outputs, errors = local.step(interval_of(lower, upper, as_of=lower == 0), imports)
            history.outputs += outputs
            history.errors += errors
    return history


@st.composite
def histories(draw: st.DrawFn, row: st.SearchStrategy[Row], most: int = 24) -> list[Update]:
    """Random inserts and retractions of what is there, never below zero, in any order."""
    live: list[Row] = []
    updates: list[Update] = []
    for at in sorted(draw(st.lists(st.integers(0, LAST), max_size=most))):
        retract: bool = draw(st.booleans())
        if live and retract:
            updates.append((live.pop(draw(st.integers(0, len(live) - 1))), at, -1))
        else:
            count = draw(st.sampled_from([1, 1, 1, 2]))
            new = draw(row)
            live += [new] * count
            updates.append((new, at, count))
    return list(draw(st.permutations(updates)))


def cuts() -> st.SearchStrategy[list[int]]:
    """Ascending uppers that cover the times of `histories`."""
    some = st.sets(st.integers(1, LAST), max_size=LAST)
    return some.map(lambda chosen: [*sorted(chosen), LAST + 2])


def layouts() -> st.SearchStrategy[Mapping[str, Any]]:
    """Buckets; merge factors: never, eagerly and always merging; pieces of a row, of a few."""
    return st.fixed_dictionaries(
        {
            "buckets": st.integers(1, 4),
            "merge_factor": st.sampled_from([0, 1, 2, 1000]),
            "piece": st.sampled_from([1, 300, PIECE]),
        }
    )
