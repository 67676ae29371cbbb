"""Reads the command topic: each command once, in order, from the newest iteration on.

`CommandReaderState` is the pure part. It holds the epoch and nonce of the iteration and the
next expected sequence number, and decides for each message whether it counts. Messages older
than the first CreateTimely seen, of another nonce, of a lower epoch, and duplicates do not
count; a gap in the numbers is `Corrupt`.

`CommandReader` does the I/O: it opens the topic, skips to the last CreateTimely there, and
follows. It skips a record that it cannot read and reports it as `UnreadableCommand`: otherwise
one bad record would stop every replica permanently, because a new process reads it again.
`ResponseReader` does the same for the controller over the response topic, where each replica
process has its own sequence numbers.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from streams.compute.codec import decode_command, decode_response
from streams.compute.protocol import Command, CommandMessage, CreateTimely, ResponseMessage
from streams.errors import Corrupt
from streams.ids import Offset, Topic
from streams.kafka.log import Logs, Tail, Truncated

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UnreadableCommand:
    """Why a record of the command topic is not a command, or what is missing before it."""

    reason: str


@dataclass(frozen=True, slots=True)
class ReceivedCommand:
    """A record of the topic at an offset that counts or cannot be read."""

    offset: Offset
    command: Command | UnreadableCommand


@dataclass(frozen=True, slots=True)
class CommandReaderState:
    """The state of a reader of commands. `next` is the sequence number expected next."""

    epoch: int = -1
    nonce: str = ""
    next: int = 0

    def step(self, message: CommandMessage) -> tuple["CommandReaderState", Command | None]:
        """Return the state after the message, and its command if it counts.

        Errors: Corrupt if a message is missing.
        """
        match message.command:
            case CreateTimely(nonce, epoch) if self._begins(message, epoch):
                return CommandReaderState(epoch, nonce, message.sequence + 1), message.command
            case CreateTimely():
                return self, None
            case command:
                if message.nonce != self.nonce or message.sequence < self.next:
                    return self, None
                if message.sequence > self.next:
                    raise Corrupt(
                        f"compute commands: expected sequence number {self.next}, "
                        f"actual {message.sequence}"
                    )
                return replace(self, next=self.next + 1), command

    def past_gap(self, message: CommandMessage) -> "CommandReaderState":
        """The reading that accepts the message as next, whatever is missing before it."""
        return replace(self, next=message.sequence)

    def _begins(self, message: CommandMessage, epoch: int) -> bool:
        """Whether a CreateTimely begins an iteration: no zombie's, no copy of an older one."""
        return epoch > self.epoch or (epoch == self.epoch and message.sequence >= self.next)


class CommandReader:
    """The commands of the newest iteration, then later ones. Single-threaded."""

    def __init__(self, logs: Logs, topic: Topic) -> None:
        self._logs, self._topic = logs, topic
        self._reading = CommandReaderState()
        self._tail, self._caught_up_at = self._open()

    @property
    def nonce(self) -> str:
        """The nonce of the iteration; responses carry it. Empty before any CreateTimely."""
        return self._reading.nonce

    def poll(self, wait_ms: int) -> tuple[ReceivedCommand, ...]:
        """Return new commands in order; none after `wait_ms` without any.

        The first call reads to the end of the topic and begins with its last CreateTimely.
        """
        while True:
            try:
                return self._poll(wait_ms)
            except Truncated:
                # The controller deleted the history below our position. A newer iteration
                # holds all of it, so begin again there.
                log.warning("command topic was truncated", extra={"topic": self._topic})
                self._tail.close()
                self._tail, self._caught_up_at = self._open()

    def close(self) -> None:
        """Stop reading."""
        self._tail.close()

    def _poll(self, wait_ms: int) -> tuple[ReceivedCommand, ...]:
        heard: list[ReceivedCommand] = []
        while self._caught_up_at is not None:
            self._read(heard, wait_ms=1000)
        if not heard:
            self._read(heard, wait_ms)
        return tuple(heard)

    def _open(self) -> tuple[Tail, Offset | None]:
        low, end = self._logs.bounds(self._topic)
        return self._logs.tail({self._topic: low}), end if end > low else None

    def _read(self, heard: list[ReceivedCommand], wait_ms: int) -> None:
        for entry in self._tail.poll(wait_ms):
            behind = self._caught_up_at is not None
            for command in self._commands(entry.value):
                if isinstance(command, CreateTimely) and behind:
                    heard.clear()  # an older iteration, which the newer one replaces
                heard.append(ReceivedCommand(entry.offset, command))
            if self._caught_up_at is not None and entry.offset + 1 >= self._caught_up_at:
                self._caught_up_at = None

    def _commands(self, value: bytes) -> Iterator[Command | UnreadableCommand]:
        """Return the command of a record, if it counts, and the errors with it or before it."""
        try:
            message = decode_command(value)
        except Corrupt as wrong:
            yield UnreadableCommand(str(wrong))
            return
        try:
            self._reading, command = self._reading.step(message)
        except Corrupt as gap:
            yield UnreadableCommand(str(gap))
            self._reading, command = self._reading.past_gap(message).step(message)
        if command is not None:
            yield command


@dataclass(frozen=True, slots=True)
class ResponseReaderState:
    """The state of a reader of responses: the last sequence number of each replica process."""

    nonce: str
    heard: Mapping[str, int] = field(default_factory=dict)

    def step(
        self, message: ResponseMessage
    ) -> tuple["ResponseReaderState", ResponseMessage | None]:
        """Return the hearing after the message, and the message if it counts."""
        if message.nonce != self.nonce:
            return self, None
        if message.sequence <= self.heard.get(message.replica, -1):
            return self, None
        heard = {**self.heard, message.replica: message.sequence}
        return replace(self, heard=heard), message


class ResponseReader:
    """Responses to one iteration, from the topic's end at its opening on.

    `position` is the offset of the next record to read.
    """

    def __init__(self, logs: Logs, topic: Topic, nonce: str) -> None:
        self._topic, self._hearing = topic, ResponseReaderState(nonce)
        _, self.position = logs.bounds(topic)
        self._tail = logs.tail({topic: self.position})

    def restart(self, nonce: str) -> None:
        """Accept only responses to the iteration `nonce` from here on."""
        self._hearing = ResponseReaderState(nonce)

    def poll(self, wait_ms: int) -> tuple[ResponseMessage, ...]:
        """Return new responses that count; other records are skipped."""
        heard: list[ResponseMessage] = []
        for entry in self._tail.poll(wait_ms):
            self.position = Offset(entry.offset + 1)
            try:
                response = decode_response(entry.value)
            except Corrupt as wrong:
                extra = {"topic": self._topic, "offset": entry.offset, "why": str(wrong)}
                log.warning("a record is not a response", extra=extra)
                continue
            self._hearing, message = self._hearing.step(response)
            if message is not None:
                heard.append(message)
        return tuple(heard)

    def close(self) -> None:
        """Stop reading."""
        self._tail.close()
