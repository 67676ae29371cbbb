"""The rig of the storage benchmarks: an embedded broker of their own, and its clients."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from streams.app.service_process import now_ms
from streams.bench.storage.instrumented import WatchedChunks, WatchedLogs
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.embedded import EmbeddedBroker
from streams.kafka.settings import ClientSettings
from streams.process_tree import descendants, processes
from streams.storage import Storage
from streams.storage.client.shards import Shards
from streams.temporary import temporary_directory

NAMESPACE = "bench"
Step = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Client:
    """A client of storage, and what passes through its ports to Kafka."""

    broker: KafkaBroker
    logs: WatchedLogs
    chunks: WatchedChunks
    shards: Shards
    storage: Storage


@dataclass(frozen=True, slots=True)
class StorageRig:
    """A broker of its own.

    `scale` multiplies how much is written; 1 is what the targets are stated for. `collections`,
    if given, are as many as `many` makes, whatever the scale.
    """

    bootstrap: str
    directory: Path
    scale: float
    console: Console
    collections: int | None = None

    def say(self, text: str) -> None:
        """Tell what goes on."""
        self.console.print(f"[dim]{text}[/]")

    def scaled(self, count: int, least: int = 1) -> int:
        """So many, or as many as the scale says."""
        return max(least, round(count * self.scale))

    @contextmanager
    def client(self) -> Iterator[Client]:
        """A client with connections of its own."""
        broker = KafkaBroker(ClientSettings(self.bootstrap))
        logs, chunks = WatchedLogs(broker.logs), WatchedChunks(broker.chunks)
        shards = Shards(
            logs, chunks, broker.topics, namespace=NAMESPACE, now_ms=now_ms, pump=True
        )
        with Storage(shards, close=broker.close) as storage:
            yield Client(broker, logs, chunks, shards, storage)

    @contextmanager
    def bar(self, text: str, total: int) -> Iterator[Step]:
        """A progress bar; what is yielded moves it on by so many."""
        columns = (TextColumn("[dim]{task.description}"), BarColumn(), MofNCompleteColumn())
        shown = Progress(
            *columns,
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            refresh_per_second=2,  # drawing it takes time from what is measured
        )
        with shown:
            task = shown.add_task(text, total=total)
            yield lambda count: shown.advance(task, count)


@contextmanager
def rig(scale: float, console: Console, collections: int | None = None) -> Iterator[StorageRig]:
    """A rig on a broker of its own, thrown away afterwards."""
    with temporary_directory("slackwater-") as scratch:
        directory = Path(scratch)
        with EmbeddedBroker(directory) as broker:
            yield StorageRig(broker.bootstrap, directory, scale, console, collections)


@dataclass(frozen=True, slots=True)
class Cpu:
    """Processor time used so far. Units: seconds."""

    ours: float
    broker: float

    def since(self, before: "Cpu") -> "Cpu":
        """The usage since then."""
        return Cpu(self.ours - before.ours, self.broker - before.broker)


def cpu() -> Cpu:
    """The CPU time used by this process, and by its child processes: the broker."""
    own, all_ = os.times(), processes()
    others = descendants(os.getpid(), all_)
    return Cpu(own.user + own.system, sum(all_[pid].cpu_s for pid in others))


IDLE_S, SETTLE_S = 20.0, 10.0


@dataclass(frozen=True, slots=True)
class Ready:
    """The cost until ready. Units: seconds."""

    seconds: float
    cpu: Cpu


class Start:
    """A moment at which something starts to get ready."""

    def __init__(self) -> None:
        self._cpu, self._at = cpu(), time.perf_counter()

    def ready(self) -> Ready:
        """The cost since then."""
        return Ready(time.perf_counter() - self._at, cpu().since(self._cpu))


NOTHING_READY = Ready(0.0, Cpu(0.0, 0.0))


@dataclass(frozen=True, slots=True)
class Idle:
    """The cost until ready, and the usage while idle.

    Units: percent of one core.
    """

    ready: Ready
    percent: float
    broker_percent: float


def idle(rig: StorageRig, ready: Ready = NOTHING_READY) -> Idle:
    """Let what was started finish, then do nothing for a while."""
    share = min(rig.scale, 1.0)
    time.sleep(SETTLE_S * share)
    before, began = cpu(), time.perf_counter()
    time.sleep(IDLE_S * share)
    used, seconds = cpu().since(before), time.perf_counter() - began
    return Idle(ready, used.ours / seconds * 100, used.broker / seconds * 100)


def load_average() -> float:
    """The number of runnable threads during the last minute."""
    return os.getloadavg()[0]
