"""A topic with event times on a broker, and exactly what a source has to make of it.

Where a row is follows from the topic and the Appends that counted: a message belongs to the one
whose offsets contain it, and is at its event time or at that Append's lower, if it is late.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from confluent_kafka import Producer

from streams.compute import binding
from streams.ids import CollectionId, Offset
from streams.plan.metadata import Watermark
from streams.storage.client import group
from streams.storage.log.events import Append
from tests.integration.replica.support import Bench, now_ms
from tests.support.event_histories import Placed, spelled

NAME = "events"
COLUMNS = (("id", "BIGINT"), ("ts", "TIMESTAMP"))
DELAY_MS = 500
LATE_MS = 60_000

State = tuple[int, Mapping[int, int]]
"""Upper and binding of a source."""


def declared(idle_ms: int) -> Watermark:
    return Watermark(
        column="ts",
        delay_ms=DELAY_MS,
        late_rows="place",
        idle_ms=idle_ms,
        ahead_ms=86_400_000,
    )


class TimedTopic:
    """Messages about now, some of them late; and their source, `events`."""

    def __init__(self, bench: Bench, idle_ms: int, partitions: int = 2) -> None:
        self.bench, self.rng = bench, random.Random(11)
        self.topic = bench.raw_topic(partitions)
        self.messages: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]
        self._producer = Producer({"bootstrap.servers": bench.kafka.bootstrap, "linger.ms": 2})
        self._sent = 0
        bench.source(NAME, COLUMNS, self.topic, watermark=declared(idle_ms))

    def write(
        self, count: int, partitions: Sequence[int], disorder_ms: int = DELAY_MS // 2
    ) -> None:
        """Send rows that are out of order by so much at most, and some that are late."""
        for _ in range(count):
            at = now_ms() - self.rng.randrange(disorder_ms)
            is_late = self.rng.random() < 0.1
            self._put(self.rng.choice(partitions), at - LATE_MS if is_late else at)
        assert self._producer.flush(60) == 0

    def finish(self, partitions: Sequence[int]) -> int:
        """Send a row to partitions that moves upper past all others; return that upper."""
        at = now_ms() + DELAY_MS
        for partition in partitions:
            self._put(partition, at)
        assert self._producer.flush(60) == 0
        return at - DELAY_MS

    def _put(self, partition: int, at: int) -> None:
        value = json.dumps({"id": self._sent, "ts": spelled(at)})
        self._producer.produce(self.topic, value, partition=partition)
        self.messages[partition].append((self._sent, at))
        self._sent += 1

    def judge(self, upper: int) -> int:
        """Compare the source with the model, at every time; return how many rows were late."""
        states = [(0, {}), *self._appends()]
        assert states[-1][0] == self.bench.upper(NAME) == upper
        rows = self.bench.table(NAME)
        assert set(rows["_diff"].to_pylist()) == {1}
        actual = Counter(zip(rows["id"].to_pylist(), rows["_time"].to_pylist(), strict=True))
        wanted, late = placed(states, self.messages)
        assert actual == wanted
        assert binding.total(states[-1][1], binding.Fact.LATE) == late
        return late

    def _appends(self) -> Iterator[State]:
        """What each Append that counted has left of the source."""
        log = self.bench.shards.names(NAME).log
        low, high = self.bench.broker.logs.bounds(log)
        tail = self.bench.broker.logs.tail({log: low})
        state: State = (0, {})
        upto = low
        while upto < high:
            for entry in tail.poll(1_000):
                upto = Offset(entry.offset + 1)
                body = group.decode(entry).body
                part = body.parts[0] if isinstance(body, Append) else None
                if part is None or part.collection != CollectionId(NAME):
                    continue
                if (part.lower.time, dict(part.from_offsets or {})) == state:
                    state = part.upper.time, dict(part.to_offsets or {})
                    yield state
        tail.close()


def placed(
    states: Sequence[State], messages: Sequence[Sequence[tuple[int, int]]]
) -> tuple[Placed, int]:
    """The rows at their times below the last upper, and how many of all read were late."""
    rows, late, upper = Placed(), 0, states[-1][0]
    for (lower, from_), (_, to) in pairwise(states):
        begin = binding.offsets(from_, 0)
        for partition, stop in binding.offsets(to, 0).items():
            for number, at in messages[partition][begin.get(partition, 0) : stop]:
                late += at < lower
                if max(at, lower) < upper:
                    rows[number, max(at, lower)] += 1
    return rows, late
