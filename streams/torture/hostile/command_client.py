"""A client of the command topics, as `schemas/CLIENTS.md` describes one."""

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from schemas import codec
from streams.errors import Corrupt, Determinate
from streams.ids import Offset, Topic
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.raw_producer import ForeignProducer
from streams.kafka.log import Tail

Fields = dict[str, object]
TRIES = 5
_POLL_MS = 50


@dataclass(slots=True)
class CommandClient:
    """Publishes commands and waits for their outcomes. One thread.

    `heard` is given each response that comes, of any session.
    """

    namespace: str
    producer: ForeignProducer
    _tail: Tail
    now_s: Callable[[], float] = time.monotonic
    heard: Callable[[Fields], None] = lambda _: None
    _outcomes: dict[str, Mapping[str, object]] = field(default_factory=dict)
    _wanted: set[str] = field(default_factory=set)

    @classmethod
    def open(
        cls,
        broker: KafkaBroker,
        producer: ForeignProducer,
        namespace: str,
        now_s: Callable[[], float],
    ) -> "CommandClient":
        """A client that hears the responses from now on; `now_s` counts its patience."""
        responses = Topic(f"{namespace}.storage.responses")
        _, end = broker.logs.bounds(responses)
        return cls(namespace, producer, broker.committed(responses, Offset(end)), now_s)

    @property
    def commands(self) -> Topic:
        """The command topic."""
        return Topic(f"{self.namespace}.storage.commands")

    def send(self, name: str, **fields: object) -> str:
        """Publish a command; its id."""
        id_ = str(uuid.uuid4())
        self.producer.send(
            self.commands, codec.encode(f"command_{name}", {"id": id_, **fields})
        )
        self._wanted.add(id_)
        return id_

    def outcome(self, id_: str, patience_s: float) -> Mapping[str, object]:
        """The response to a command that was sent here.

        Errors: Determinate when none has come in time.
        """
        deadline = self.now_s() + patience_s
        while id_ not in self._outcomes:
            if self.now_s() > deadline:
                raise Determinate(f"expected a response within {patience_s:g} s, actual none")
            self._read()
        return self._outcomes.pop(id_)

    def done(self, name: str, patience_s: float, **fields: object) -> list[Fields]:
        """The capabilities of a command that has to succeed.

        One that was overtaken while its rows were counted, by compaction too, is sent again, as
        `schemas/CLIENTS.md` asks. Errors: Determinate.
        """
        outcome = self.outcome(self.send(name, **fields), patience_s)
        for _ in range(TRIES - 1):
            if not _is_overtaken(outcome):
                break
            outcome = self.outcome(self.send(name, **fields), patience_s)
        if outcome["status"] != "DONE":
            raise Determinate(f"expected {name} to be DONE, actual {outcome}")
        capabilities = outcome["capabilities"]
        assert isinstance(capabilities, list)
        return capabilities

    def _read(self) -> None:
        """Take note of the responses that are waited for; others may write there too."""
        for entry in self._tail.poll(_POLL_MS):
            try:
                name, record = codec.decode(entry.value)
            except Corrupt:
                continue
            if name != "command_response":
                continue
            self.heard(record)
            if record["command"] in self._wanted:
                self._wanted.discard(record["command"])
                self._outcomes[record["command"]] = record

    def close(self) -> None:
        """Stop reading."""
        self._tail.close()


def _is_overtaken(outcome: Mapping[str, object]) -> bool:
    error = outcome["error"]
    return isinstance(error, dict) and error["code"] == "Recount"
