"""Storage over a broker in memory whose clock the test moves."""

from dataclasses import dataclass, field

import pyarrow as pa

from streams.ids import CollectionId
from streams.kafka.memory.logs import MemoryBroker
from streams.storage import Storage
from streams.storage.client.handles import ReadCapability, WriteCapability
from streams.storage.description import Description

T1, T2 = CollectionId("t1"), CollectionId("t2")
TABLE = Description((("name", "VARCHAR"), ("size", "INTEGER")), kind="table")
SCHEMA = pa.schema(
    [("name", pa.utf8()), ("size", pa.int32()), ("time", pa.int64()), ("diff", pa.int64())]
)
Row = tuple[str | None, int | None, int, int]


@dataclass
class Place:
    """A broker, and clients of it. Every record moves its clock on by a millisecond."""

    now_ms: int = 1_000
    broker: MemoryBroker = field(init=False)

    def __post_init__(self) -> None:
        self.broker = MemoryBroker(self.tick)

    def tick(self) -> int:
        self.now_ms += 1
        return self.now_ms

    def client(self, **more: object) -> Storage:
        return Storage.memory(self.broker, **more)  # type: ignore[arg-type]  # options of it


def end(storage: Storage, id_: CollectionId) -> None:
    """Drop a collection whoever holds it, as the system does."""
    storage.shards.open(id_)
    storage.shards.drop(id_)


def given_up(storage: Storage, capabilities: tuple[ReadCapability, WriteCapability]) -> None:
    """Drop a collection as its only holder does."""
    reading, writing = capabilities
    storage.drop(writing)
    storage.drop(reading, whole=True)


def table(*rows: Row) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * 4
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def write(
    storage: Storage, capability: WriteCapability, upper: int, *rows: Row
) -> WriteCapability:
    moved = storage.update_and_downgrade(capability, table(*rows), upper)
    assert isinstance(moved, WriteCapability)
    return moved


def contents(updates: pa.Table) -> dict[tuple[object, ...], int]:
    """How often each (row, time) is there."""
    counts: dict[tuple[object, ...], int] = {}
    for row in updates.to_pylist():
        *key, diff = row.values()
        counts[tuple(key)] = counts.get(tuple(key), 0) + diff
    return {key: count for key, count in counts.items() if count}
