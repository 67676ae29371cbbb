"""A client of the command topics, as a stranger writes one from `schemas/CLIENTS.md`."""

import time
import uuid
import zlib
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.stranger import wire

Record = dict[str, Any]


def stream(rows: pa.Table) -> bytes:
    """Rows as they go into a command: an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    body: bytes = sink.getvalue().to_pybytes()
    return body


class Client:
    """Publishes commands and finds their outcomes."""

    def __init__(self, bootstrap: str, namespace: str) -> None:
        self.commands = f"{namespace}.storage.commands"
        self.responses = f"{namespace}.storage.responses"
        base = {"bootstrap.servers": bootstrap}
        self._producer = Producer({**base, "enable.idempotence": True, "linger.ms": 0})
        self._consumer = Consumer(
            {
                **base,
                "group.id": "stranger",  # asked for by the library, never joined
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 20,
            }
        )
        self._await_topics()
        self._consumer.assign([TopicPartition(self.responses, 0, 0)])
        self.outcomes: dict[str, Record] = {}
        self.reports: list[Record] = []

    def _await_topics(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            topics = self._consumer.list_topics(timeout=10).topics
            if self.commands in topics and self.responses in topics:
                return
            time.sleep(0.1)
        raise TimeoutError("the service has not made its topics")

    def send(self, name: str, /, **fields: Any) -> str:
        """Publish a command, durably; its id."""
        id_ = uuid.uuid4().hex
        self.publish(wire.encode(f"command_{name}", {"id": id_, **fields}))
        return id_

    def publish(self, value: bytes, topic: str = "", **more: Any) -> int:
        """Publish bytes; where they lie."""
        placed: list[Any] = []
        self._producer.produce(
            topic or self.commands,
            value,
            on_delivery=lambda error, message: placed.append((error, message)),
            **more,
        )
        self._producer.flush()
        ((error, message),) = placed
        assert error is None, error
        return int(message.offset())

    def outcome(self, id_: str, timeout_s: float = 60) -> Record:
        """The response to the command of this id."""
        deadline = time.monotonic() + timeout_s
        while id_ not in self.outcomes:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no response to {id_}")
            self.read(0.1)
        return self.outcomes[id_]

    def read(self, wait_s: float) -> None:
        """Take note of responses; there is one a command."""
        first = self._consumer.poll(wait_s)
        if first is None:
            return
        for message in (first, *self._consumer.consume(500, 0)):
            assert message.error() is None, message.error()
            name, record = wire.decode(message.value())
            assert name == "command_response"
            if not record["command"]:
                self.reports.append(record)
                continue
            assert record["command"] not in self.outcomes, "answered twice"
            assert message.key() == record["command"].encode()
            self.outcomes[record["command"]] = record

    def ask(self, name: str, /, **fields: Any) -> Record:
        """Publish a command and wait for its response."""
        return self.outcome(self.send(name, **fields))

    def done(self, name: str, /, **fields: Any) -> list[Record]:
        """The capabilities that a command is answered with; it has to succeed."""
        found = self.ask(name, **fields)
        assert found["status"] == "DONE", found
        return list(found["capabilities"])

    def refused(self, name: str, /, **fields: Any) -> str:
        """The code that a command is refused with."""
        found = self.ask(name, **fields)
        assert found["status"] == "REFUSED", found
        assert found["error"]["message"]
        return str(found["error"]["code"])

    def write(self, held: Record, upper: int | None, rows: pa.Table | None = None) -> Record:
        """Write one collection, and the capability that comes back."""
        updates = None if rows is None else stream(rows)
        write = {"capability": held, "updates": updates, "new_frontier": upper}
        return self.done("update_and_downgrade", writes=[write])[0]

    def write_chunk(
        self, topic: str, group: str, collection: str, body: bytes, rows: int
    ) -> Record:
        """Write a chunk to a data topic; the reference by which a command links it."""
        key, partition = uuid.uuid4().hex, 0
        headers = {
            "group": group,
            "collection": collection,
            "rows": str(rows),
            "crc32": f"{zlib.crc32(body):08x}",
        }
        offset = self.publish(
            body, topic, key=key, partition=partition, headers=list(headers.items())
        )
        return {
            "partition": partition,
            "offset": offset,
            "key": key,
            "checksum": zlib.crc32(body),
            "rows": rows,
            "size": len(body),
        }

    def close(self) -> None:
        self._consumer.close()
