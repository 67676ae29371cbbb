"""A client of the command topics, as a stranger writes one from `schemas/CLIENTS.md`."""

import time
import uuid
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.stranger import chunk, wire
from tests.stranger.values import Record


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
        self._settings = {
            **base,
            "enable.idempotence": True,  # and acks=all with it
            "message.max.bytes": chunk.RECORD,
            "linger.ms": 0,
        }
        self._producer = Producer(self._settings)
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
        self._sent: dict[str, int] = {}  # CRC-32 by the id
        self._origin, self._answered = b"", set[int]()

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
        value = wire.encode(f"command_{name}", {"id": id_, **fields})
        self._sent[id_] = zlib.crc32(value)
        self.publish(value)
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
            self.check_once(record)
            id_ = record["command"]
            if id_:
                assert id_ not in self.outcomes, "answered twice"
                assert self._sent.get(id_) in (None, record["checksum"])
                self.outcomes[id_] = record
            else:
                assert record["status"] in ("MALFORMED", "REPEATED", "FAILED"), record
                self.reports.append(record)
            assert (message.key() or b"") == id_.encode()

    def check_once(self, response: Record) -> None:
        """Each record of the commands has one of the responses."""
        if response["origin"] != self._origin:  # the topic of commands was made anew
            self._origin, self._answered = response["origin"], set[int]()
        assert response["offset"] not in self._answered, "answered twice"
        self._answered.add(response["offset"])

    def ask(self, name: str, /, **fields: Any) -> Record:
        """Publish a command and wait for its response."""
        return self.outcome(self.send(name, **fields))

    def done(self, name: str, /, **fields: Any) -> list[Record]:
        """The capabilities that a command is answered with; it has to succeed."""
        answer = self.ask(name, **fields)
        assert answer["status"] == "DONE", answer
        return list(answer["capabilities"])

    def done_once_committed(self, name: str, /, **fields: Any) -> list[Record]:
        """The same, of chunks whose transaction Kafka has just acknowledged."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            answer = self.ask(name, **fields)
            if answer["status"] == "DONE":
                return list(answer["capabilities"])
            assert answer["error"]["code"] == "Uncommitted", answer
        raise TimeoutError(f"{name}: the transaction does not end")

    def refused(self, name: str, /, **fields: Any) -> str:
        """The code that a command is refused with."""
        answer = self.ask(name, **fields)
        assert answer["status"] == "REFUSED", answer
        assert answer["error"]["message"]
        return str(answer["error"]["code"])

    def write(
        self, capability: Record, upper: int | None, rows: pa.Table | None = None
    ) -> Record:
        """Write one collection, and the capability that comes back."""
        updates = None if rows is None else stream(rows)
        write = {"capability": capability, "updates": updates, "new_frontier": upper}
        return self.done("update_and_downgrade", writes=[write])[0]

    def contend(self, capability: Record, rows: pa.Table, width: int) -> Record:
        """Write rows at the frontier where a shared capability stands; it, moved.

        The rows' times count from that frontier. Whoever else holds the capability may move it
        meanwhile: then nothing was written, and the command is sent anew from there.
        """
        while True:
            lower = capability["frontier"]
            times = pa.array([lower + at for at in rows.column("time").to_pylist()], pa.int64())
            index = rows.schema.get_field_index("time")
            updates = stream(rows.set_column(index, "time", times))
            write = {
                "capability": capability,
                "updates": updates,
                "new_frontier": lower + width,
            }
            answer = self.ask("update_and_downgrade", writes=[write])
            if answer["status"] != "LOST":
                assert answer["status"] == "DONE", answer
                return dict(answer["capabilities"][0])
            assert answer["current"]["collection"] == capability["collection"]
            capability = {**capability, "frontier": answer["current"]["frontier"]}

    def write_chunk(
        self,
        topic: str,
        group: str,
        collection: str,
        body: bytes,
        rows: int,
        partition: int = 0,
    ) -> Record:
        """Write a chunk to a data topic; the reference by which a command links it."""
        key, headers = str(uuid.uuid4()), chunk.headers(group, collection, body, rows)
        offset = self.publish(body, topic, key=key, partition=partition, headers=headers)
        return reference(partition, offset, key, body, rows)

    @contextmanager
    def transaction(self) -> Iterator["Transaction"]:
        """Chunks written in one transaction, which is committed at the end unless aborted."""
        transaction = Transaction({**self._settings, "transactional.id": uuid.uuid4().hex})
        try:
            yield transaction
        except BaseException:
            transaction.abort()
            raise
        transaction.commit()

    def close(self) -> None:
        self._consumer.close()


class Transaction:
    """A transaction of a producer of its own."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._producer = Producer(settings)
        self._producer.init_transactions()
        self._producer.begin_transaction()
        self._is_open = True

    def commit(self) -> None:
        if self._is_open:
            self._producer.commit_transaction()
        self._is_open = False

    def abort(self) -> None:
        if self._is_open:
            self._producer.abort_transaction()
        self._is_open = False

    def write_chunk(
        self, topic: str, headers: Sequence[tuple[str, bytes]], body: bytes, rows: int
    ) -> Record:
        """Write a chunk; its reference, which counts once the transaction is committed."""
        key, placed = uuid.uuid4().hex, []
        self._producer.produce(
            topic,
            body,
            key=key,
            partition=0,
            headers=list(headers),
            on_delivery=lambda error, message: placed.append((error, message)),
        )
        self._producer.flush()
        ((error, message),) = placed
        assert error is None, error
        return reference(0, int(message.offset() or 0), key, body, rows)


def reference(partition: int, offset: int, key: str, body: bytes, rows: int) -> Record:
    """How a command names a chunk."""
    return {
        "partition": partition,
        "offset": offset,
        "key": key,
        "checksum": zlib.crc32(body),
        "rows": rows,
        "size": len(body),
    }
