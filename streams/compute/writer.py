"""Writes messages to the protocol's topics, in order, each sequence number once.

An indeterminate append is repeated with the same bytes, and readers drop the copies. After a
determinate failure the number is reused. After a failure that stays indeterminate the number
may or may not be used up. So numbers continue beyond it, which readers of responses accept;
readers of commands accept a gap only at the start of an iteration, so a new iteration is
written then. One lock per object makes the order of numbers the order on the topic.
"""

import threading
from collections.abc import Sequence

from streams.compute.codec import encode_command, encode_response
from streams.compute.parameters import NO_VALUES, ParameterValues
from streams.compute.protocol import (
    Command,
    CommandMessage,
    CreateTimely,
    Response,
    ResponseMessage,
)
from streams.errors import Determinate, Indeterminate
from streams.ids import Offset, Topic
from streams.kafka.log import Logs

ATTEMPTS = 10
"""Number of attempts of an indeterminate append before its error is raised."""


class CommandWriter:
    """Appends the commands of one epoch to a command topic.

    Each iteration begins with `configuration`.
    """

    def __init__(
        self,
        logs: Logs,
        topic: Topic,
        epoch: int,
        configuration: ParameterValues = NO_VALUES,
    ) -> None:
        self._logs, self._topic, self._epoch = logs, topic, epoch
        self._configuration = configuration
        self._nonce, self._sequence = "", 0
        self._is_in_doubt = False
        self._lock = threading.Lock()

    @property
    def is_in_doubt(self) -> bool:
        """Whether only a new iteration can be written: an earlier append is in doubt."""
        return self._is_in_doubt

    def begin(self, nonce: str, commands: Sequence[Command]) -> Offset:
        """Begin an iteration with a CreateTimely and the given commands; return its offset.

        Errors: Determinate, Indeterminate; then the iteration before it may be over.
        """
        with self._lock:
            self._nonce, self._is_in_doubt = nonce, True
            first = CreateTimely(nonce, self._epoch, self._configuration)
            start = self._append((first, *commands))
            self._is_in_doubt = False
            return start

    def write(self, commands: Sequence[Command]) -> None:
        """Append commands to the current iteration; durable on return.

        Errors: Determinate; Indeterminate, from then on until an iteration is begun.
        """
        if not commands:
            return
        with self._lock:
            if self._is_in_doubt:
                raise Indeterminate("an earlier command is in doubt: begin an iteration")
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
    """Appends a replica process's responses. `replica` names the process and its start."""

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
    """Append, retrying while the result is unknown; return the first record's offset."""
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
