"""Steady changes: a collection in memory changes continuously and is written to PostgreSQL.

Lags are behind the collection: from when a change can be read to when the commit that has it is
confirmed. Broker and feeder are in this process and share its processors.
"""

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connectors import postgres
from connectors.driver import Driver
from connectors.runtime.runner import Status
from connectors.runtime.task import Materialization
from connectors.transport.local import Local
from streams.app.freshness import percentile
from streams.app.materialize.background import BackgroundTask
from streams.app.service_process import now_ms
from streams.bench.connectors.measure import Phases, timed
from streams.bench.connectors.rows import EPOCH, REGIONS
from streams.ids import CollectionId, Timestamp
from streams.kafka.memory.logs import MemoryBroker
from streams.progress import frontier
from streams.storage.client.shards import Shards, write_capability
from streams.storage.description import Description
from streams.storage.log.events import Append, Part
from streams.trace.kernel.kernel import arrow_schema

ORDERS = CollectionId("u1")
COLUMNS = (
    ("region", "VARCHAR"),
    ("id", "BIGINT"),
    ("amount", "DOUBLE"),
    ("at", "TIMESTAMP"),
    ("note", "VARCHAR"),
    ("paid", "BOOLEAN"),
)
LIVE = 100_000
"""Orders that there are."""
EVERY_S = 0.1
PATIENCE_S = 300.0

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """The results. Units: lags in milliseconds, CPU in seconds by phase."""

    seconds: float
    changes: int
    commits: int
    lags: tuple[float, ...]
    phases: Mapping[str, float]

    @property
    def rate(self) -> float:
        """Changes a second."""
        return self.changes / self.seconds

    def lag(self, share: float) -> float:
        """A percentile."""
        return percentile(list(self.lags), share)


@dataclass(slots=True)
class Lags:
    """When what could be read, and how much later it was committed."""

    readable: deque[tuple[int, float]] = field(default_factory=deque)
    found: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def committed(self, status: Status) -> None:
        """The materialization says how far the tables are."""
        now = time.perf_counter()
        with self.lock:
            while self.readable and self.readable[0][0] <= (status.time or 0):
                self.found.append((now - self.readable.popleft()[1]) * 1000)


class Feeder:
    """Writes orders, then changes some of them at each tick; every change is a new amount."""

    def __init__(self, shards: Shards, live: int) -> None:
        self._shards, self._live = shards, live
        self._versions = np.zeros(live, np.int64)
        self._rng = np.random.default_rng(1)
        self.time = now_ms()
        description = Description(COLUMNS, ("region", "id"))
        shards.create(ORDERS, ORDERS, description, Timestamp(self.time))
        ids = np.arange(live)
        self._append([updates(ids, self._versions, self.time, 1)])

    def change(self, count: int) -> None:
        """Change so many of the orders."""
        self.time = max(self.time + 1, now_ms())
        ids = np.sort(self._rng.choice(self._live, count, replace=False))
        before = updates(ids, self._versions[ids], self.time, -1)
        self._versions[ids] += 1
        self._append([before, updates(ids, self._versions[ids], self.time, 1)])

    def _append(self, tables: list[pa.Table]) -> None:
        rows = pa.concat_tables(tables)
        errors = pa.schema([("error", pa.utf8()), ("time", pa.int64()), ("diff", pa.int64())])
        self._shards.sync(ORDERS)
        part = Part(
            collection=ORDERS,
            capability=write_capability(ORDERS),
            lower=self._shards.state(ORDERS).upper,
            upper=frontier(self.time + 1),
            chunks=self._shards.write(ORDERS, rows, errors.empty_table()),
        )
        self._shards.submit([(ORDERS, Append((part,)))])


def updates(ids: Integers, versions: Integers, at: int, diff: int) -> pa.Table:
    """Orders in some of their versions, as updates."""
    stamps = (EPOCH + ids % 86_400).astype("datetime64[us]") + versions
    columns = [
        pc.binary_join_element_wise("region", pa.array(ids % REGIONS).cast(pa.string()), " "),
        pa.array(ids),
        pa.array(ids * 0.25 + versions),
        pa.array(stamps),
        pc.binary_join_element_wise("note on", pa.array(ids).cast(pa.string()), " "),
        pa.array(versions % 2 == 0),
        pa.repeat(pa.scalar(at, pa.int64()), len(ids)),
        pa.repeat(pa.scalar(diff, pa.int64()), len(ids)),
    ]
    schema = arrow_schema([kind for _, kind in COLUMNS])
    return pa.table(columns, names=schema.names).cast(schema)


def steady(config: Mapping[str, object], seconds: float, rate: int, live: int = LIVE) -> Steady:
    """Backfill the orders, then change `rate` of them a second. Errors: what ends the task."""
    broker = MemoryBroker(now_ms)
    shards = [
        Shards(broker.logs, broker.chunks, broker.topics, now_ms=now_ms, pump=True)
        for _ in range(2)
    ]
    phases, lags = Phases(), Lags()
    connector = timed(postgres.connector({}), phases)
    try:
        feeder = Feeder(shards[0], live)
        beside = BackgroundTask(
            task(config), Driver(Local(connector)), shards[1], lags.committed
        )
        beside.start()
        try:
            beside.reach(Timestamp(feeder.time), PATIENCE_S)
            return measured(feeder, beside, lags, phases, (seconds, rate))
        finally:
            beside.stop()
    finally:
        for shard in shards:
            shard.close()


def measured(
    feeder: Feeder,
    beside: BackgroundTask,
    lags: Lags,
    phases: Phases,
    wanted: tuple[float, int],
) -> Steady:
    """Change for so many seconds at so many changes each, and await the last."""
    seconds, rate = wanted
    phases.seconds.clear()
    lags.found.clear()
    commits, cpu, feeding = beside.status.commits, time.process_time(), time.thread_time()
    began, ticks = time.perf_counter(), round(seconds / EVERY_S)
    for tick in range(1, ticks + 1):
        feeder.change(round(rate * EVERY_S))
        with lags.lock:
            lags.readable.append((feeder.time, time.perf_counter()))
        beside.check()
        time.sleep(max(0.0, began + tick * EVERY_S - time.perf_counter()))
    spent = time.perf_counter() - began
    beside.reach(Timestamp(feeder.time), PATIENCE_S)
    feeding, cpu = time.thread_time() - feeding, time.process_time() - cpu
    seconds_by_phase = dict(phases.seconds)
    waiting = seconds_by_phase.get("waiting", 0.0)
    others = cpu - feeding - sum(seconds_by_phase.values()) + waiting
    return Steady(
        seconds=spent,
        changes=ticks * round(rate * EVERY_S),
        commits=beside.status.commits - commits,
        lags=tuple(lags.found),
        phases={**seconds_by_phase, "follow, cut, pack, check": others, "the feeder": feeding},
    )


def task(config: Mapping[str, object]) -> Materialization:
    """The orders in their table."""
    return Materialization.model_validate(
        {
            "task": "steady",
            "connector": "postgres",
            "config": dict(config),
            "bindings": [{"collection": ORDERS, "resource": {"table": "steady"}}],
        }
    )
