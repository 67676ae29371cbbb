"""Clusters in an environment: more replicas on request, and answers whatever ends."""

import signal
from collections.abc import Mapping

import pytest

from streams.app.environment import Environment
from streams.app.replica_fleet import ReplicaPlace
from streams.kafka.embedded import EmbeddedBroker
from tests.integration.adapter.support import eventually, raw_topic
from tests.integration.replica.json_producer import Feed
from tests.support.processes import signal_group

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

R2 = ReplicaPlace("default", 2)


def replicas(environment: Environment, cluster: str) -> Mapping[str, Mapping[str, object]]:
    """What SHOW says of the live replicas of a cluster, by name."""
    rows = environment.sql("SHOW CLUSTER REPLICAS")[0].dicts()
    return {str(row["replica"]): row for row in rows if row["cluster"] == cluster}


def test_a_second_replica_goes_on_when_the_first_one_hangs(
    environment: Environment, broker: EmbeddedBroker
) -> None:
    topic, feed = raw_topic(broker.bootstrap, 1), Feed(broker.bootstrap)
    feed.send(topic, [{"id": number} for number in range(10)])
    environment.sql(f"CREATE SOURCE read FROM KAFKA (TOPIC '{topic}') (id BIGINT) FORMAT JSON")
    environment.sql("CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM read")

    def count() -> object:
        return environment.sql("SELECT n FROM counted")[0].rows[0][0]

    eventually(lambda: count() == 10)
    environment.sql("ALTER CLUSTER default SET (REPLICAS 2)")
    eventually(lambda: replicas(environment, "default").get("r2", {}).get("running") == 1)
    first = environment.children["replica"].pid
    assert first is not None
    signal_group(first, signal.SIGSTOP)
    try:
        feed.send(topic, [{"id": number} for number in range(5)])
        eventually(lambda: count() == 15)
    finally:
        signal_group(first, signal.SIGCONT)
    environment.sql("ALTER CLUSTER default SET (REPLICAS 1)")
    eventually(lambda: R2 not in environment.fleet.children)
    feed.send(topic, [{"id": number} for number in range(5)])
    eventually(lambda: count() == 20)
    eventually(lambda: set(replicas(environment, "default")) == {"r1"})
