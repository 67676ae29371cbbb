"""A replica without Spark that serves the compute protocol, over the broker in memory."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streams.compute.controller import Controller, command_topic, create_topics, response_topic
from streams.compute.protocol import CreateInstance, process_name
from streams.compute.reader import CommandReader
from streams.compute.writer import ResponseWriter
from streams.replica import main
from streams.replica.driver.assembly import ReplicaParts
from streams.replica.driver.batch_timings import Timings
from streams.replica.driver.dataflow_table import DataflowTable
from streams.replica.driver.events import Event, Hydrates
from streams.replica.driver.holds import HoldMover
from streams.replica.driver.status_reports import StatusReporter
from streams.replica.main import _Server
from tests.support.sparkless import BUCKETS, Replica, World


def ignored(*_: object, **__: object) -> None:
    """What is done to parts that are not there."""


ALONE: Any = SimpleNamespace(is_owner=True, trouble="")
"""The membership of a replica that is the only one."""

NO_INDEXES = SimpleNamespace(repeat=ignored, responses=list, drop=lambda _: False, sizes=dict)
NO_PEEKS: Any = SimpleNamespace(broken=None, indexes=NO_INDEXES)
NO_SINKS: Any = SimpleNamespace(
    responses=tuple, repeat=ignored, own=ignored, drop=lambda _: False, groups=frozenset()
)
NO_WATCH: Any = SimpleNamespace(add=ignored, remove=ignored)


class Controlled(Replica):
    """A replica that runs what its commands say, and not all there is in its world."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, world: World, name: str, state: Path
    ) -> None:
        super().__init__(world, name, state)
        logs, scheduler = world.broker.logs, self.scheduler
        writer = ResponseWriter(logs, response_topic("sw", "x"), process_name(name, "1"))
        nothing: Any = SimpleNamespace()
        parts = ReplicaParts(
            scheduler.config,
            scheduler.shards,
            NO_WATCH,
            scheduler,
            NO_SINKS,
            nothing,
            nothing,
            (),
            Timings(None),
        )
        self.reader = CommandReader(logs, command_topic("sw", "x"))
        self.server = _Server(
            scheduler.config,
            scheduler.store,
            nothing,
            nothing,
            StatusReporter(writer, clock=lambda: world.now / 1000),
            ALONE,
            NO_PEEKS,
        )

        def assemble(*_: object) -> ReplicaParts:
            return parts

        self.assemble = assemble
        self.monkeypatch = monkeypatch

    def follow(self, *, hears: bool = True) -> None:
        del hears
        self.monkeypatch.setattr(main, "assemble", self.assemble)
        self.server.hear(self.reader)

    def hold(self) -> None:
        """Move the holds on what it imports."""
        HoldMover(self.scheduler).move()
        self.sync()


def controller(world: World, epoch: int) -> Controller:
    """The controller of an instance in this world, whose topics it makes."""
    create_topics(world.broker.topics, "sw", "x")
    numbers = iter(range(1000))
    return Controller(
        world.broker.logs,
        CreateInstance("sw", BUCKETS),
        "x",
        epoch,
        lambda: f"n{epoch}.{next(numbers)}",
    )


def count_hydrations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The list to which each dataflow is added whose state is built from snapshots."""
    hydrated: list[str] = []
    tell = DataflowTable.tell

    def told(table: DataflowTable, flow: Any, event: Event) -> Any:
        if isinstance(event, Hydrates):
            hydrated.append(flow.id)
        return tell(table, flow, event)

    monkeypatch.setattr(DataflowTable, "tell", told)
    return hydrated
