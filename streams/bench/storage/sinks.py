"""A sink that writes a backlog: the contents of a view and revisions of all of its rows."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streams.app.service_process import now_ms
from streams.bench.figures import Figure, Outcome, at_least
from streams.bench.storage.bulk import TimedStretch
from streams.bench.storage.rig import NAMESPACE, Client, StorageRig, cpu, load_average
from streams.errors import Determinate
from streams.ids import CollectionId, Timestamp, Topic
from streams.kafka.client.transactions import Out, Transactions
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import TopicKind, TopicSpec
from streams.storage.client.handles import ReadCapability, WriteCapability
from streams.storage.description import Description
from streams.storage.sinks.runner import SinkRunner, SinkSpec, SinkStatus

KEYS = 200_000
REVISIONS = 2
"""Of each row; so many keys and revisions are what the target is stated for."""
WARM_UP_KEYS = 1_000
TARGET = 250_000
PATIENCE_S = 600.0
_WINDOW_KEYS = 1_000
_SECOND_US = 1_000_000

COLUMNS = Description(
    (
        ("window_start", "TIMESTAMP"),
        ("name", "VARCHAR"),
        ("count", "BIGINT"),
        ("total", "DECIMAL(18,2)"),
        ("mean", "DOUBLE"),
    ),
    kind="table",
)


class TimedWriter:
    """Transactions, and the time and processor time of their commits."""

    def __init__(self, settings: ClientSettings, transactional_id: str) -> None:
        self._transactions = Transactions(settings, transactional_id)
        self.init, self.close = self._transactions.init, self._transactions.close
        self.last_value, self.partitions = (
            self._transactions.last_value,
            self._transactions.partitions,
        )
        self.seconds = self.cpu_s = 0.0

    def commit(self, records: tuple[Out, ...]) -> None:
        """Commit, and add the time."""
        began, used = time.perf_counter(), time.thread_time()
        self._transactions.commit(records)
        self.seconds += time.perf_counter() - began
        self.cpu_s += time.thread_time() - used


def sinks(rig: StorageRig) -> Outcome:
    """Rows of hop windows by key, each revised; all of it is there when the sink begins."""
    keys, load = rig.scaled(KEYS, least=WARM_UP_KEYS), load_average()
    records = keys * (1 + REVISIONS)
    with rig.client() as client:
        _run(rig, client, "warm_up", WARM_UP_KEYS)
        lap, writer = _run(rig, client, "sunk", keys)
    us = 1e6 / records
    phases = {
        "wall": lap.seconds * us,
        "our cpu": lap.used.ours * us,
        "of it, handing over": writer.cpu_s * us,
        "broker cpu": lap.used.broker * us,
        "wall of transactions": writer.seconds * us,
    }
    return Outcome(
        "sinks",
        (
            at_least("sink_records_per_second", records / lap.seconds, "/s", TARGET),
            Figure("sink_cpu_us_per_record", lap.used.ours * us, "us"),
            Figure("sink_records", records),
            Figure("sink_load", load),
        ),
        {"sink": phases},
        note=f"{keys} keys of a time and a text, {REVISIONS} revisions of each row;"
        " from the start of the sink to its last transaction",
        of="a record, microseconds",
        by="writer",
    )


def _run(
    rig: StorageRig, client: Client, name: str, keys: int
) -> tuple[TimedStretch, TimedWriter]:
    """Write a collection, then run a sink of it until all is in its topic."""
    read, upper = _written(client, name, keys)
    spec = SinkSpec(
        sink=CollectionId(f"sink_{name}"),
        collection=CollectionId(name),
        group=name,
        topic=Topic(f"{NAMESPACE}.output.{name}"),
        keys=("window_start", "name"),
        as_of=Timestamp(0),
        hold=read.name,
        namespace=NAMESPACE,
    )
    topics = (spec.topic, spec.progress_topic, spec.schema_topic)
    client.broker.topics.create([TopicSpec(topic, 1, TopicKind.OUTPUT) for topic in topics])
    writer = TimedWriter(ClientSettings(rig.bootstrap), spec.transactional_id)
    before, began = cpu(), time.perf_counter()
    with _running(spec, client, writer) as reached:
        if not reached(upper):
            raise Determinate(f"sink: expected to reach {upper} within {PATIENCE_S:g} s")
        return TimedStretch(time.perf_counter() - began, cpu().since(before)), writer


@contextmanager
def _running(spec: SinkSpec, client: Client, writer: TimedWriter) -> "Iterator[Reached]":
    reached = Reached()
    runner = SinkRunner(spec, client.shards, writer, now_ms=now_ms, report=reached.report)
    runner.start()
    try:
        yield reached
    finally:
        runner.stop()


class Reached:
    """How far a sink has come, and a way to wait for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._frontier = -1

    def report(self, status: SinkStatus) -> None:
        """Take a status of the sink."""
        with self._changed:
            self._frontier = -1 if status.frontier is None else status.frontier
            self._changed.notify_all()

    def __call__(self, frontier: int) -> bool:
        """Wait until the sink's progress is there; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._frontier >= frontier, PATIENCE_S)


def _written(client: Client, name: str, keys: int) -> tuple[ReadCapability, int]:
    """A new collection: contents at time 0, revisions at the times after it."""
    read, write = client.storage.create(CollectionId(name), COLUMNS, start=0, critical=True)
    for version in range(1 + REVISIONS):
        updates = [_rows(keys, version, version, 1)]
        if version:
            updates.append(_rows(keys, version - 1, version, -1))
        moved = client.storage.update_and_downgrade(
            write, pa.concat_tables(updates), version + 1
        )
        assert isinstance(moved, WriteCapability), "there is no other writer"
        write = moved
    return read, 1 + REVISIONS


def _rows(keys: int, version: int, at: int, diff: int) -> pa.Table:
    ids = np.arange(keys)
    names = pc.cast(pa.array(ids % _WINDOW_KEYS), pa.utf8())
    starts = ids // _WINDOW_KEYS * _SECOND_US + (1 << 50)
    totals = pa.array(ids * 31 % 1_000_003 + version)
    return pa.table(
        {
            "window_start": pa.array(starts, pa.timestamp("us")),
            "name": pc.binary_join_element_wise("name of the key ", names, ""),
            "count": ids % 1_013 + version,
            "total": totals.cast(pa.decimal128(21, 2)).cast(pa.decimal128(18, 2)),
            "mean": (ids + version) / 7.0,
            "time": np.full(keys, at),
            "diff": np.full(keys, diff),
        }
    )
