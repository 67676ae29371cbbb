"""Sources and views of a small market, fed at random, stepped by replicas without Spark."""

import json
import random

import pytest

from streams.ids import CollectionId, Topic
from tests.support import duckdb_oracle
from tests.support.sparkless import START_MS, Replica, World

ORDERS = (("id", "BIGINT"), ("customer", "BIGINT"), ("amount", "BIGINT"))
PEOPLE = (("id", "BIGINT"), ("name", "VARCHAR"))
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
    "ranked": (
        "SELECT name, spent, sum(spent) OVER (PARTITION BY name ORDER BY customer) AS so_far "
        "FROM (SELECT p.name, o.customer, sum(o.amount) AS spent FROM orders o "
        "JOIN people p ON o.customer = p.id GROUP BY ALL)",
        ("orders", "people"),
    ),
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

    def views(self, as_of: int = START_MS) -> None:
        for name, (query, _) in VIEWS.items():
            self.world.view(name, query, as_of)

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
        people, _ = duckdb_oracle.updates(self.world.shards, self.world.relations["people"])
        rows = people.to_pylist()
        batches = list(self.world.shards.state(CollectionId("people")).batches)
        for batch in batches:
            bound = batch.source or {}
            expected = {
                key: name
                for partition, offset, key, name in self.log
                if offset < bound.get(partition, 0)
            }
            counts: dict[tuple[int, str], int] = {}
            for row in rows:
                if row["_time"] < batch.upper.time:
                    pair = (row["id"], row["name"])
                    counts[pair] = counts.get(pair, 0) + row["_diff"]
            differing = {pair: count for pair, count in counts.items() if count}
            assert differing == {(k, v): 1 for k, v in expected.items() if v is not None}, batch
        return len(batches)

    def check(self) -> None:
        world = self.world
        world.shards.sync()
        tables = {}
        for name, relation in world.relations.items():
            tables[name], errors = duckdb_oracle.updates(world.shards, relation)
            assert duckdb_oracle.net(errors) == {}
        assert sorted(tables["orders"]["id"].to_pylist()) == list(range(self.sent))
        for name, (query, inputs) in VIEWS.items():
            born = next(d.as_of for d in world.descriptions if d.export == name)
            since = max(born, *(world.since(id_) for id_ in (name, *inputs)))
            upper = min(world.upper(id_) for id_ in (name, *inputs))
            contents = {input_: tables[input_] for input_ in inputs}
            duckdb_oracle.judge(query, tables[name], contents, (since, upper), times=25)


def settle(market: Market, replica: Replica) -> None:
    """Let time pass, and the replica catch up with it."""
    market.world.now += 40_000
    replica.settle()
