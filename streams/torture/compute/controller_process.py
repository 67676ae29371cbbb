"""A controller as a process of its own, which can be killed at any moment.

Both directions are lines of base64 of the protocol's own records. In: `CreateDataflow`, and
`AllowCompaction` with the empty frontier for what was dropped, up to `InitializationComplete`,
which starts the controller; then commands one by one. Out: a `PeekResponse` for each result.
"""

import base64
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from streams.app.die_with_parent import guarded
from streams.compute.codec import (
    decode_command,
    decode_response,
    encode_command,
    encode_response,
)
from streams.compute.controller import Controller, create_topics
from streams.compute.peeks import CancelPeek, Peek, PeekOutcome, PeekResponse
from streams.compute.protocol import (
    AllowCompaction,
    Command,
    CommandMessage,
    CreateDataflow,
    CreateInstance,
    ResponseMessage,
    UpdateConfiguration,
)
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.settings import ClientSettings

POLL_MS = 50


@dataclass(slots=True)
class ControllerProcess:
    """The process, from the other side. `answers` has all results of each peek, by uuid."""

    bootstrap: str
    instance: CreateInstance
    epoch: int
    log_file: Path
    answers: dict[str, list[PeekOutcome]] = field(default_factory=dict)
    _process: "subprocess.Popen[str]" = field(init=False)
    _listener: threading.Thread = field(init=False)

    def start(self, commands: Sequence[Command]) -> None:
        """Start it with the commands up to InitializationComplete."""
        settings = (self.bootstrap, self.instance.namespace, str(self.instance.buckets))
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  our own command, no shell
                guarded([sys.executable, "-m", __name__, *settings, str(self.epoch)]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._listener = threading.Thread(target=self._listen, name="controller", daemon=True)
        self._listener.start()
        self.send(commands)

    def send(self, commands: Iterable[Command]) -> None:
        """Have it carry out commands; nothing if it is dead."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            for command in commands:
                record = encode_command(CommandMessage("", 0, command))
                self._process.stdin.write(base64.b64encode(record).decode() + "\n")
            self._process.stdin.flush()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """`kill -9`; it is dead, and all that it said is heard, when this returns."""
        self._process.kill()
        self._process.wait()
        self._listener.join()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if not line.endswith("\n"):
                    return  # it was killed while it wrote
                response = decode_response(base64.b64decode(line)).response
                assert isinstance(response, PeekResponse), "it says nothing else"
                self.answers.setdefault(response.uuid, []).append(response.outcome)


def main(bootstrap: str, namespace: str, buckets: str, epoch: str) -> None:
    """Serve until the input ends."""
    broker = KafkaBroker(ClientSettings(bootstrap))
    instance = CreateInstance(namespace, int(buckets))
    create_topics(broker.topics, namespace, INSTANCE)
    controller = Controller(
        broker.logs, instance, INSTANCE, int(epoch), lambda: uuid.uuid4().hex
    )
    commands = (decode_command(base64.b64decode(line)).command for line in sys.stdin)
    flows, dropping = [], []
    for command in commands:
        match command:
            case CreateDataflow(flow):
                flows.append(flow)
            case AllowCompaction(collection):
                dropping.append(collection)
            case _:
                break
    controller.start(flows, dropping)
    threading.Thread(target=poll, args=(controller,), name="poll", daemon=True).start()
    for command in commands:
        carry_out(controller, command)


def poll(controller: Controller) -> None:
    """Hear replicas without end."""
    while True:
        controller.poll(POLL_MS)


def carry_out(controller: Controller, command: Command) -> None:
    """Do what one command asks the controller for."""
    match command:
        case CreateDataflow(flow):
            controller.create(flow)
        case UpdateConfiguration(values):
            controller.update_configuration(values)
        case AllowCompaction(collection, since) if since.is_empty:
            controller.drop(collection)
        case AllowCompaction(collection, since):
            controller.allow_compaction({collection: since})
        case Peek(uuid=uuid_, files=files):
            result = controller.peek(command)
            result.add_done_callback(partial(tell, uuid_, files is not None))
        case CancelPeek(uuid_):
            controller.cancel_peek(uuid_)
        case _:
            raise AssertionError(command)


def tell(uuid_: str, is_copy: bool, result: "Future[PeekOutcome]") -> None:  # noqa: FBT001
    """Say the result of a peek."""
    response = PeekResponse(uuid_, result.result(), is_copy)
    record = encode_response(ResponseMessage("", "", 0, response))
    sys.stdout.write(base64.b64encode(record).decode() + "\n")
    sys.stdout.flush()


INSTANCE = "default"

if __name__ == "__main__":
    main(*sys.argv[1:])
