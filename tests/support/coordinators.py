"""A coordinator over a broker in memory, with replicas without Spark, for tests."""

import itertools
import json
from functools import cache

from streams.adapter.coordinator import Coordinator
from streams.adapter.coordinator_settings import Cluster, CoordinatorSettings
from streams.adapter.materialization_tasks import Check, no_connectors
from streams.adapter.results import Complete, Failed, Progress, Result, Rows
from streams.adapter.workers.pool import Workers
from streams.ids import CollectionId, Topic
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.topics import TopicKind, TopicSpec
from streams.progress import frontier
from streams.storage.client.shards import Shards
from tests.support.forks import fork_server_address
from tests.support.processes import eventually
from tests.support.replica import FakeReplica

NOW = 1_700_000_000_000
ORDERS = (
    "CREATE SOURCE orders FROM KAFKA (TOPIC 'orders') (id BIGINT, amount DOUBLE) FORMAT JSON"
)
TOTALS = (
    "CREATE MATERIALIZED VIEW totals AS SELECT id, sum(amount) AS total FROM orders GROUP BY id"
)
SINK = "CREATE SINK out FROM totals INTO KAFKA (TOPIC 'totals') KEY (id)"


@cache
def shared_workers() -> Workers:
    """For all tests of a process; they end with its fork server."""
    return Workers(fork_server=fork_server_address())


class Killed(BaseException):
    """The coordinator dies here."""


class Environment:
    """A broker that outlives coordinators and replicas."""

    def __init__(self, workers: Workers | None = None, check: Check = no_connectors) -> None:
        self.check = check
        self.workers = workers or shared_workers()
        self.brokers_now = NOW
        self.broker = MemoryBroker(lambda: self.brokers_now)
        self.broker.topics.create([TopicSpec(Topic("orders"), 1, TopicKind.RAW)])
        self.numbers = itertools.count()
        self.dying_at = ""
        self.now = NOW
        self.coordinators: list[Coordinator] = []
        self.replicas: list[FakeReplica] = []
        self.start()

    def crash(self, point: str) -> None:
        if point == self.dying_at:
            raise Killed

    def start(self) -> None:
        broker = self.broker
        self.coordinator = Coordinator(
            CoordinatorSettings(retain_ms=1000),
            Cluster(broker.logs, broker.chunks, broker.topics),
            now_ms=lambda: self.now,
            new_id=lambda: f"id{next(self.numbers)}",
            workers=self.workers,
            crash=self.crash,
            check=self.check,
        )
        self.coordinators.append(self.coordinator)
        self.coordinator.start()

    def start_replica(self, cluster: str = "default") -> FakeReplica:
        broker = self.broker
        shards = Shards(
            broker.logs, broker.chunks, broker.topics, now_ms=lambda: NOW, pump=True
        )
        self.replica = FakeReplica(broker.logs, shards, cluster=cluster).start()
        self.replicas.append(self.replica)
        return self.replica

    def stranger(self) -> Shards:
        """A client that follows no group yet."""
        broker = self.broker
        return Shards(broker.logs, broker.chunks, broker.topics, now_ms=lambda: NOW)

    def stop(self) -> None:
        for replica in self.replicas:
            replica.stop()
            replica.shards.close()
        for coordinator in self.coordinators:
            coordinator.stop()

    def sql(self, text: str) -> list[Result]:
        """The results without the beats of whoever waits, which depend on the clock."""
        beat = Progress(frontier(0))
        return [result for result in self.coordinator.execute(text) if result != beat]

    def rows(self, text: str) -> list[list[object]]:
        results = self.sql(text)
        assert isinstance(results[-1], Complete), results[-1]
        return rows_of(results)

    def fails(self, text: str) -> Failed:
        last = self.sql(text)[-1]
        assert isinstance(last, Failed), last
        return last


def rows_of(results: list[Result]) -> list[list[object]]:
    return [
        json.loads(row) for result in results if isinstance(result, Rows) for row in result.rows
    ]


def with_orders(env: Environment, clauses: str = "") -> FakeReplica:
    replica = env.start_replica()
    assert isinstance(env.sql(ORDERS + clauses)[-1], Complete)
    eventually(lambda: bool(replica.created))
    return replica


def since(env: Environment, name: str = "s1") -> int:
    return int(env.coordinator.shards.state(CollectionId(name)).since.time)
