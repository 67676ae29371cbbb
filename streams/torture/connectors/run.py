"""Scenarios one after another, each with a namespace and a database of its own."""

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import cycle
from random import Random

from connectors.driver import Channel, Transport
from connectors.testing.faults import Act, Fault
from connectors.transport.stdio import Command, Pipe
from streams.app.service_process import now_ms
from streams.app.signals import Stop
from streams.kafka.log import Chunks, Logs
from streams.kafka.topics import Topics
from streams.storage.client.shards import Shards
from streams.torture.connectors.databases import Places
from streams.torture.connectors.scene import Scenario, Scene, scenarios
from streams.torture.oracle import Verdict

COMMAND = (
    *(sys.executable, "-c", "from streams.app.main import app; app()"),
    *("connector", "serve"),
)
EVERY = 8
"""One in so many runs has its connector in processes; they take long. Besides, of each event
the first run at which a connector dies: its process is killed there."""


@dataclass(frozen=True, slots=True)
class Broker:
    """The location of the collections."""

    logs: Logs
    chunks: Chunks
    topics: Topics

    def client(self, namespace: str) -> Shards:
        """The location of one run's collections."""
        return Shards(
            self.logs, self.chunks, self.topics, namespace=namespace, now_ms=now_ms, pump=True
        )


@dataclass(slots=True)
class Run:
    """Runs, each with its own directory; the seed decides their order and their writes."""

    broker: Broker
    places: Places
    seed: int
    tell: Callable[[float], None] = lambda _: None
    stopping: Stop = field(default_factory=Stop)
    figures: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    killed_at: set[str] = field(default_factory=set)
    """The events at which a connector's process was killed."""

    def run(self, seconds: float) -> Verdict:
        """Run scenarios for the given time, at least one; stop after one that fails."""
        began, rng = time.monotonic(), Random(self.seed)  # noqa: S311 to be repeated
        for number, scenario in enumerate(self.order(rng)):
            passed = time.monotonic() - began
            is_over = number and passed >= seconds
            if is_over or self.wrong or self.stopping.is_set():
                break
            self.tell(passed)
            self.one(number, scenario, Random(rng.getrandbits(32)))  # noqa: S311
        if not self.figures["scenarios"]:
            self.wrong.append("no scenario was run: nothing was tested")
        return Verdict(dict(self.figures), tuple(self.wrong))

    def order(self, rng: Random) -> Iterator[Scenario]:
        """All of them in an order of the seed's, then again.

        Every mode and act comes early, and every act and event.
        """
        every = list(scenarios())
        rng.shuffle(every)
        by_event = in_turns(every, lambda case: (case.fault.act, case.fault.event))
        return cycle(in_turns(by_event, lambda case: (case.mode, case.fault.act)))

    def one(self, number: int, scenario: Scenario, rng: Random) -> None:
        """One scenario."""
        place = self.places(number)
        is_process = self.is_process(number, scenario.fault) and place.has_many
        transport: Transport = place.transport
        if is_process:
            transport = Command((*COMMAND, place.name), os.environ)
        namespace = f"torture{number}"
        scene = Scene(
            shards=lambda: self.broker.client(namespace),
            transport=transport,
            place=place,
            rng=rng,
            now_ms=now_ms,
            kill=killed if is_process else closed,
            is_process=is_process,
        )
        with closing(scene):
            scene.run(scenario)
        if is_process and scenario.fault.act is Act.CONNECTOR_DIES:
            self.killed_at.add(scenario.fault.event)
        self.figures["events at which connectors were killed"] = len(self.killed_at)
        self.figures["scenarios"] += 1
        self.figures[f"{scenario.mode}"] += 1
        self.figures[place.name] += 1
        self.figures[f"{scenario.fault.act}"] += 1
        self.figures["connectors in processes"] += is_process
        self.figures["looks at the tables"] += scene.reader.looks
        run = f"run {number}, {place.name}, {scenario}"
        self.wrong += [f"{run}: {fault}" for fault in scene.wrong]

    def is_process(self, number: int, fault: Fault) -> bool:
        """Whether the connector of a run is a process, where several can open the database.

        A connector of another process announces no acknowledgements.
        """
        if "acknowledge" in fault.event:
            return False
        is_new = fault.act is Act.CONNECTOR_DIES and fault.event not in self.killed_at
        return is_new or number % EVERY == EVERY - 1


def in_turns(
    every: Sequence[Scenario], kind_of: Callable[[Scenario], object]
) -> Sequence[Scenario]:
    """The first of each kind, then the second of each, and so on."""
    seen: Counter[object] = Counter()
    turns: list[tuple[int, int]] = []
    for number, scenario in enumerate(every):
        kind = kind_of(scenario)
        turns.append((seen[kind], number))
        seen[kind] += 1
    return [every[number] for _, number in sorted(turns)]


def closed(channel: Channel) -> None:
    """A connector in this process ends with its stream."""
    channel.close()


def killed(channel: Channel) -> None:
    """Kill -9."""
    if isinstance(channel, Pipe):
        channel.process.kill()
    channel.close()
