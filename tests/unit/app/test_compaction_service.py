"""Compaction as a service of an environment: it follows what comes and goes."""

import itertools
import logging
import threading
from dataclasses import replace

import pytest

from streams.app.compaction import Counts, rounds
from streams.app.compaction_metrics import measured
from streams.app.service_config import Service
from streams.app.signals import Stop
from streams.compaction.collector import Collector
from streams.compaction.merge_execution import Worker
from streams.compaction.runner import Compaction, CompactionRequest
from streams.errors import Determinate
from streams.ids import Timestamp
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.memory.records import MemoryRawReader
from streams.kafka.topics import Topics
from streams.storage.client import maintenance
from streams.storage.client.shards import Shards
from streams.trace.kernel.kernel import Kernel
from tests.support.shard_clients import DESCRIPTION, U1, append, broker, client, grow, rows

SERVICE = Service(bootstrap="memory:0", directory="", compact_every_s=0.001)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause between rounds."""
    monkeypatch.setattr("streams.app.compaction.LEAST_PAUSE_S", 0.0)


class Counted:
    """Topics that are looked at so many times; between the looks something happens."""

    def __init__(self, inner: Topics, *happenings) -> None:
        self.inner, self.happenings, self.stopping = inner, list(happenings), Stop()

    def names(self):
        if self.happenings:
            self.happenings.pop(0)()
        if not self.happenings:
            self.stopping.set()
        return self.inner.names()


def job(kafka: MemoryBroker, one: Shards) -> Compaction:
    numbers = itertools.count()
    worker = Worker(one, Kernel(), lambda: f"s{next(numbers)}")
    return Compaction(one, worker, Collector(one, MemoryRawReader(kafka.store), lambda: 0), int)


@pytest.mark.usefixtures("hurried")
def test_groups_that_come_are_compacted_and_those_that_go_are_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    kafka = broker()
    with client(kafka) as writer, client(kafka, pump=True) as one:

        def come() -> None:
            writer.create("u1", U1, DESCRIPTION, Timestamp(0))
            for at in range(4):
                append(writer, at, at + 1, rows("a", time=at))

        def go() -> None:
            assert one.wait(lambda: one.state(U1).batches.count == 1, 60_000)
            writer.delete("u1")

        topics = Counted(kafka.topics, come, lambda: None, go, lambda: None)
        assert rounds(topics, job(kafka, one), SERVICE, topics.stopping, Counts()) == 0  # type: ignore[arg-type]
        assert one.groups() == ()
    assert [record.message for record in caplog.records if record.message == "compacted"]


@pytest.mark.usefixtures("hurried")
def test_a_client_that_is_of_no_use_ends_the_process() -> None:
    kafka = broker()
    with client(kafka) as one:
        one.following.defect = RuntimeError("a defect")
        assert rounds(kafka.topics, job(kafka, one), SERVICE, Stop(), Counts()) == 1


@pytest.mark.usefixtures("hurried")
def test_a_merge_that_takes_long_keeps_no_rollup_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenance, "LEAST_EVENTS", 64)
    kafka = broker()
    rolled_up, tried = threading.Event(), threading.Event()

    class Long:
        """Merges that go on until a log was rolled up beside them."""

        def compact_all(self, requests):
            tried.set()
            assert rolled_up.wait(60)
            return []

    with client(kafka) as writer, client(kafka, pump=True) as one:
        writer.create("u1", U1, DESCRIPTION, Timestamp(0))
        for at in range(4):
            append(writer, at, at + 1, rows("a", time=at))

        def more() -> None:
            assert tried.wait(60)
            grow(writer, 200)
            one.sync_group("u1")

        def look() -> None:
            if one.group_state("u1").rollups:
                rolled_up.set()

        topics = Counted(kafka.topics, lambda: None, lambda: None, more, look, look, look)
        long = Compaction(one, Long(), Collector(one, MemoryRawReader(kafka.store), int), int)
        assert rounds(topics, long, SERVICE, topics.stopping, Counts()) == 0  # type: ignore[arg-type]
        assert rolled_up.is_set()


def test_a_merge_ends_when_the_process_does() -> None:
    kafka = broker()
    with client(kafka) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        for at in range(4):
            append(one, at, at + 1, rows("a", time=at))
        calls = itertools.count()
        worker = Worker(one, Kernel(), lambda: "s", is_stopping=lambda: next(calls) > 0)
        stopped = Compaction(
            one, worker, Collector(one, MemoryRawReader(kafka.store), int), int
        )
        [failed] = stopped.merge(CompactionRequest()).failed
        assert "is stopping" in failed.reason
        assert stopped.merge(CompactionRequest(whole=True)).failed == []
        assert one.state(U1).batches.count == 4


def test_what_is_stored_and_what_is_due_is_measured() -> None:
    kafka, counts = broker(), Counts()
    with client(kafka) as writer, client(kafka, pump=True) as one:
        writer.create("u1", U1, DESCRIPTION, Timestamp(0))
        for at in range(8):
            append(writer, at, at + 1, rows("a", time=at))
        one.open("u1")
        before = measured(one)[U1]
        assert before.batches == 8
        assert 0 < before.debt_bytes <= before.bytes
        job(kafka, one).merge(CompactionRequest())
        one.sync_group("u1")
        after = measured(one)[U1]
        assert after.batches < 8
        assert after.debt_bytes < before.debt_bytes
        counts.stored = {U1: after}
    assert (
        f'slackwater_collection_batches{{collection="{U1}"}} {after.batches}.0' in counts.text()
    )


@pytest.mark.usefixtures("hurried")
def test_rounds_that_fail_are_counted() -> None:
    kafka, counts = broker(), Counts()
    with client(kafka) as one:

        def fail() -> None:
            raise Determinate("no broker answers")

        topics = Counted(kafka.topics, fail, lambda: None)
        assert rounds(topics, job(kafka, one), SERVICE, topics.stopping, counts) == 0  # type: ignore[arg-type]
    assert (counts.failures, counts.rounds) == (1, 1)


@pytest.mark.parametrize("every_s", [0.0, -1.0, 0.3, float("nan")])
@pytest.mark.parametrize("fails", [False, True])
def test_between_rounds_there_is_a_second_at_least(
    every_s: float, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if they end at once, because there is nothing to do or no broker answers."""
    kafka, pauses, stopping = broker(), list[float | None](), Stop()

    def wait(timeout_s: float | None = None) -> bool:
        pauses.append(timeout_s)
        return len(pauses) > 3

    def look() -> None:
        if fails:
            raise Determinate("no broker answers")

    monkeypatch.setattr(stopping, "wait", wait)
    with client(kafka) as one:
        topics = Counted(kafka.topics, *[look] * 9)
        service = replace(SERVICE, compact_every_s=every_s)
        assert rounds(topics, job(kafka, one), service, stopping, Counts()) == 0  # type: ignore[arg-type]
    assert pauses == [1.0] * 4
