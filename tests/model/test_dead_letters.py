"""Messages that cannot be decoded are rows or dead letters at each time, through kills."""

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from streams.compute import binding
from streams.compute.binding import Fact
from streams.compute.stalls import bad_message
from streams.ids import CollectionId, Topic
from streams.replica.config import Budgets
from streams.replica.driver.micro_batch import LANES
from tests.support import duckdb_oracle
from tests.support.racing_replicas import SEEDS, race_at_random
from tests.support.sparkless import Replica, World

COLUMNS = (("k", "BIGINT"), ("v", "VARCHAR"))
EVENTS = CollectionId("events")
ENVELOPES: list[tuple[str, ...]] = [(), ("k",)]
Message = tuple[bytes | None, bytes | None]
Contents = tuple[Counter[tuple[object, ...]], Counter[int]]
"""Rows of the source, and the offsets of its dead letters."""


def drawn(rng: random.Random, keys: Sequence[str]) -> Message:
    """A message, of which every fourth cannot be decoded."""
    k, v = rng.randrange(4), rng.choice(["a", "b", "c"])
    if not keys:
        return None, rng.choice(
            [b"{", b'{"k": "x"}', *[json.dumps({"k": k, "v": v}).encode()] * 6]
        )
    key = rng.choice([b"?", *[str(k).encode()] * 7])
    return key, rng.choice([b"[]", None, *[json.dumps({"v": v}).encode()] * 4])


def is_bad(message: Message) -> bool:
    """Whether a drawn message cannot be decoded."""
    key, value = message
    return value in {b"{", b'{"k": "x"}', b"[]"} or key == b"?"


def expected(messages: Sequence[Message], keys: Sequence[str]) -> Contents:
    """What is to be there once so many messages were read."""
    rows: dict[object, tuple[object, ...]] = {}
    letters: Counter[int] = Counter()
    for offset, (key, value) in enumerate(messages):
        if is_bad((key, value)):
            letters[offset] += 1
        elif not keys:
            assert value is not None
            rows[offset] = tuple(json.loads(value).values())
        elif value is None:
            rows.pop(key, None)
        else:
            assert key is not None
            rows[key] = (int(key), json.loads(value)["v"])
    return Counter(rows.values()), letters


def contents(world: World, time: int) -> Contents:
    """What is there at a time."""
    rows, errors = duckdb_oracle.updates(world.shards, world.relations["events"])
    assert not duckdb_oracle.net(errors)
    letters, errors = duckdb_oracle.updates(world.shards, world.relations["events.errors"])
    assert not duckdb_oracle.net(errors)
    return (
        _at(rows.to_pylist(), time, lambda row: (row["k"], row["v"])),
        _at(letters.to_pylist(), time, lambda row: row["offset"]),
    )


T = TypeVar("T")
Update = dict[str, Any]


def _at(updates: Sequence[Update], time: int, key: Callable[[Update], T]) -> Counter[T]:
    counts: Counter[T] = Counter()
    for row in updates:
        if row["_time"] <= time:
            counts[key(row)] += row["_diff"]
    assert all(count >= 0 for count in counts.values())
    return +counts


def judge(world: World, messages: Sequence[Message], keys: Sequence[str]) -> None:
    """At each time there is what follows from the first messages, of which none is missing."""
    world.shards.sync()
    uppers = {name: world.upper(name) for name in ("events", "events.errors")}
    assert len(set(uppers.values())) == 1, uppers
    updates = [
        duckdb_oracle.updates(world.shards, relation)[0]
        for relation in world.relations.values()
    ]
    times = sorted({time for table in updates for time in table["_time"].to_pylist()})
    possible = [expected(messages[:count], keys) for count in range(len(messages) + 1)]
    read = 0
    for time in times:
        actual = contents(world, time)
        read = next((n for n in range(read, len(possible)) if possible[n] == actual), -1)
        assert read >= 0, (time, actual)
    assert contents(world, uppers["events"]) == possible[-1]


@pytest.mark.parametrize("keys", ENVELOPES, ids=["none", "upsert"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_message_is_a_row_or_a_dead_letter(
    seed: int, keys: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, rng = World(), random.Random(seed)
    world.patch(monkeypatch)
    topic = world.raw("raw", 1)
    messages: list[Message] = []

    def send(count: int) -> None:
        for _ in range(count):
            messages.append(drawn(rng, keys))
            world.send(topic, 0, *messages[-1])

    def outside(_: int, act: float) -> None:
        if act > 0.5:
            send(rng.randrange(6))

    send(rng.choice([0, 40]))
    world.source("events", COLUMNS, topic, keys, on_error="dead_letter")
    replicas = race_at_random(world, rng, tmp_path, 150, outside)
    for replica in replicas:
        world.now += 2_000
        replica.settle()
    judge(world, messages, keys)


def attempt(world: World, replica: Replica) -> None:
    """What a replica does that may be stalled."""
    replica.follow()
    for _ in range(12):
        world.now += 40_000
        replica.start()
        for lane in LANES:
            replica.step(lane)
        replica.sync()
        replica.idle()


@pytest.mark.parametrize("messages", [3, 100])
def test_a_source_that_fails_reads_what_is_before_the_message(
    messages: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the snapshot takes several micro-batches; the reason stays in sight."""
    world = World()
    world.patch(monkeypatch)
    topic = world.raw("raw", 1)
    for offset in range(12):
        value = b"{" if offset == 7 else json.dumps({"k": offset, "v": "a"}).encode()
        world.send(topic, 0, None, value)
    world.source("events", COLUMNS, topic, on_error="fail")
    replica = Replica(world, "r", tmp_path, Budgets(messages=messages))
    attempt(world, replica)
    world.shards.sync()
    rows, _ = duckdb_oracle.updates(world.shards, world.relations["events"])
    assert sorted(rows["k"].to_pylist()) == list(range(7))
    trouble = replica.scheduler.flows[EVENTS].trouble
    assert trouble is not None
    assert trouble.message.startswith(
        f"cannot decode message: topic {Topic('raw')}, partition 0"
    )
    assert trouble.message.endswith("RESUME FROM OFFSETS (0 => 8)")


HOSTILE = [
    b"{",
    b'{"k": "Traceback (most recent call last):\\nX: y"}',
    b'{"k": "No space left on device"}',
    json.dumps({"k": "x" * 100_000}).encode(),
]
"""Bad messages, some of whose texts look like failures of ours."""


@pytest.mark.parametrize("bad", HOSTILE, ids=["syntax", "trace", "disk", "long"])
@pytest.mark.parametrize("places", [{0: 7, 1: 3}, {0: 3, 1: 7}, {0: 0, 1: 0}])
def test_of_bad_messages_in_two_partitions_neither_hides_what_is_before_the_other(
    places: dict[int, int], bad: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resuming behind a message loses what is before it and was not read yet."""
    world = World()
    world.patch(monkeypatch)
    topic = world.raw("raw", 2)
    for partition, place in places.items():
        for offset in range(10):
            row = json.dumps({"k": 10 * partition + offset, "v": "a"}).encode()
            world.send(topic, partition, None, bad if offset == place else row)
    world.source("events", COLUMNS, topic, on_error="fail")
    replica = Replica(world, "r", tmp_path)
    attempt(world, replica)
    world.shards.sync()
    rows, _ = duckdb_oracle.updates(world.shards, world.relations["events"])
    trouble, source = replica.scheduler.flows[EVENTS].trouble, world.descriptions[0].source
    assert trouble is not None
    assert source is not None
    message = bad_message(source, trouble.message)
    assert message is not None
    partition, offset = message
    assert places[partition] == offset
    assert (world.shards.state(EVENTS).source or {}).get(partition, 0) == offset
    read = {10 * partition + number for number in range(offset)}
    others = {10 * p + n for p, most in places.items() for n in range(most)}
    assert read <= set(rows["k"].to_pylist()) <= others


@pytest.mark.parametrize("keys", ENVELOPES, ids=["none", "upsert"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_skipped_message_counts_once(
    seed: int, keys: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each Append, also of a snapshot in slices, whichever replica wrote it."""
    world, rng = World(), random.Random(seed)
    world.patch(monkeypatch)
    topic = world.raw("raw", 2)
    bad: dict[int, list[int]] = {0: [], 1: []}
    sent = [0, 0]

    def send(count: int) -> None:
        for _ in range(count):
            message, partition = drawn(rng, keys), rng.randrange(2)
            if is_bad(message):
                bad[partition].append(sent[partition])
            sent[partition] += 1
            world.send(topic, partition, *message)

    def check() -> None:
        world.shards.sync()
        bound = world.shards.state(EVENTS).source or {}
        read = binding.offsets(bound, 0)
        expected = {p: sum(offset < read.get(p, 0) for offset in bad[p]) for p in bad}
        skipped = binding.facts(bound, 0, Fact.SKIPPED)
        assert skipped == {p: count for p, count in expected.items() if count}

    def outside(_: int, act: float) -> None:
        check()
        if act > 0.5:
            send(rng.randrange(6))

    send(40)
    world.source("events", COLUMNS, topic, keys, on_error="skip")
    for replica in race_at_random(world, rng, tmp_path, 150, outside):
        world.now += 2_000
        replica.settle()
    check()
    bound = world.shards.state(EVENTS).source or {}
    assert binding.offsets(bound, 0) == dict(enumerate(sent))
    assert binding.total(bound, Fact.SKIPPED) == sum(map(len, bad.values())) > 10


def test_a_source_that_skips_has_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    world.patch(monkeypatch)
    topic = world.raw("raw", 1)
    for value in (b"{", json.dumps({"k": 1, "v": "a"}).encode(), None):
        world.send(topic, 0, None, value)
    world.source("events", COLUMNS, topic, on_error="skip")
    Replica(world, "r", tmp_path).settle()
    world.shards.sync()
    rows, errors = duckdb_oracle.updates(world.shards, world.relations["events"])
    assert rows["k"].to_pylist() == [1]
    assert not duckdb_oracle.net(errors)
