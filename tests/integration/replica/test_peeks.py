"""A controller's peeks on a broker, answered beside the micro-batches of a replica."""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from streams.compute.controller import Controller
from streams.compute.peeks import KeyLookup, Peek, PeekError, PeekRows, PeekTarget
from streams.compute.protocol import CreateInstance
from streams.ids import CollectionId, Timestamp
from streams.plan import json as plans
from streams.plan.compile import compile_select
from streams.replica.main import Replica
from tests.integration.replica.json_producer import Feed
from tests.integration.replica.support import BUCKETS, Bench

pytestmark = pytest.mark.integration


@contextmanager
def controlled(bench: Bench) -> Iterator[Controller]:
    """A controller of the bench's dataflows, which a thread polls."""
    numbers = itertools.count()
    controller = Controller(
        bench.broker.logs,
        CreateInstance(bench.namespace, BUCKETS),
        "main",
        2,
        lambda: f"n{next(numbers)}",
    )
    controller.start(list(bench.descriptions.values()), [])
    ended = threading.Event()

    def listen() -> None:
        while not ended.is_set():
            controller.poll(100)

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield controller
    finally:
        ended.set()
        thread.join()
        controller.close()


def peek(bench: Bench, query: str, uuid: str, time: int, keys: pa.Array | None = None) -> Peek:
    selected = compile_select(query, bench.relations)
    collection = selected.dataflow.imports[0].collection
    lookup = None
    if keys is not None:
        sink = pa.BufferOutputStream()
        rows = pa.record_batch([keys], names=["key"])
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_batch(rows)
        lookup = KeyLookup((0,), bytes(sink.getvalue()))
    return Peek(
        uuid=uuid,
        target=PeekTarget(collection, collection),
        time=Timestamp(time),
        plan=plans.dumps(selected.dataflow),
        project=tuple(range(len(selected.shown))),
        most_bytes=1 << 20,
        lookup=lookup,
        order=selected.order,
    )


def rows_of(outcome: object) -> list[tuple[object, ...]]:
    assert isinstance(outcome, PeekRows), outcome
    rows = pa.ipc.open_stream(outcome.rows).read_all()
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def test_peeks_are_answered_and_survive_their_replica(
    bench: Bench, run: Callable[..., Replica]
) -> None:
    topic = bench.raw_topic()
    bench.source("orders", [("id", "BIGINT"), ("x", "BIGINT")], topic)
    bench.view("sums", "SELECT id % 10 AS k, sum(x)::BIGINT AS n FROM orders GROUP BY ALL")
    expected = {k: sum(x for x in range(1000) if x % 10 == k) for k in range(10)}
    with controlled(bench) as controller:
        first = run("r1")
        Feed(bench.kafka.bootstrap).send(topic, [{"id": i, "x": i} for i in range(1000)])
        bench.settle("sums")
        now = bench.upper("sums") - 1
        every = controller.peek(peek(bench, "SELECT k, n FROM sums ORDER BY n DESC", "a", now))
        some = controller.peek(
            peek(bench, "SELECT n FROM sums", "b", now, pa.array([3, 77], pa.int64()))
        )
        early = controller.peek(peek(bench, "SELECT * FROM sums", "c", 0))
        source = controller.peek(peek(bench, "SELECT * FROM orders", "d", now))
        assert sorted(rows_of(every.result(60))) == sorted(expected.items())
        assert rows_of(some.result(60)) == [(expected[3],)]
        assert isinstance(early.result(60), PeekError)
        assert len(rows_of(source.result(60))) == 1000
        far = bench.upper("sums") + 10_000
        first.stop()
        later = controller.peek(peek(bench, "SELECT n FROM sums WHERE k = 4", "e", far))
        run("r2")
        assert rows_of(later.result(120)) == [(expected[4],)]
    assert CollectionId("sums") in controller.observed.conditions
