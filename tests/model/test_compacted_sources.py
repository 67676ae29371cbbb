"""A replica whose keyed state is older than its shard's since does not replay the difference.

What lies before since was compacted onto it, retractions included: replayed upon older state it
would keep rows that are gone. So such state is thrown away and rebuilt from the whole shard.
"""

import json
from pathlib import Path

import pytest

from streams.ids import CollectionId, Topic
from tests.support import duckdb_oracle
from tests.support.compacted import compact, hold
from tests.support.sparkless import Replica, World

PEOPLE = CollectionId("people")


def send(world: World, topic: Topic, key: int, name: str | None) -> None:
    body = None if name is None else json.dumps({"name": name}).encode()
    world.send(topic, 0, json.dumps({"id": key}).encode(), body)


def settle(world: World, replica: Replica) -> None:
    world.now += 2_000
    replica.settle()


def present(world: World) -> dict[tuple[int, str], int]:
    world.shards.sync()
    people, errors = duckdb_oracle.updates(world.shards, world.relations["people"])
    assert duckdb_oracle.net(errors) == {}
    counts: dict[tuple[int, str], int] = {}
    for row in people.to_pylist():
        pair = (row["id"], row["name"])
        counts[pair] = counts.get(pair, 0) + row["_diff"]
    return {pair: count for pair, count in counts.items() if count}


@pytest.mark.parametrize("restarts", [False, True])
def test_keyed_state_older_than_since_is_rebuilt(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, restarts: bool
) -> None:
    world = World()
    world.patch(monkeypatch)
    topic = world.raw("raw-people", 1)
    world.source("people", (("id", "BIGINT"), ("name", "VARCHAR")), topic, keys=("id",))
    hold(world, "people")
    slow, fast = (Replica(world, name, tmp_path / name) for name in ("slow", "fast"))
    send(world, topic, 1, "ann")
    send(world, topic, 2, "bob")
    settle(world, slow)
    settle(world, slow)
    slow.maintenance.run_once()
    for key, name in ((1, None), (2, "eve"), (3, "joe")):
        send(world, topic, key, name)
        settle(world, fast)
    compact(world, "people")
    if restarts:
        slow = Replica(world, "slow", tmp_path / "slow")
    send(world, topic, 4, "zoe")
    settle(world, slow)  # catches up on the shard first
    for key, name in ((1, "amy"), (2, "una"), (3, None)):
        send(world, topic, key, name)
        settle(world, slow)
    settle(world, slow)
    assert present(world) == {(1, "amy"): 1, (2, "una"): 1, (4, "zoe"): 1}
