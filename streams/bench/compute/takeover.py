"""A controller in this process, in the place of the environment's coordinator."""

import itertools
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from streams.bench.rig import Rig
from streams.compute.controller import Controller, command_topic
from streams.compute.description import DataflowDescription
from streams.compute.history import live
from streams.compute.protocol import CreateInstance
from streams.compute.reader import CommandReader, UnreadableCommand
from streams.errors import Determinate
from streams.ids import DEFAULT_CLUSTER, CollectionId
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.log import Logs

POLL_MS = 50
LATER = 1 << 40
"""An epoch beyond that of any coordinator."""


@dataclass(slots=True)
class Successors:
    """Makes controllers of the dataflows that the coordinator has last commanded."""

    logs: Logs
    instance: CreateInstance
    descriptions: Mapping[CollectionId, DataflowDescription]
    _numbers: "itertools.count[int]"

    def started(self) -> Controller:
        """A controller that has begun, which replicas obey from now on."""
        epoch = LATER + next(self._numbers)
        controller = Controller(
            self.logs,
            self.instance,
            DEFAULT_CLUSTER,
            epoch,
            lambda: f"bench-{next(self._numbers)}",
        )
        controller.start(list(self.descriptions.values()), [])
        return controller


@contextmanager
def successors(bench: Rig) -> Iterator[Successors]:
    """The successors of the environment's coordinator, which stays and is not obeyed.

    Errors: Determinate when its commands cannot be read.
    """
    broker = KafkaBroker(bench.environment.kafka)
    try:
        reader = CommandReader(
            broker.logs, command_topic(bench.shards.namespace, DEFAULT_CLUSTER)
        )
        heard = [heard.command for heard in reader.poll(POLL_MS)]
        reader.close()
        commands = [command for command in heard if not isinstance(command, UnreadableCommand)]
        (instance,) = (command for command in commands if isinstance(command, CreateInstance))
        if len(commands) < len(heard):
            raise Determinate("a command of the coordinator cannot be read")
        yield Successors(broker.logs, instance, live(commands), itertools.count())
    finally:
        broker.close()


@contextmanager
def polled(controller: Controller) -> Iterator[Controller]:
    """The controller while a thread polls it; closed afterwards."""
    ended = threading.Event()

    def listen() -> None:
        while not ended.is_set():
            controller.poll(POLL_MS)

    thread = threading.Thread(target=listen, name="responses")
    thread.start()
    try:
        yield controller
    finally:
        ended.set()
        thread.join()
        controller.close()
