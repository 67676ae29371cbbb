"""Indexes of a replica over collections in memory: they follow, heal, and are bounded."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from streams.compute.description import DataflowDescription, ImportDescription
from streams.compute.peeks import KeyLookup, Peek, PeekError, PeekTarget
from streams.compute.protocol import (
    AllowCompaction,
    AllowWrites,
    CreateDataflow,
    CreateInstance,
    Frontiers,
    InitializationComplete,
    Status,
)
from streams.errors import InvalidUsage
from streams.ids import CapabilityId, CollectionId, Timestamp
from streams.plan import json as plans
from streams.plan.physical import Arrange, Dataflow, Import, Source
from streams.progress import EMPTY, frontier
from streams.replica.peeks import index_tail
from streams.replica.peeks.loop import PeekLoop
from tests.support.peeking import COLUMNS, NAMESPACE, Peeking, peek, rows_of
from tests.unit.replica.test_peek_loop import Asker

I9 = CollectionId("i9")
TYPES = tuple(column.type for column in COLUMNS)


def index(
    view: str = "u1", keys: tuple[int, ...] = (0,), as_of: int = 0
) -> DataflowDescription:
    imported = Import(CollectionId(view), COLUMNS)
    arranged = Arrange(0, keys, (False,) * len(keys))
    dataflow = Dataflow((imported,), (Source(0), arranged), (TYPES, TYPES), (0, 1), COLUMNS)
    return DataflowDescription(
        export=I9,
        kind="index",
        name="by_k",
        group="",
        columns=COLUMNS,
        as_of=Timestamp(as_of),
        imports=(ImportDescription(CollectionId(view), view, CapabilityId("")),),
        plan=plans.dumps(dataflow),
    )


def by_key(view: str, time_: int, uuid: str, *keys: int) -> Peek:
    sink = pa.BufferOutputStream()
    rows = pa.record_batch([pa.array(keys, pa.int64())], names=["k"])
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    lookup = KeyLookup((0,), bytes(sink.getvalue()))
    target = PeekTarget(CollectionId(view), view, I9)
    return replace(peek(view, time_, uuid), target=target, lookup=lookup)


@pytest.fixture
def peeking() -> Iterator[Peeking]:
    peeking = Peeking()
    peeking.collection("u1")
    yield peeking
    peeking.close()


def asked(peeking: Peeking, loop: PeekLoop, description: DataflowDescription) -> Asker:
    """An iteration that names the index, which the main loop of a replica would create."""
    asker = Asker(peeking)
    asker.responses.restart("a")
    create = CreateDataflow(description)
    iteration = (CreateInstance(NAMESPACE, 2), create, InitializationComplete(), AllowWrites())
    asker.commands.begin("a", iteration)
    loop.indexes.create(description)
    return asker


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_peek_by_index_says_what_the_shard_says(peeking: Peeking) -> None:
    peeking.append("u1", 5, *((n % 10, f"v{n}", n % 5, 1) for n in range(40)))
    loop = peeking.replica()
    asker = asked(peeking, loop, index())
    asker.commands.write([by_key("u1", 4, "p", 3, 77, 4), by_key("u1", 6, "later", 3)])
    of_shard = replace(by_key("u1", 4, "q", 3, 4), target=PeekTarget(CollectionId("u1"), "u1"))
    asker.commands.write([of_shard])
    answers = asker.answers(2)
    assert rows_of(answers["p"].outcome) == rows_of(answers["q"].outcome)
    assert len(rows_of(answers["p"].outcome)) == 8
    peeking.append("u1", 7, (3, "v3", 6, -1), (3, "new", 5, 1))
    assert rows_of(asker.answers(1)["later"].outcome) == [
        (3, "new"), (3, "v13"), (3, "v23"), (3, "v33")
    ]  # fmt: skip


def test_errors_of_the_view_are_those_of_the_index(peeking: Peeking) -> None:
    peeking.append("u1", 5, (1, "a", 1, 1), wrong="bad")
    loop = peeking.replica()
    asker = asked(peeking, loop, index())
    asker.commands.write([by_key("u1", 4, "p", 1)])
    assert asker.answers(1)["p"].outcome == PeekError("bad")


def test_a_look_up_by_another_key_and_a_dropped_index(peeking: Peeking) -> None:
    peeking.append("u1", 5, (1, "a", 1, 1))
    loop = peeking.replica()
    asker = asked(peeking, loop, index(keys=(1,)))
    asker.commands.write([by_key("u1", 4, "p", 1)])
    outcome = asker.answers(1)["p"].outcome
    assert isinstance(outcome, PeekError)
    assert outcome.message == "index i9: expected a look-up by columns [1], actual [0]"
    assert loop.indexes.drop(I9)
    assert not loop.indexes.drop(I9)
    asker.commands.write([AllowCompaction(I9, EMPTY), by_key("u1", 4, "q", 1)])
    assert asker.answers(1)["q"].outcome == PeekError("there is no index i9")


def test_it_is_bounded(peeking: Peeking) -> None:
    peeking.append("u1", 5, *((n, "v" * 100, 1, 1) for n in range(1000)))
    loop = peeking.replica(index_bytes=50_000)
    asker = asked(peeking, loop, index())
    asker.commands.write([by_key("u1", 4, "p", 1)])
    outcome = asker.answers(1)["p"].outcome
    assert isinstance(outcome, PeekError)
    assert "index i9 does not fit: the indexes of a replica have" in outcome.message
    assert loop.indexes.responses() == [Status(I9, "failed", outcome.message)]
    assert loop.indexes.every_bounds()[I9].since is None


def test_it_reports_and_forgets_history(
    monkeypatch: pytest.MonkeyPatch, peeking: Peeking
) -> None:
    monkeypatch.setattr(index_tail, "KEPT_MS", 2)
    peeking.append("u1", 5, (1, "a", 1, 1))
    loop = peeking.replica()
    asker = asked(peeking, loop, index())
    until(lambda: loop.indexes.bounds(I9).since == frontier(2))
    moved = Frontiers(I9, frontier(5), frontier(5), frontier(5))
    assert loop.indexes.responses() == [Status(I9, "running"), moved]
    assert loop.indexes.responses() == []
    loop.indexes.repeat()
    assert loop.indexes.responses() == [Status(I9, "running"), moved]
    peeking.append("u1", 9)
    until(lambda: loop.indexes.bounds(I9).since == frontier(6))
    asker.commands.write([by_key("u1", 5, "early", 1), by_key("u1", 6, "edge", 1)])
    answers = asker.answers(2)
    assert isinstance(answers["early"].outcome, PeekError)
    assert rows_of(answers["edge"].outcome) == [(1, "a")]


def test_it_stays_readable_for_open_peeks(
    monkeypatch: pytest.MonkeyPatch, peeking: Peeking
) -> None:
    monkeypatch.setattr(index_tail, "KEPT_MS", 0)
    peeking.append("u1", 5, (1, "a", 1, 1))
    tail = index_tail.IndexTail(index())
    for upper, read_at, since in ((5, 2, 4), (9, 6, 6), (12, 3, 6), (15, 99, 14)):
        if upper > 5:
            peeking.append("u1", upper, (1, "a", upper - 2, 1))
        tail.tend(peeking.shards, 1 << 30, 0, read_at)
        assert tail.bounds.upper == frontier(upper)
        assert tail.bounds.since == frontier(since)


def test_a_plan_that_arranges_nothing_is_refused(peeking: Peeking) -> None:
    loop = peeking.replica()
    nothing = replace(index(), plan=peek("u1", 1).plan)
    with pytest.raises(InvalidUsage, match="expected a plan that ends in Arrange"):
        loop.indexes.create(nothing)
