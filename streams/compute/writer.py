"""Writing to the protocol's topics: numbered, in order, and never a number twice.

An indeterminate append is repeated with the same bytes, and readers drop the copies. A number
is used up only when its message is surely there: after a determinate failure it is given again,
and after one that stays indeterminate the writer's process must end, for its next number is
unknown to it. One lock an object, so that the order of numbers is the order on the topic.
"""

import threading
from collections.abc import Sequence

from streams.compute.codec import encode_command, encode_response
from streams.compute.protocol import Command, CommandMessage, Hello, Response, ResponseMessage
from streams.errors import Indeterminate
from streams.ids import Offset, Topic
from streams.kafka.log import Logs

ATTEMPTS = 10
"""How often an indeterminate append is repeated before its error is passed on."""


class CommandWriter:
    """The controller's pen on one command topic, for one epoch."""

    def __init__(self, logs: Logs, topic: Topic, epoch: int) -> None:
        self._logs, self._topic, self._epoch = logs, topic, epoch
        self._nonce, self._sequence = "", 0
        self._lock = threading.Lock()

    def begin(self, nonce: str, commands: Sequence[Command]) -> Offset:
        """Begin an iteration with a Hello and the given commands; the Hello's offset."""
        with self._lock:
            self._nonce = nonce
            return self._append((Hello(nonce, self._epoch), *commands))

    def write(self, commands: Sequence[Command]) -> None:
        """Append commands to the current iteration; durable on return."""
        if not commands:
            return
        with self._lock:
            self._append(commands)

    def _append(self, commands: Sequence[Command]) -> Offset:
        messages = [
            (self._topic, encode_command(CommandMessage(self._nonce, number, command)))
            for number, command in enumerate(commands, self._sequence)
        ]
        first = _append_surely(self._logs, messages)
        self._sequence += len(messages)
        return first


class ResponseWriter:
    """A replica process's pen on the response topic. `replica` names process and start."""

    def __init__(self, logs: Logs, topic: Topic, replica: str) -> None:
        self._logs, self._topic, self._replica = logs, topic, replica
        self._sequence = 0
        self._lock = threading.Lock()

    def write(self, nonce: str, responses: Sequence[Response]) -> None:
        """Append responses to the iteration `nonce`; durable on return."""
        if not responses:
            return
        with self._lock:
            messages = [
                (
                    self._topic,
                    encode_response(ResponseMessage(nonce, self._replica, number, response)),
                )
                for number, response in enumerate(responses, self._sequence)
            ]
            _append_surely(self._logs, messages)
            self._sequence += len(messages)


def _append_surely(logs: Logs, records: Sequence[tuple[Topic, bytes]]) -> Offset:
    """Append, again and again while the result is unknown; the first record's offset."""
    for _ in range(ATTEMPTS - 1):
        try:
            return logs.append(records)[0]
        except Indeterminate:
            continue
    return logs.append(records)[0]
