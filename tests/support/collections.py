"""Collections over shards in memory, which a test writes to, for what follows them."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streams.ids import CollectionId, Timestamp
from streams.kafka.memory.logs import MemoryBroker
from streams.progress import frontier
from streams.storage.client.shards import Shards, write_capability
from streams.storage.description import Description, loads
from streams.storage.log.events import Append, Part
from streams.storage.log.outcomes import Appended
from streams.trace.kernel.kernel import arrow_schema

Row = tuple[Any, ...]


class Collections:
    """A broker in memory, a client that writes, and clients that read."""

    def __init__(self, broker: Any = None, namespace: str = "sw") -> None:
        self.broker = broker or MemoryBroker(lambda: 1000)
        self.namespace = namespace
        self.clients: list[Shards] = []
        self.shards = self.client()

    def client(self) -> Shards:
        client = Shards(
            self.broker.logs,
            self.broker.chunks,
            self.broker.topics,
            namespace=self.namespace,
            now_ms=lambda: 1000,
            pump=True,
        )
        self.clients.append(client)
        return client

    def create(self, id_: str, columns: Sequence[tuple[str, str]], **more: Any) -> None:
        description = Description(tuple(columns), **more)
        self.shards.create(id_, CollectionId(id_), description, Timestamp(10))

    def append(
        self, id_: str, upper: int, rows: Sequence[Row] = (), errors: Sequence[Row] = ()
    ) -> None:
        """Append rows (c0 .. cn, time, diff) and errors (error, time, diff) up to `upper`."""
        collection = CollectionId(id_)
        self.shards.sync(collection)
        (outcome,) = self.shards.submit([(id_, Append((self.part(id_, upper, rows, errors),)))])
        assert isinstance(outcome, Appended)

    def append_table(self, id_: str, upper: int, rows: pa.Table) -> None:
        """Append rows that Arrow has already."""
        self.shards.sync(CollectionId(id_))
        schema = arrow_schema(self.description(id_).types)
        part = self._part(id_, upper, rows.rename_columns(schema.names).cast(schema), ())
        (outcome,) = self.shards.submit([(id_, Append((part,)))])
        assert isinstance(outcome, Appended)

    def part(
        self, id_: str, upper: int, rows: Sequence[Row], errors: Sequence[Row] = ()
    ) -> Part:
        schema = arrow_schema(self.description(id_).types)
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        pairs = zip(columns, schema, strict=True)
        table = pa.table(
            [pa.array(values, field.type) for values, field in pairs], schema=schema
        )
        return self._part(id_, upper, table, errors)

    def _part(self, id_: str, upper: int, table: pa.Table, errors: Sequence[Row]) -> Part:
        collection = CollectionId(id_)
        kinds = {"error": pa.utf8(), "time": pa.int64(), "diff": pa.int64()}
        parts = list(zip(*errors, strict=True)) or [()] * 3
        wrong = {
            name: pa.array(values, kind)
            for (name, kind), values in zip(kinds.items(), parts, strict=True)
        }
        return Part(
            collection=collection,
            capability=write_capability(collection),
            lower=self.shards.state(collection).upper,
            upper=frontier(upper),
            chunks=self.shards.write(collection, table, pa.table(wrong)),
        )

    def description(self, id_: str) -> Description:
        return loads(self.shards.state(CollectionId(id_)).description)

    def close(self) -> None:
        """Close all clients: their threads would go on beside other tests."""
        for client in self.clients:
            client.close()
