"""Replicas that race, idle, die and come back are exact at every time."""

import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from streams.ids import CollectionId, Topic
from streams.replica.config import Budgets
from streams.replica.flow import Phase
from streams.replica.scheduler import LANES, LaneName
from tests.support import judging
from tests.support.sparkless import Dead, Replica, World

pytestmark = pytest.mark.slow

Act = Callable[[Replica], object]

ORDERS = (("id", "BIGINT"), ("customer", "BIGINT"), ("amount", "BIGINT"))
PEOPLE = (("id", "BIGINT"), ("name", "VARCHAR"))
POINTS = ("before-chunks", "after-chunks", "between-waves", "after-append")
VIEWS = {
    "totals": (
        "SELECT customer, count(*) AS n, sum(amount) AS total, min(amount) AS least "
        "FROM orders GROUP BY customer",
        ("orders",),
    ),
    "named": (
        "SELECT p.name, sum(t.total) AS total, max(t.n) AS most "
        "FROM totals t JOIN people p ON t.customer = p.id GROUP BY p.name",
        ("totals", "people"),
    ),
    "everything": ("SELECT count(*) AS n, sum(amount) AS total FROM orders", ("orders",)),
}


class Market:
    """Two sources and three views, with random messages."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World()
        self.world.patch(monkeypatch)
        self.orders = self.world.raw("raw-orders")
        self.people = self.world.raw("raw-people")
        self.sent = 0
        self.log: list[tuple[int, int, int, str | None]] = []
        self.produce(self.rng.randrange(30))
        self.world.source("orders", ORDERS, self.orders)
        self.world.source("people", PEOPLE, self.people, keys=("id",))

    def views(self) -> None:
        for name, (query, _) in VIEWS.items():
            self.world.view(name, query)

    def produce(self, count: int) -> None:
        rng = self.rng
        for _ in range(count):
            row = {"id": self.sent, "customer": rng.randrange(6), "amount": rng.randrange(9)}
            self.sent += 1
            self._send(self.orders, rng.randrange(2), None, json.dumps(row).encode())
            if rng.random() < 0.4:
                key = rng.randrange(8)
                name = f"p{rng.randrange(3)}" if rng.random() < 0.7 else None
                body = None if name is None else json.dumps({"name": name}).encode()
                offset = sum(partition == key % 2 for partition, *_ in self.log)
                self.log.append((key % 2, offset, key, name))
                self._send(self.people, key % 2, json.dumps({"id": key}).encode(), body)

    def _send(
        self, topic: Topic, partition: int, key: bytes | None, value: bytes | None
    ) -> None:
        self.world.send(topic, partition, key, value)

    def check_people(self) -> int:
        """At the end of each batch the shard says what the messages up to its binding say."""
        people, _ = judging.updates(self.world.shards, self.world.relations["people"])
        rows = people.to_pylist()
        batches = list(self.world.shards.state(CollectionId("people")).batches)
        for batch in batches:
            bound = batch.source or {}
            wanted = {
                key: name
                for partition, offset, key, name in self.log
                if offset < bound.get(partition, 0)
            }
            found: dict[tuple[int, str], int] = {}
            for row in rows:
                if row["_time"] < batch.upper.time:
                    pair = (row["id"], row["name"])
                    found[pair] = found.get(pair, 0) + row["_diff"]
            left = {pair: count for pair, count in found.items() if count}
            assert left == {(k, v): 1 for k, v in wanted.items() if v is not None}, batch
        return len(batches)

    def check(self) -> None:
        world = self.world
        world.shards.sync()
        tables = {}
        for name, relation in world.relations.items():
            tables[name], errors = judging.updates(world.shards, relation)
            assert judging.net(errors) == {}
        assert sorted(tables["orders"]["id"].to_pylist()) == list(range(self.sent))
        for name, (query, inputs) in VIEWS.items():
            born = next(d.as_of for d in world.descriptions if d.export == name)
            since = max(born, *(world.since(each) for each in (name, *inputs)))
            upper = min(world.upper(each) for each in (name, *inputs))
            given = {each: tables[each] for each in inputs}
            judging.judge(query, tables[name], given, (since, upper), times=25)


def settle(market: Market, replica: Replica) -> None:
    """Let time pass, and the replica catch up with it."""
    market.world.now += 40_000
    replica.settle()


def test_one_replica(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    market = Market(monkeypatch, 1)
    market.views()
    replica = Replica(market.world, "a", tmp_path / "a")
    for _ in range(6):
        market.produce(20)
        settle(market, replica)
    market.check()


def test_a_process_that_just_started_throws_no_state_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before it is told of its dataflows, nothing names the run files that they left."""
    market = Market(monkeypatch, 1)
    market.views()
    replica = Replica(market.world, "a", tmp_path / "a")
    for _ in range(3):
        market.produce(20)
        settle(market, replica)
    for file in (tmp_path / "a" / "runs").iterdir():
        os.utime(file, (0, 0))
    again = Replica(market.world, "a", tmp_path / "a")
    again.keeper.run_once()
    again.follow()
    again.start()
    phases = {flow.id: flow.phase for flow in again.scheduler.flows.values()}
    assert {phases[CollectionId(name)] for name in VIEWS} == {Phase.RUNNING}
    settle(market, again)
    market.check()


def test_hydration_in_slices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    market = Market(monkeypatch, 2)
    small = Budgets(step_bytes=1, slice_bytes=1, messages=7)
    replica = Replica(market.world, "a", tmp_path / "a", budgets=small)
    for _ in range(5):
        market.produce(30)
        settle(market, replica)
    market.views()
    for _ in range(3):
        market.produce(5)
        settle(market, replica)
    market.check()


def test_another_version_corrects_what_it_finds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    market = Market(monkeypatch, 3)
    market.views()
    old = Replica(market.world, "a", tmp_path / "a")
    settle(market, old)
    market.produce(30)
    settle(market, old)
    new = Replica(market.world, "b", tmp_path / "b", salt="2", budgets=Budgets(slice_bytes=1))
    market.produce(10)
    settle(market, new)
    market.produce(10)
    settle(market, new)
    market.check()
    for name in VIEWS:
        state = market.world.shards.state(CollectionId(name))
        assert state.fingerprint.endswith("2")


def act_at_random(replica: Replica, rng: random.Random) -> None:
    """One of the things that a replica's threads do."""
    lane = rng.choice(LANES)
    match rng.randrange(8):
        case 0:
            replica.start()
        case 1:
            replica.idle()
        case 2:
            replica.keeper.run_once()
        case 3:
            replica.sync()
        case 4 | 5:
            replica.begin(lane)
        case _:
            replica.commit(lane)


@pytest.mark.parametrize("seed", range(8))
def test_replicas_race_die_and_return(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    market = Market(monkeypatch, seed)
    rng, world = market.rng, market.world
    small = Budgets(step_bytes=rng.choice([1, 2000]), slice_bytes=1, messages=9)

    def begin(name: str) -> Replica:
        return Replica(world, name, tmp_path / name, rng.choice([small, Budgets()]))

    replicas = [begin("a"), begin("b")]
    for round_ in range(400):
        if round_ == 60:
            market.views()
        world.now += rng.choice([0, 0, 1, 2, 300])
        act = rng.random()
        if act < 0.1:
            market.produce(rng.randrange(6))
        number = rng.randrange(2)
        replica = replicas[number]
        if 0.1 <= act < 0.12:
            name = replica.name if rng.random() < 0.7 else f"{replica.name}'"
            replicas[number] = begin(name)
            continue
        replica.die_at(*([rng.choice(POINTS)] if act > 0.97 else []))
        try:
            replica.follow()
            act_at_random(replica, rng)
        except Dead:
            replicas[number] = begin(replica.name)
    for replica in replicas:
        replica.die_at()
        settle(market, replica)
    market.check()


def both_running(market: Market, tmp_path: Path) -> list[Replica]:
    """Two replicas that have come to the same point."""
    market.views()
    replicas = [Replica(market.world, name, tmp_path / name) for name in "ab"]
    for replica in replicas:
        settle(market, replica)
    return replicas


def race(
    market: Market,
    replicas: list[Replica],
    *,
    begin: Act,
    lanes: Sequence[LaneName],
    rest: Act,
) -> None:
    """One act of a replica chosen at random, 400 times; then everything there is to do."""
    for _ in range(400):
        market.world.now += market.rng.choice([0, 1, 2])
        replica = market.rng.choice(replicas)
        match market.rng.randrange(8):
            case 0 | 1:
                market.produce(2)
            case 2:
                replica.sync()
            case 3 | 4:
                begin(replica)
            case 5 | 6:
                for lane in lanes:
                    replica.commit(lane)
            case _:
                rest(replica)
    for replica in replicas:
        settle(market, replica)


def test_what_another_replica_stored_is_not_also_taken_in_hand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    market = Market(monkeypatch, 4)
    slow, fast = both_running(market, tmp_path)
    market.world.now += 1_000
    market.produce(20)
    assert fast.step("ingest")
    slow.sync()
    slow.idle()  # its sources follow, its views stay behind their shards
    assert slow.step("hydrate")
    market.world.now += 1_000
    market.produce(20)
    assert slow.begin("ingest")
    slow.commit("ingest")
    for replica in (slow, fast):
        settle(market, replica)
    market.check()


@pytest.mark.parametrize("seed", range(8))
def test_chains_of_two_replicas_race(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    market = Market(monkeypatch, seed)
    replicas = both_running(market, tmp_path)
    race(
        market,
        replicas,
        begin=lambda replica: replica.begin(market.rng.choice(["ingest", "ingest", "steady"])),
        lanes=("ingest", "steady"),
        rest=Replica.idle,
    )
    market.check()


@pytest.mark.parametrize("seed", range(8))
def test_two_ingestions_of_one_topic_race(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    market = Market(monkeypatch, seed)
    replicas = [Replica(market.world, name, tmp_path / name) for name in "ab"]
    for replica in replicas:
        replica.follow()
    for replica in replicas:
        replica.start()
    race(
        market,
        replicas,
        begin=lambda replica: replica.begin("ingest"),
        lanes=("ingest",),
        rest=lambda replica: replica.step("hydrate"),
    )
    world = market.world
    world.shards.sync()
    assert market.check_people() >= 5
    orders, _ = judging.updates(world.shards, world.relations["orders"])
    assert sorted(orders["id"].to_pylist()) == list(range(market.sent))
