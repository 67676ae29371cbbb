"""Reads the records of controllers and replicas on an instance's topics, and checks the rules.

The topics are read while they are written, because their oldest records are deleted.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from streams.compute.codec import decode_command, decode_response
from streams.compute.controller import command_topic, response_topic
from streams.compute.peeks import PeekResponse
from streams.compute.protocol import CommandMessage, CreateTimely, ResponseMessage, replica_of
from streams.errors import SlackwaterError
from streams.ids import Offset
from streams.kafka.log import Logs
from streams.torture.compute.protocol_rules import check_commands, check_responses

POLL_MS = 100
ALIVE_S = 5.0


@dataclass(slots=True)
class Transcript:
    """All records from the beginning on, in a thread. `problem` says why it is not whole."""

    logs: Logs
    namespace: str
    instance: str
    commands: list[CommandMessage] = field(default_factory=list)
    responses: list[ResponseMessage] = field(default_factory=list)
    heard_at: dict[str, float] = field(default_factory=dict)
    """When each process was heard last, by the monotonic clock."""
    problem: str = ""
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def start(self) -> None:
        """Begin to read both topics, which exist and are empty."""
        self._thread = threading.Thread(target=self._read, name="transcript", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop reading, at the ends of the topics."""
        self._ended.set()
        self._thread.join()

    def serving(self) -> set[str]:
        """The replicas that have said something just now."""
        late = time.monotonic() - ALIVE_S
        heard_at = list(self.heard_at.items())
        return {replica_of(process) for process, at in heard_at if at > late}

    def _read(self) -> None:
        try:
            self._follow()
        except SlackwaterError as failure:
            self.problem = f"the transcript is not whole: {failure}"

    def _follow(self) -> None:
        commands = command_topic(self.namespace, self.instance)
        responses = response_topic(self.namespace, self.instance)
        tail = self.logs.tail({commands: Offset(0), responses: Offset(0)})
        is_last = False
        while True:
            entries = tail.poll(POLL_MS)
            for entry in entries:
                if entry.topic == commands:
                    self.commands.append(decode_command(entry.value))
                else:
                    said = decode_response(entry.value)
                    self.responses.append(said)
                    self.heard_at[said.replica] = time.monotonic()
            if not entries and is_last:
                tail.close()
                return
            is_last = self._ended.is_set()

    def wrong(self) -> Iterator[str]:
        """What breaks a rule of the protocol."""
        if self.problem:
            yield self.problem
            return
        try:
            check_responses(self.responses, check_commands(self.commands))
        except SlackwaterError as breach:
            yield f"{type(breach).__name__}: {breach}"

    def figures(self) -> Counter[str]:
        """How much was said."""
        answered = (said.response for said in self.responses)
        return Counter(
            {
                "commands": len(self.commands),
                "responses": len(self.responses),
                "iterations": sum(
                    isinstance(said.command, CreateTimely) for said in self.commands
                ),
                "processes of replicas": len(self.heard_at),
                "answers of replicas to peeks": sum(
                    isinstance(response, PeekResponse) for response in answered
                ),
            }
        )
