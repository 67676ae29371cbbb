"""A source by event time beside one without a watermark: the same messages, one by one.

backlog   messages as fast as they are produced, until all are readable in the source
steady    1,000 messages a second: flushed by the producer -> readable in the source
watermark steady: the watermark that makes rows final is decided -> they are readable, which is
          a micro-batch that appends, as the replica times it

Both with ENVELOPE NONE and with UPSERT, where each message replaces the row of its key.
Event times ascend, so the watermark follows each message. Rows are readable at event times
below upper: of steady messages those before the newest of each partition, of a backlog all but
the last of each partition, which moves upper past the others.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import pyarrow as pa

from streams import process_tree
from streams.app.freshness import percentile
from streams.bench.figures import Figure, Outcome, at_most
from streams.bench.json_lines import texts
from streams.bench.rig import PARTITIONS, Rig, Say, rig
from streams.errors import Determinate
from streams.ids import CollectionId, Timestamp, Topic
from streams.kafka.topics import TopicKind, TopicSpec

RATE, LOT_S = 1_000, 0.1
LOT = 50_000
WARM_UP = 20_000
FIRST_MS = 1_700_000_000_000
PATIENCE_S = 300.0
APPENDED_MS = 1
"""What an Append to a broker takes at least; a micro-batch without one takes nothing."""

KEYS = 10_000
"""In each partition."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A source: by event time or not, with the latest row of each key or not."""

    name: str
    by_event_time: bool = False
    is_keyed: bool = False

    def statement(self, topic: Topic) -> str:
        """Return the statement that creates it."""
        columns = "id BIGINT, page VARCHAR, price BIGINT, ts TIMESTAMP"
        columns += ", k BIGINT" if self.is_keyed else ""
        if self.by_event_time:
            columns += ", WATERMARK FOR ts AS ts - INTERVAL '0 seconds'"
        envelope = "UPSERT (KEY (k))" if self.is_keyed else "NONE"
        return (
            f"CREATE SOURCE {topic} FROM KAFKA (TOPIC '{topic}') ({columns})"
            f" FORMAT JSON ENVELOPE {envelope}"
        )


KINDS = (
    Kind("wall"),
    Kind("event", by_event_time=True),
    Kind("wall_upsert", is_keyed=True),
    Kind("event_upsert", by_event_time=True, is_keyed=True),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """What the messages of one source cost. Units: `cpu_s` is of all of a replica.

    `appending_ms` has the micro-batches of the steady stream that appended by event time.
    """

    rate: float
    cpu_s: float
    milliseconds: list[float]
    steady_cpu_s: float
    appending_ms: list[float]


@dataclass(slots=True)
class Stream:
    """Publishes messages of ascending event times to one topic, and waits for its source."""

    bench: Rig
    topic: Topic
    source: CollectionId
    kind: Kind
    sent: int = 0
    bound: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))

    def publish(self, count: int) -> None:
        """Publish so many messages to each partition, of one event time after another."""
        for partition in range(PARTITIONS):
            values = messages(self.sent, count)
            keys = self._keys(partition, count) if self.kind.is_keyed else None
            self.bench.publisher.publish(self.topic, keys, values, partition)
            self.bound[partition] += count
        self.bench.publisher.flush()
        self.sent += count

    def _keys(self, partition: int, count: int) -> pa.Array:
        numbers = np.arange(self.sent, self.sent + count) % KEYS * PARTITIONS + partition
        return pa.array(numbers).cast(pa.string())

    def readable(self) -> Callable[[], bool]:
        """Return whether all messages so far but the newest of each partition are readable."""
        shards, ends = self.bench.shards, dict(self.bound)
        before = Timestamp(FIRST_MS + self.sent - 2)
        if self.kind.by_event_time:
            return lambda: not shards.state(self.source).upper.less_equal(before)
        return lambda: covers(shards.state(self.source).source, ends)


def messages(first: int, count: int) -> pa.Array:
    """`count` messages as JSON text, a millisecond of event time apart."""
    numbers = np.arange(first, first + count)
    times = pa.array(numbers + FIRST_MS, pa.int64()).cast(pa.timestamp("ms"))
    pages = pa.array([f"/page/{number}" for number in range(100)]).take(pa.array(numbers % 100))
    return texts(pa.table({"id": numbers, "page": pages, "price": numbers % 977, "ts": times}))


def covers(bound: Mapping[int, int] | None, ends: Mapping[int, int]) -> bool:
    """Whether a binding is at or beyond such offsets."""
    return all((bound or {}).get(partition, 0) >= end for partition, end in ends.items())


def sources(say: Say, events: int, seconds: float) -> Outcome:
    """Measure all kinds of source, and compare those by event time with the others."""
    with rig(say) as bench:
        costs = {kind.name: _measured(bench, kind, events, seconds) for kind in KINDS}
        breakdown = bench.timings.breakdown()
    figures = (
        *_compared("", costs["wall"], costs["event"]),
        *_compared("_upsert", costs["wall_upsert"], costs["event_upsert"]),
    )
    bare = (_bare(kind, cost, seconds) for kind, cost in costs.items())
    note = "producer, broker, coordinator and replica share the machine"
    return Outcome("sources", (*chain(*bare), *figures), breakdown, note)


def _compared(suffix: str, wall: Cost, event: Cost) -> tuple[Figure, ...]:
    appending = percentile(event.appending_ms, 0.5)
    return (
        at_most(f"event_time{suffix}_clock_ratio", wall.rate / event.rate, "x", 1.2),
        at_most(f"event_time{suffix}_cpu_ratio", event.cpu_s / wall.cpu_s, "x", 1.2),
        at_most(f"event{suffix}_watermark_to_readable_ms_p50", appending, "ms", 150),
    )


def _bare(kind: str, cost: Cost, seconds: float) -> tuple[Figure, ...]:
    return (
        Figure(f"{kind}_messages_per_second", cost.rate, "/s"),
        Figure(f"{kind}_steady_readable_ms_p50", percentile(cost.milliseconds, 0.5), "ms"),
        Figure(f"{kind}_steady_readable_ms_p90", percentile(cost.milliseconds, 0.9), "ms"),
        Figure(f"{kind}_steady_cpu", cost.steady_cpu_s / seconds, "cores"),
    )


def _measured(bench: Rig, kind: Kind, events: int, seconds: float) -> Cost:
    topic = Topic(f"clicks_{kind.name}")
    bench.topics.create([TopicSpec(topic, PARTITIONS, TopicKind.RAW)])
    source = bench.create(kind.statement(topic))
    stream = Stream(bench, topic, source, kind)
    bench.say(f"{kind.name}: warming up")
    for _ in range(5):
        stream.publish(WARM_UP // 5 // PARTITIONS)
        _await(bench, stream.readable())
    bench.say(f"{kind.name}: {events:,} messages")
    began, cpu_s = time.monotonic(), process_tree.cpu_s(bench.replica)
    for _ in range(0, events, LOT):
        stream.publish(LOT // PARTITIONS)
    _await(bench, stream.readable())
    lasted, cpu_s = time.monotonic() - began, process_tree.cpu_s(bench.replica) - cpu_s
    bench.say(f"{kind.name}: {RATE:,} messages a second for {seconds:.0f} s")
    began_at_ms = time.time() * 1000
    steady_cpu_s = process_tree.cpu_s(bench.replica)
    milliseconds = _steady(stream, seconds)
    steady_cpu_s = process_tree.cpu_s(bench.replica) - steady_cpu_s
    appending_ms = [
        batch["trigger_ms"]
        for batch in bench.timings.rows()
        if str(batch["lane"]).startswith(f"event:{source}:")
        if batch["at_ms"] >= began_at_ms and batch["append_ms"] >= APPENDED_MS
    ]
    bench.environment.sql(f"DROP SOURCE {topic}")
    return Cost(events / lasted, cpu_s, milliseconds, steady_cpu_s, appending_ms)


def _steady(stream: Stream, seconds: float) -> list[float]:
    """Publish steadily; return for each lot the milliseconds until it was readable."""
    waiting: list[tuple[float, Callable[[], bool]]] = []
    milliseconds: list[float] = []

    def observe() -> None:
        now = time.monotonic()
        while waiting and waiting[0][1]():
            milliseconds.append((now - waiting.pop(0)[0]) * 1000)

    end = stream.bench.shards.subscribe(lambda _: observe())
    began, lots = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        stream.publish(int(RATE * LOT_S) // PARTITIONS)
        waiting.append((time.monotonic(), stream.readable()))
        lots += 1
        time.sleep(max(0.0, began + lots * LOT_S - time.monotonic()))
    _await(stream.bench, lambda: not waiting)
    end()
    return milliseconds


def _await(bench: Rig, done: Callable[[], bool]) -> None:
    if not bench.environment.wait(bench.shards, done, PATIENCE_S):
        raise Determinate(f"the source did not finish in {PATIENCE_S:.0f} s")
