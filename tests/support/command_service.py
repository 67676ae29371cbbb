"""Services of the command topics over a broker in memory, and a client of them."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from schemas import codec
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.memory.records import MemoryMarks, MemoryRawReader, MemoryTransactions
from streams.storage.client.shards import Shards
from streams.storage.commands.service import CommandService
from streams.storage.commands.session import CommandTopics, ServiceDependencies
from streams.storage.commands.worker_pool import InlinePool, WorkerPool
from streams.storage.storage import Storage

NAMES = CommandTopics("sw")
DESCRIPTION = (
    '{"columns":[{"name":"name","type":"VARCHAR"},{"name":"size","type":"INTEGER"}],'
    '"keys":[],"kind":"table"}'
)
SCHEMA = pa.schema(
    [("name", pa.utf8()), ("size", pa.int32()), ("time", pa.int64()), ("diff", pa.int64())]
)

Record = dict[str, Any]


class Killed(BaseException):
    """A service was killed: nothing of it goes on, not even what handles errors."""


def stream(*rows: tuple[object, ...]) -> bytes:
    """Rows as a client sends them."""
    columns = list(zip(*rows, strict=True)) or [()] * 4
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_table(pa.table(arrays, schema=SCHEMA))
    body: bytes = sink.getvalue().to_pybytes()
    return body


@dataclass
class World:
    """One broker; services come and go. Every record moves its clock on by a millisecond."""

    now_ms: int = 1_000
    broker: MemoryBroker = field(init=False)
    marks: MemoryMarks | None = None
    ids: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.broker = MemoryBroker(self.tick)
        self.service().step(0)  # the topics are there

    def tick(self) -> int:
        self.now_ms += 1
        return self.now_ms

    def service(
        self,
        reached: Callable[[str], None] = lambda _: None,
        logs: Any = None,
        chunks: Any = None,
        workers: Callable[[], WorkerPool] = InlinePool,
    ) -> CommandService:
        broker = self.broker
        shards = Shards(
            logs or broker.logs, chunks or broker.chunks, broker.topics, now_ms=self.tick
        )
        wiring = ServiceDependencies(
            names=NAMES,
            shards=shards,
            topics=broker.topics,
            logs=broker.logs,
            follow=lambda topic, start: broker.logs.tail({topic: start}),
            records=MemoryRawReader(broker.store),
            writer=MemoryTransactions(broker.store, NAMES.transactional_id, self.tick),
            marks=self.marks,
            reached=reached,
            workers=workers,
        )
        return CommandService(wiring)

    def storage(self) -> Storage:
        return Storage.memory(self.broker)

    def send(self, name: str, /, id_: str = "", **fields: Any) -> str:
        """Append a command; its id."""
        id_ = id_ or f"c{next(self.ids)}"
        self.raw(codec.encode(f"command_{name}", {"id": id_, **fields}))
        return id_

    def raw(self, value: bytes) -> None:
        self.broker.logs.append([(NAMES.commands, value)])

    def responses(self) -> list[dict[str, Any]]:
        store = self.broker.store
        return [
            codec.decode(record.value or b"")[1]
            for record in store.log(NAMES.responses).records
        ]

    def answers(self) -> dict[str, dict[str, Any]]:
        """The responses by the command's id: one each."""
        answers = [response for response in self.responses() if response["command"]]
        by_id = {answer["command"]: answer for answer in answers}
        assert len(by_id) == len(answers), "a command was answered twice"
        return by_id

    def ask(self, name: str, /, **fields: Any) -> dict[str, Any]:
        """Send a command, have it carried out, and return its response."""
        id_ = self.send(name, **fields)
        self.run()
        return self.answers()[id_]

    def run(self, service: CommandService | None = None) -> None:
        """Have all commands answered."""
        one = service or self.service()
        end = self.broker.store.log(NAMES.commands).end
        while (one.step(0), len(self.responses()))[1] < end:
            pass
        one.close()


def update(
    capability: dict[str, Any], upper: int | None, *rows: tuple[object, ...]
) -> dict[str, Any]:
    """The fields of an update of one collection."""
    updates = stream(*rows) if rows else None
    return {"writes": [{"capability": capability, "updates": updates, "new_frontier": upper}]}


def made(world: World, **more: Any) -> tuple[Record, Record]:
    """The read and the write capability of a new collection `t`."""
    read, write = world.ask("create", collection="t", description=DESCRIPTION, **more)[
        "capabilities"
    ]
    return read, write


def code(response: Record) -> str:
    """The code of a refusal, which has a message too."""
    assert response["status"] == "REFUSED", response
    assert response["error"]["message"]
    return str(response["error"]["code"])
