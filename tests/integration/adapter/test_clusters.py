"""Clusters in an environment: more replicas on request, and answers whatever ends."""

import signal
from collections.abc import Mapping
from functools import partial

import pytest

from streams.app.environment import Environment
from streams.app.replica_fleet import ReplicaPlace
from streams.errors import InvalidStatement
from streams.kafka.embedded import EmbeddedBroker
from tests.integration.adapter.support import eventually, raw_topic, topics
from tests.integration.replica.json_producer import Feed
from tests.support.processes import signal_group

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

R2 = ReplicaPlace("default", 2)
AWAY = ReplicaPlace("away", 1, "local[1]")


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


def test_views_go_on_over_other_buckets(
    environment: Environment, broker: EmbeddedBroker
) -> None:
    topic, feed = raw_topic(broker.bootstrap, 1), Feed(broker.bootstrap)
    environment.sql(f"CREATE SOURCE parts FROM KAFKA (TOPIC '{topic}') (id BIGINT) FORMAT JSON")
    environment.sql("CREATE CLUSTER narrow (MASTER 'local[1]', BUCKETS 2)")
    query = "SELECT id % 100 AS k, count(*) AS n FROM parts GROUP BY k"
    environment.sql(f"CREATE MATERIALIZED VIEW by_part IN CLUSTER narrow AS {query}")

    def is_each(count: int) -> bool:
        text = "SELECT count(*), min(n), max(n) FROM by_part"
        return environment.sql(text)[0].rows == ((100, count, count),)

    for count in (10, 20):
        feed.send(topic, [{"id": number} for number in range(1000)])
        eventually(partial(is_each, count))
    environment.sql("ALTER CLUSTER narrow SET (BUCKETS 8)")
    feed.send(topic, [{"id": number} for number in range(1000)])
    eventually(partial(is_each, 30))
    log = environment.settings.directory / "logs" / "replica-narrow-r1.log"
    assert "state rescaled" in log.read_text()
    environment.sql("DROP MATERIALIZED VIEW by_part; DROP CLUSTER narrow")


def test_a_cluster_maintains_what_is_in_it_apart(
    environment: Environment, broker: EmbeddedBroker
) -> None:
    topic, feed = raw_topic(broker.bootstrap, 1), Feed(broker.bootstrap)
    feed.send(topic, [{"id": number} for number in range(10)])
    environment.sql(f"CREATE SOURCE seen FROM KAFKA (TOPIC '{topic}') (id BIGINT) FORMAT JSON")
    environment.sql("CREATE CLUSTER away (MASTER 'local[1]', BUCKETS 1)")
    view = "CREATE MATERIALIZED VIEW {} IN CLUSTER {} AS SELECT count(*) AS n FROM {}"
    environment.sql(view.format("here", "default", "seen"))
    environment.sql(view.format("there", "away", "seen"))
    environment.sql("CREATE INDEX by_id IN CLUSTER away ON seen (id)")
    environment.sql("CREATE MATERIALIZED VIEW back AS SELECT n + 1 AS n FROM there")
    text = "SELECT h.n, t.n, b.n FROM here h, there t, back b"
    eventually(lambda: environment.sql(text)[0].rows == ((10, 10, 11),))
    eventually(lambda: replicas(environment, "away")["away_r1"]["running"] == 2)
    assert environment.sql("SELECT id FROM seen WHERE id = 7")[0].rows == ((7,),)
    environment.fleet.children[AWAY].kill()
    feed.send(topic, [{"id": number} for number in range(5)])
    eventually(lambda: environment.sql(text)[0].rows == ((15, 15, 16),))
    with pytest.raises(InvalidStatement, match="cluster away cannot be dropped"):
        environment.sql("DROP CLUSTER away")
    environment.sql("DROP MATERIALIZED VIEW back; DROP MATERIALIZED VIEW there")
    environment.sql("DROP INDEX by_id; DROP CLUSTER away")
    eventually(lambda: AWAY not in environment.fleet.children)
    mine = f"{environment.settings.namespace}.compute.away."
    eventually(lambda: not topics(broker.bootstrap, mine))
