"""Clients of one shard `u1` over a broker in memory, and what they append."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from streams.ids import CollectionId
from streams.kafka.log import Logs
from streams.kafka.memory.logs import MemoryBroker
from streams.progress import EMPTY, frontier
from streams.storage.client.shards import Shards, write_capability
from streams.storage.client.submit import RESEND_MS
from streams.storage.description import Description
from streams.storage.log.events import Append, Part

U1 = CollectionId("u1")
DESCRIPTION = Description((("name", "VARCHAR"), ("size", "INTEGER")))


def broker() -> MemoryBroker:
    ticks = itertools.count(1_000, 10)
    return MemoryBroker(lambda: next(ticks))


@contextmanager
def client(
    kafka: MemoryBroker,
    *,
    pump: bool = False,
    logs: Logs | None = None,
    resend_ms: Sequence[int] = RESEND_MS,
) -> Iterator[Shards]:
    opened = Shards(
        logs or kafka.logs,
        kafka.chunks,
        kafka.topics,
        now_ms=lambda: 5_000,
        pump=pump,
        resend_ms=resend_ms,
    )
    try:
        yield opened
    finally:
        opened.close()


def rows(*names: str, time: int, diff: int = 1) -> pa.Table:
    count = len(names)
    return pa.table(
        {
            "c0": list(names),
            "c1": pa.array(range(count), pa.int32()),
            "time": pa.array([time] * count, pa.int64()),
            "diff": pa.array([diff] * count, pa.int64()),
        }
    )


def append(to: Shards, lower: int, upper: int | None, *tables: pa.Table) -> object:
    chunks = tuple(ref for table in tables for ref in to.write(U1, table))
    part = Part(
        collection=U1,
        capability=write_capability(U1),
        lower=frontier(lower),
        upper=EMPTY if upper is None else frontier(upper),
        chunks=chunks,
    )
    return to.submit([("u1", Append((part,)))])[0]


def names(table: pa.Table) -> list[str]:
    return sorted(table.column("c0").to_pylist())


def grow(one: Shards, upto: int) -> None:
    """Appends, some with data, until the log reaches so far."""
    while one.group_state("u1").upto < upto:
        now = one.state(U1).upper.time
        append(one, now, now + 1, *([rows(f"r{now}", time=now)] * (now % 3 == 0)))
