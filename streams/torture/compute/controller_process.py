"""A controller as a process of its own, which can be killed at any moment.

Both directions are lines of base64 of the protocol's own records. In: `CreateDataflow`, and
`AllowCompaction` with the empty frontier for what was dropped, up to `InitializationComplete`,
which starts the controller; then commands one by one. Out: a `PeekResponse` for each result,
and a `SubscribeResponse` for each interval that a subscriber is given.
"""

import base64
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty

from streams.app.die_with_parent import guarded
from streams.compute.codec import (
    decode_command,
    decode_response,
    encode_command,
    encode_response,
)
from streams.compute.controller import Controller, Deliveries, create_topics
from streams.compute.peeks import CancelPeek, Peek, PeekOutcome, PeekResponse
from streams.compute.protocol import (
    AllowCompaction,
    Command,
    CommandMessage,
    CreateDataflow,
    CreateInstance,
    Response,
    ResponseMessage,
    UpdateConfiguration,
)
from streams.compute.subscribes import (
    AcknowledgeSubscribe,
    CancelSubscribe,
    Subscribe,
    SubscribeOutcome,
    SubscribeResponse,
)
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.settings import ClientSettings

POLL_MS = 50
SAYING = threading.Lock()


@dataclass(slots=True)
class ControllerProcess:
    """The process, from the other side.

    `answers` has all results of each peek, `delivered` all that each subscribe was, by uuid.
    """

    bootstrap: str
    instance: CreateInstance
    epoch: int
    log_file: Path
    answers: dict[str, list[PeekOutcome]] = field(default_factory=dict)
    delivered: dict[str, list[SubscribeOutcome]] = field(default_factory=dict)
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
                if isinstance(response, SubscribeResponse):
                    self.delivered.setdefault(response.uuid, []).append(response.outcome)
                else:
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
    open_: dict[str, Deliveries] = {}
    for work, name in (
        (partial(poll, controller), "poll"),
        (partial(forward, open_), "forward"),
    ):
        threading.Thread(target=work, name=name, daemon=True).start()
    for command in commands:
        carry_out(controller, command, open_)


def poll(controller: Controller) -> None:
    """Hear replicas without end."""
    while True:
        controller.poll(POLL_MS)


def forward(open_: Mapping[str, Deliveries]) -> None:
    """Write the intervals that subscribers receive, until the process ends."""
    while True:
        for uuid_, deliveries in list(open_.items()):
            with suppress(Empty):
                while True:
                    say(SubscribeResponse(uuid_, deliveries.get_nowait()))
        time.sleep(POLL_MS / 1000)


def carry_out(  # noqa: C901, PLR0912  one arm per kind
    controller: Controller, command: Command, open_: MutableMapping[str, Deliveries]
) -> None:
    """Execute one command on the controller."""
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
        case Subscribe(uuid=uuid_):
            open_[uuid_] = controller.subscribe(command)
        case AcknowledgeSubscribe(uuid_, upper):
            controller.acknowledge(uuid_, upper)
        case CancelSubscribe(uuid_):
            controller.cancel_subscribe(uuid_)
        case _:
            raise AssertionError(command)


def tell(uuid_: str, is_copy: bool, result: "Future[PeekOutcome]") -> None:  # noqa: FBT001
    """Say the result of a peek."""
    say(PeekResponse(uuid_, result.result(), is_copy))


def say(response: Response) -> None:
    """Write a response; several threads do."""
    record = encode_response(ResponseMessage("", "", 0, response))
    with SAYING:
        sys.stdout.write(base64.b64encode(record).decode() + "\n")
        sys.stdout.flush()


INSTANCE = "default"

if __name__ == "__main__":
    main(*sys.argv[1:])
