"""Topics whose messages have keys and event times, and what ENVELOPE UPSERT makes of them.

The model knows nothing of state: at an event time a key has the message of the highest rank
among those that are there. Which are there, and from when on, follows from the Appends as for
sources without keys (`event_histories`).
"""

import json
import random
from collections import Counter
from collections.abc import Collection
from typing import Literal

import pyarrow as pa

from streams.plan.metadata import Included, LateRows, OnError
from tests.support import duckdb_oracle
from tests.support.event_histories import (
    AHEAD_MS,
    PARTITIONS,
    History,
    Placed,
    declared,
    spelled,
)
from tests.support.sparkless import World

KEYS = ("a", "b", "c", "d")

Where = Literal["value", "record"]
"""Where the event time is: a record's is that of messages without a value, too."""

Rank = tuple[int, int, int, int]
"""Event time, time, offset, partition: a late message is ahead of its equals in the shard."""

Change = tuple[str, int, int]
"""A key, the number of a message, and a time."""


Ranked = dict[str, list[tuple[int, Rank, int]]]
"""Of each key the messages: their time, rank and number."""


def changes(ranked: Ranked, deletions: Collection[int] = ()) -> Counter[Change]:
    """The updates that give each key the message of the highest rank at each time."""
    updates = Counter[Change]()
    for key, messages in ranked.items():
        last: int | None = None
        for time in sorted({time for time, _, _ in messages}):
            _, best = max((rank, n) for at, rank, n in messages if at <= time)
            if best == last:
                continue
            for number, diff in ((last, -1), (best, 1)):
                if number is not None and number not in deletions:
                    updates[key, number, time] += diff
            last = best
    return updates


class KeyedHistory(History):
    """A topic with keys; messages may delete theirs."""

    def __init__(
        self, world: World, late_rows: LateRows, where: Where, on_error: OnError = "dead_letter"
    ) -> None:
        self.where: Where = where
        self.key_of: list[str] = []
        self.deletions = set[int]()
        self.times: list[int] = []
        super().__init__(world, late_rows, on_error)

    def _declare(self, on_error: OnError) -> None:
        is_included = self.where == "record"
        self.world.source(
            "events",
            (("id", "BIGINT"), ("k", "VARCHAR"), ("ts", "TIMESTAMP")),
            self.topic,
            keys=("k",),
            on_error=on_error,
            watermark=declared(self.late_rows),
            included=(Included("timestamp", "ts"),) if is_included else (),
        )

    def write(self, partition: int, key: str, at: int, *, deletes: bool = False) -> None:
        """Send a message of a key with an event time; one that deletes has no value."""
        fields = {"id": self.sent, "ts": spelled(at)}
        self.times.append(at)
        is_bad = at > self.world.now + AHEAD_MS
        timestamp = None
        if self.where == "record":
            del fields["ts"]
            timestamp, is_bad = at, False
        elif deletes:
            is_bad = True
        self._put(partition, key, None if deletes else fields, timestamp)
        self.messages[partition].append((self.sent - 1, None if is_bad else at))
        if deletes:
            self.deletions.add(self.sent - 1)

    def write_bad(self, partition: int) -> None:
        """Send a message that cannot be decoded, of a key that may be there."""
        self._put(partition, KEYS[0], {"id": "none"}, None)
        self.messages[partition].append((self.sent - 1, None))

    def _put(
        self, partition: int, key: str, fields: object | None, timestamp: int | None
    ) -> None:
        value = None if fields is None else json.dumps(fields).encode()
        self.world.send(self.topic, partition, json.dumps(key).encode(), value, timestamp)
        self.key_of.append(key)
        self.sent += 1

    def write_some(self, rng: random.Random, most: int) -> None:
        """Send fewer than `most` messages: out of order, equal, late, early, bad, deletions."""
        for _ in range(rng.randrange(most)):
            partition, now = rng.randrange(PARTITIONS), self.world.now
            at = now + rng.choice([rng.randrange(-100, 100), rng.randrange(-30, 30, 10)])
            if rng.random() < 0.3:
                upper = self.states[-1][0]
                late = [upper - rng.randrange(1, most) for most in (20, 300)]
                late.append(rng.choice(self.times or [0]))
                early = now + (900 if self.where == "record" else rng.choice([900, 10**6]))
                at = rng.choice([*late, early])
            if rng.random() < 0.07:
                self.write_bad(partition)
            else:
                self.write(partition, rng.choice(KEYS), at, deletes=rng.random() < 0.25)

    def ranked(self, placed: Placed) -> Ranked:
        """Of each key the messages that are there."""
        facts = {
            number: (at, offset, partition)
            for partition, messages in enumerate(self.messages)
            for offset, (number, at) in enumerate(messages)
            if at is not None
        }
        ranked: Ranked = {key: [] for key in KEYS}
        for number, time in placed:
            at, offset, partition = facts[number]
            rank = (at, time, offset, partition)
            ranked[self.key_of[number]].append((time, rank, number))
        return ranked

    def changes(self, placed: Placed) -> Counter[Change]:
        """The updates that the collection has to have."""
        return changes(self.ranked(placed), self.deletions)

    def judge_contents(self) -> None:
        """Compare what keys have in the end, for a collection without its history."""
        rows, errors = duckdb_oracle.updates(self.world.shards, self.world.relations["events"])
        assert not errors.num_rows
        actual, wanted = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
        for row in rows.to_pylist():
            actual[row["k"], row["id"]] += row["_diff"]
        placed, _ = self.expected()
        for (key, number, _), diff in self.changes(placed).items():
            wanted[key, number] += diff
        assert {key: n for key, n in actual.items() if n} == +wanted

    def _judge_rows(self, rows: pa.Table, wanted: Placed) -> None:
        actual = Counter[Change]()
        for row in rows.to_pylist():
            actual[row["k"], row["id"], row["_time"]] += row["_diff"]
        assert {change: n for change, n in actual.items() if n} == self.changes(wanted)

    def losers(self) -> int:
        """How many late messages have changed nothing."""
        placed, _ = self.expected()
        changed = {(number, time) for _, number, time in self.changes(placed)}
        return sum(
            rank[0] < time and (number, time) not in changed
            for messages in self.ranked(placed).values()
            for time, rank, number in messages
        )
