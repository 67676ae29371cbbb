"""A broker that is away, frozen, killed, or has a full disk: commands wait, nothing is lost."""

import itertools
import os
import resource
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import psutil
import pytest

from streams.ids import CollectionId, Timestamp
from streams.kafka.client import clients, watchdog
from streams.kafka.embedded import EmbeddedBroker
from streams.storage import Storage
from streams.storage.client import follower
from streams.storage.client.handles import ReadCapability, WriteCapability
from streams.storage.client.status import ClientStatus
from streams.storage.read.options import Options
from tests.support.processes import is_alive
from tests.support.storages import TABLE, contents, write

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

T = CollectionId("t")
Found = dict[tuple[object, ...], int]
names = itertools.count()

PATIENCE_S = 300
"""How long a step of a test may take, an outage of a minute among them."""


@pytest.fixture
def namespace() -> str:
    return f"faults{next(names)}"


@pytest.fixture
def outage_ms(monkeypatch: pytest.MonkeyPatch, is_full_minute: bool) -> int:
    """An outage longer than any single call waits: calls give up sooner for a short one."""
    if is_full_minute:
        return 60_000
    monkeypatch.setattr(clients, "ANSWER_TIMEOUT_S", 3.0)
    monkeypatch.setattr(follower, "PATIENCE_MS", 8_000)
    monkeypatch.setattr(watchdog, "_LOOK_SHARE", 0)  # a silence is known before patience ends
    return 9_000


def java(broker: EmbeddedBroker) -> psutil.Process:
    assert broker._process is not None
    (process,) = psutil.Process(broker._process.pid).children()
    return process


@dataclass
class Working:
    """A writer in a thread of its own: row after row, until told to stop."""

    storage: Storage
    held: WriteCapability
    padding: Callable[[], str] = lambda: ""
    told: Found = field(default_factory=dict)
    stopping: threading.Event = field(default_factory=threading.Event)
    failures: list[Exception] = field(default_factory=list)

    def __enter__(self) -> Self:
        # daemon: a test that fails may leave it waiting, and the run has to end all the same
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stopping.set()
        if raised is None:
            self.stop()

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                at = int(self.held.frontier.time)
                row = (f"row{at}{self.padding()}", at)
                self.held = write(self.storage, self.held, at + 1, (*row, at, 1))
                self.told[(*row, at)] = 1
                time.sleep(0.01)
        except Exception as failure:  # noqa: BLE001  whatever it is, the test is to know
            self.failures.append(failure)

    def progress(self, rows: int) -> None:
        """Return when so many more rows were written."""
        total = len(self.told) + rows
        until(lambda: len(self.told) >= total or bool(self.failures))
        assert not self.failures, self.failures

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        assert not self.failures, self.failures


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def everything(storage: Storage, read: ReadCapability, upper: int) -> Found:
    events: Found = {}
    for delivery in storage.subscribe_at(read, Options(until=Timestamp(upper))):
        events.update(contents(delivery.updates))
    return events


def stopped(broker: EmbeddedBroker) -> Callable[[], object]:
    broker.stop()
    return broker.start


def killed(broker: EmbeddedBroker) -> Callable[[], object]:
    broker.kill()
    return broker.start


def frozen(broker: EmbeddedBroker) -> Callable[[], object]:
    """It answers nobody, and its connections stay open."""
    process = java(broker)
    process.suspend()
    return process.resume


# what is stopped in order comes back in `kafka/test_stability.py` too
@pytest.mark.parametrize(
    "away", [pytest.param(stopped, marks=pytest.mark.long), killed, frozen]
)
def test_a_broker_that_is_away_is_waited_for(
    own: EmbeddedBroker,
    namespace: str,
    away: Callable[[EmbeddedBroker], Callable[[], object]],
    outage_ms: int,
) -> None:
    bootstrap, statuses = own.bootstrap, list[ClientStatus]()
    with (
        Storage.kafka(bootstrap, namespace=namespace) as storage,
        Storage.kafka(bootstrap, namespace=namespace) as reader,
    ):
        storage.watch(statuses.append)
        read, writer = storage.create(T, TABLE)
        with Working(storage, writer) as work:
            work.progress(5)
            back = away(own)
            until(lambda: storage.status().silent_ms > outage_ms)
            assert "no broker has answered for" in str(storage.status())
            assert statuses
            assert statuses[-1].silent_ms
            looks: list[Found] = []  # somebody who comes while nobody answers waits as well
            looking = threading.Thread(
                target=lambda: looks.append(everything(reader, reader.heartbeat(read), 5)),
                daemon=True,
            )
            looking.start()
            before = len(work.told)
            back()
            assert own.bootstrap == bootstrap
            work.progress(5)
        looking.join(PATIENCE_S)
        until(lambda: storage.status().is_well and statuses[-1].is_well)
        assert len(work.told) > before
        assert len(looks[0]) == 5
        assert everything(reader, read, len(work.told)) == work.told


def test_a_full_disk_at_the_broker_loses_nothing_that_was_told(
    own: EmbeddedBroker, namespace: str
) -> None:
    """No file may grow beyond two megabytes, so appends fail as they do when a disk is full.

    A broker whose only disk fails ends itself. There is room again when it comes back.
    """
    with Storage.kafka(own.bootstrap, namespace=namespace) as storage:
        read, writer = storage.create(T, TABLE)
        with Working(storage, writer, lambda: os.urandom(64 << 10).hex()) as work:
            work.progress(2)
            limit = (2 << 20, resource.RLIM_INFINITY)
            process = java(own)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limit)
            until(lambda: not is_alive(process.pid) or bool(work.failures))
            assert not work.failures
            log_text = own.log_file.read_text(errors="replace")
            assert "File too large" in log_text, log_text[-2_000:]
            until(lambda: bool(storage.status().silent_ms))
            own.stop()
            own.start()
            work.progress(2)
        assert everything(storage, read, len(work.told)) == work.told
