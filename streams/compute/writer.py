"""Writing to the protocol's topics: numbered, in order, and never a number twice.

An indeterminate append is repeated with the same bytes, and readers drop the copies. After a
determinate failure a number is given again. After one that stays indeterminate it is not known
which number comes next: it may be used up, or not. So numbers go on beyond it, which readers of
responses take as it is; readers of commands take a gap only where an iteration begins, so
nothing but a new one is written then. One lock an object, so that the order of numbers is the
order on the topic.
"""

import threading
from collections.abc import Sequence

from streams.compute.codec import encode_command, encode_response
from streams.compute.protocol import Command, CommandMessage, Hello, Response, ResponseMessage
from streams.errors import Determinate, Indeterminate
from streams.ids import Offset, Topic
from streams.kafka.log import Logs

ATTEMPTS = 10
"""How often an indeterminate append is repeated before its error is passed on."""


class CommandWriter:
    """The controller's pen on one command topic, for one epoch."""

    def __init__(self, logs: Logs, topic: Topic, epoch: int) -> None:
        self._logs, self._topic, self._epoch = logs, topic, epoch
        self._nonce, self._sequence = "", 0
        self._is_in_doubt = False
        self._lock = threading.Lock()

    @property
    def is_in_doubt(self) -> bool:
        """Whether only a new iteration can be written: one that was begun is not sure to be."""
        return self._is_in_doubt

    def begin(self, nonce: str, commands: Sequence[Command]) -> Offset:
        """Begin an iteration with a Hello and the given commands; the Hello's offset.

        Errors: Determinate, Indeterminate; then the iteration before it may be over.
        """
        with self._lock:
            self._nonce, self._is_in_doubt = nonce, True
            hello = self._append((Hello(nonce, self._epoch), *commands))
            self._is_in_doubt = False
            return hello

    def write(self, commands: Sequence[Command]) -> None:
        """Append commands to the current iteration; durable on return.

        Errors: Determinate; Indeterminate, from then on until an iteration is begun.
        """
        if not commands:
            return
        with self._lock:
            if self._is_in_doubt:
                raise Indeterminate("a command before is in doubt: begin an iteration")
            self._append(commands)

    def _append(self, commands: Sequence[Command]) -> Offset:
        messages = [
            (self._topic, encode_command(CommandMessage(self._nonce, number, command)))
            for number, command in enumerate(commands, self._sequence)
        ]
        try:
            first = _append_surely(self._logs, messages)
        except Indeterminate:
            self._is_in_doubt = True
            self._sequence += len(messages)
            raise
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
            try:
                _append_surely(self._logs, messages)
            except Indeterminate:
                self._sequence += len(messages)
                raise
            self._sequence += len(messages)


def _append_surely(logs: Logs, records: Sequence[tuple[Topic, bytes]]) -> Offset:
    """Append, again and again while the result is unknown; the first record's offset."""
    doubt: Indeterminate | None = None
    for _ in range(ATTEMPTS):
        try:
            return logs.append(records)[0]
        except Indeterminate as failure:
            doubt = failure
        except Determinate as failure:
            if doubt is None:
                raise
            raise doubt from failure  # the copy was refused: the first may be there
    raise doubt or AssertionError("unreachable: every attempt but the last leaves a doubt")
