"""Topics with event times in the sparkless world, and what a source has to make of them."""

import json
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa

from streams.compute import binding
from streams.compute.binding import Fact
from streams.ids import CollectionId
from streams.plan.metadata import LateRows, OnError, Watermark
from tests.support import duckdb_oracle
from tests.support.sparkless import Replica, World

COLUMNS = (("id", "BIGINT"), ("ts", "TIMESTAMP"))
EVENTS = CollectionId("events")
PARTITIONS = 3
AHEAD_MS = 5_000

Placed = Counter[tuple[int, int]]
"""How often a message is there, by its number, and at which time."""


def declared(late_rows: LateRows = "place") -> Watermark:
    return Watermark(
        column="ts", delay_ms=50, late_rows=late_rows, idle_ms=1_000, ahead_ms=AHEAD_MS
    )


def spelled(at: int | None) -> str | None:
    """An event time as messages write it."""
    if at is None:
        return None
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at)
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")


class History:
    """A topic with event times, and the Appends that counted: their lower and offsets."""

    def __init__(self, world: World, late_rows: LateRows, on_error: OnError) -> None:
        self.world, self.late_rows = world, late_rows
        self.topic = world.raw("raw", PARTITIONS)
        self.messages: list[list[tuple[int, int | None]]] = [[] for _ in range(PARTITIONS)]
        self.states: list[tuple[int, Mapping[int, int]]] = [(0, {})]
        self.sent = 0
        self._declare(on_error)

    def _declare(self, on_error: OnError) -> None:
        watermark = declared(self.late_rows)
        self.world.source("events", COLUMNS, self.topic, on_error=on_error, watermark=watermark)

    def send(self, partition: int, at: int | None) -> None:
        """Send a message with an event time; None: it has none. Too early ones are bad."""
        value = json.dumps({"id": self.sent, "ts": spelled(at)}).encode()
        self.world.send(self.topic, partition, None, value)
        is_bad = at is None or at > self.world.now + AHEAD_MS
        self.messages[partition].append((self.sent, None if is_bad else at))
        self.sent += 1

    def look(self) -> None:
        """Hear of the Append that may have counted since the last look: of one at most."""
        self.world.shards.sync()
        state = self.world.shards.state(EVENTS)
        if state.upper.time != self.states[-1][0]:
            self.states.append((state.upper.time, dict(state.source or {})))

    def settled(self) -> tuple[int, Mapping[int, int]]:
        """Upper, and the binding as if it reached as far as dead letters are settled."""
        upper, bound = self.states[-1]
        letters = self.world.shards.state(CollectionId("events.errors")).source or {}
        return upper, {p: max(bound.get(p, 0), offset) for p, offset in letters.items()}

    def expected(self) -> tuple[Placed, Placed]:
        """Rows and dead letters, from the topic and the offsets of each Append.

        Dead letters are at the upper by which they were judged.
        """
        rows, letters = Placed(), Placed()
        upper, states = self.states[-1][0], [*self.states, self.settled()]
        for (lower, from_), (_, to) in pairwise(states):
            begin = binding.offsets(from_, 0)
            for partition, stop in binding.offsets(to, 0).items():
                for number, at in self.messages[partition][begin.get(partition, 0) : stop]:
                    is_late = at is not None and at < lower
                    if at is None or (is_late and self.late_rows == "dead_letter"):
                        letters[number, lower] += 1
                    elif max(at, lower) < upper:
                        rows[number, max(at, lower)] += 1
        return rows, letters

    def counts(self) -> tuple[int, int]:
        """How many rows were late and how many messages are bad, by the Appends' offsets."""
        late = bad = 0
        for (lower, from_), (_, to) in zip(self.states, self.states[1:], strict=False):
            begin = binding.offsets(from_, 0)
            for partition, stop in binding.offsets(to, 0).items():
                for _, at in self.messages[partition][begin.get(partition, 0) : stop]:
                    bad += at is None
                    late += at is not None and at < lower
        return late, bad

    def bound(self, fact: Fact) -> int:
        """A count that the shard has."""
        return binding.total(self.states[-1][1], fact)

    def judge(self) -> None:
        """Compare the collections, at all times below upper."""
        assert self.bound(Fact.LATE) == self.counts()[0]
        rows, errors = duckdb_oracle.updates(self.world.shards, self.world.relations["events"])
        letters, _ = duckdb_oracle.updates(
            self.world.shards, self.world.relations["events.errors"]
        )
        wanted_rows, wanted_letters = self.expected()
        assert not errors.num_rows
        self._judge_rows(rows, wanted_rows)
        judged = dict(wanted_letters.elements())
        places = zip(
            letters["partition"].to_pylist(), letters["offset"].to_pylist(), strict=True
        )
        numbers = [self.messages[partition][offset][0] for partition, offset in places]
        assert sorted(numbers) == sorted(judged)
        times = letters["_time"].to_pylist()
        assert all(judged[n] <= time for n, time in zip(numbers, times, strict=True))
        assert max(times, default=0) < self.world.upper("events.errors")
        assert self.world.upper("events") <= self.world.upper("events.errors")

    def _judge_rows(self, rows: pa.Table, wanted: Placed) -> None:
        assert set(rows["_diff"].to_pylist()) <= {1}
        counts = Counter(zip(rows["id"].to_pylist(), rows["_time"].to_pylist(), strict=True))
        assert counts == wanted

    def step(self, replica: Replica) -> bool:
        """Step each lane once; return whether one of them had work."""
        replica.start()
        busy = []
        for lane in replica.lanes():
            busy.append(replica.step(lane))
            self.look()
        return any(busy)

    def settle(self, replica: Replica) -> None:
        """Let a replica do all there is, with every partition idle."""
        self.look()
        replica.follow()
        quiet = 0
        for _ in range(600):  # builds in slices of a byte take many
            self.world.now += 1_500
            quiet = 0 if self.step(replica) else quiet + 1
            if quiet > 2:
                return
        raise AssertionError(
            {f.id: (f.phase, f.trouble) for f in replica.scheduler.flows.values()}
        )
