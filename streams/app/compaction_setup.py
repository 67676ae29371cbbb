"""Assembles compaction: clients, groups, and the workers that execute merges."""

import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from streams.app.service_process import new_id, now_ms
from streams.app.signals import Stop
from streams.compaction.collector import Collector
from streams.compaction.merge_execution import Worker, reason_of
from streams.compaction.runner import Compaction, Merging
from streams.ids import Topic
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.positions import KafkaPositions
from streams.kafka.client.raw import RawReader
from streams.kafka.settings import ClientSettings
from streams.storage.client.shards import Shards
from streams.trace.kernel.kernel import Kernel

_LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class CompactionTarget:
    """The place to compact: a cluster and the namespace of our topics on it."""

    kafka: ClientSettings
    namespace: str


def groups_of(namespace: str, topics: frozenset[Topic]) -> list[str]:
    """The groups among the topics: those with a log and a data topic."""
    start, end = f"{namespace}.", ".log"
    names = [topic for topic in topics if topic.startswith(start) and topic.endswith(end)]
    stems = [name.removesuffix(end) for name in names]
    return sorted(stem.removeprefix(start) for stem in stems if f"{stem}.data" in topics)


def open_groups(shards: Shards, groups: list[str]) -> dict[str, str]:
    """Open what can be opened; the others with the reason.

    All at once, and one by one only when one of them fails.
    """
    try:
        shards.open(*groups)
    except Exception:  # noqa: BLE001  a log or a Rollup that cannot be read is its group's alone
        return {group: why for group in groups if (why := _failure(shards, group))}
    return {}


def _failure(shards: Shards, group: str) -> str:
    try:
        shards.open(group)
    except Exception as error:  # noqa: BLE001  as above
        return reason_of(error)
    return ""


@contextmanager
def connected(place: CompactionTarget) -> Iterator[tuple[KafkaBroker, Shards]]:
    """A client of shards that follows no group yet."""
    broker = KafkaBroker(place.kafka)
    try:
        shards = Shards(
            broker.logs,
            broker.chunks,
            broker.topics,
            namespace=place.namespace,
            now_ms=now_ms,
            pump=True,
        )
        try:
            yield broker, shards
        finally:
            shards.close()
    finally:
        broker.close()


@contextmanager
def compaction(
    shards: Shards,
    kafka: ClientSettings,
    merging: Merging,
    positions: KafkaPositions | None = None,
) -> Iterator[Compaction]:
    """The job over what `shards` follows; without positions it reads data topics whole."""
    records = RawReader(kafka)
    try:
        collector = Collector(shards, records, now_ms, positions=positions)
        yield Compaction(shards, merging, collector, now_ms)
    finally:
        records.close()


def worker(shards: Shards, is_stopping: Callable[[], bool] = lambda: False) -> Merging:
    """Merges in this process, until it is stopping."""
    return Worker(shards, Kernel(), new_id, is_stopping=is_stopping)


def on_spark(
    stack: ExitStack, shards: Shards, place: CompactionTarget, master: str, stopping: Stop
) -> Merging:
    """Merges on Spark, by a session that ends with the stack; asked to stop, it cancels them.

    Errors: Stopped.
    """
    job = importlib.import_module("streams.compaction.job")  # only who wants Spark loads it
    session = stack.enter_context(job.session(master))
    stopping.check()

    stack.enter_context(cancelling(stopping, session.sparkContext.cancelAllJobs))
    merging: Merging = job.SparkWorker(shards, session, place.kafka)
    return merging


@contextmanager
def cancelling(stopping: Stop, cancel: Callable[[], None]) -> Iterator[None]:
    """Cancel as soon as we are asked to stop, for as long as the context lasts.

    The thread ends with it: one that is there when Python ends keeps DuckDB's objects alive,
    of which DuckDB then tells on standard error.
    """
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.is_set():
            if stopping.wait(_LOOK_EVERY_S):
                cancel()
                return

    thread = threading.Thread(target=watch, name="cancel", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
