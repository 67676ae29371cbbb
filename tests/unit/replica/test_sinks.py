"""Which sinks a replica runs."""

from typing import Any

import pytest

from streams.compute.description import DataflowDescription, ImportDescription, SinkDescription
from streams.compute.protocol import Status
from streams.ids import CapabilityId, CollectionId, Timestamp, Topic
from streams.kafka.settings import ClientSettings
from streams.plan.physical import Column
from streams.replica.driver import sinks as module
from streams.replica.driver.sinks import Sinks
from streams.storage.sinks.runner import SinkStatus

OUT = CollectionId("k2")


class Runner:
    """A runner that does nothing but say that it runs."""

    running = 0

    def __init__(self, *_: object, **__: object) -> None:
        self.status = SinkStatus("starting")

    def start(self) -> None:
        Runner.running += 1

    def stop(self) -> None:
        Runner.running -= 1


@pytest.fixture
def sinks(monkeypatch: pytest.MonkeyPatch) -> Sinks:
    monkeypatch.setattr(module, "SinkRunner", Runner)
    monkeypatch.setattr(Runner, "running", 0)
    nothing: Any = None
    return Sinks("sw", ClientSettings("memory:0"), nothing, lambda: 0, nothing)


def described() -> DataflowDescription:
    imported = ImportDescription(CollectionId("u1"), "u1", CapabilityId("k2.reads.u1"))
    return DataflowDescription(
        export=OUT,
        kind="sink",
        name="out",
        group="",
        columns=(Column("id", "BIGINT"),),
        as_of=Timestamp(1),
        imports=(imported,),
        sink=SinkDescription(Topic("out"), ("id",)),
    )


def test_the_owner_runs_sinks_and_stops_them_when_another_is(sinks: Sinks) -> None:
    sinks.create(described())
    assert Runner.running == 1
    sinks.own(is_owner=True, obstacle="")
    assert Runner.running == 1, "it runs already"
    sinks.own(is_owner=False, obstacle="")
    assert Runner.running == 0
    assert sinks.responses() == [Status(OUT, "standby")]
    sinks.repeat()
    assert sinks.responses() == [Status(OUT, "standby")]
    assert sinks.groups == {"u1"}, "its group is followed, for it may become the owner"
    sinks.own(is_owner=True, obstacle="")
    assert Runner.running == 1
    assert sinks.responses() == [Status(OUT, "starting")]


def test_a_sink_that_is_made_while_the_replica_stands_by_runs_later(sinks: Sinks) -> None:
    sinks.own(is_owner=False, obstacle="")
    sinks.create(described())
    assert Runner.running == 0
    sinks.own(is_owner=True, obstacle="")
    assert Runner.running == 1
    assert sinks.drop(OUT)
    assert Runner.running == 0
    assert not sinks.drop(OUT)


def test_who_cannot_become_the_owner_says_why(sinks: Sinks) -> None:
    sinks.create(described())
    sinks.own(is_owner=False, obstacle="no right")
    assert sinks.responses() == [Status(OUT, "stalled", "no right")]
