"""CLUSTER statements: what they change, and where objects go."""

from dataclasses import replace

import pytest

from streams.adapter import cluster_lifecycle, instances
from streams.adapter.catalog_clusters import ConfigureCluster
from streams.adapter.cluster_status import Observed
from streams.adapter.delays import Delay, delay_of
from streams.adapter.results import Complete, Notice
from streams.adapter.server import families
from streams.compute.controller import command_topic, response_topic
from streams.compute.parameters import DEFAULTS
from streams.compute.protocol import CreateInstance
from streams.compute.replica_responses import SILENCE_S
from streams.errors import Determinate
from streams.http.metrics import exposition
from streams.ids import CollectionId
from tests.support.coordinators import NOW, TOTALS, Environment, with_orders
from tests.support.processes import eventually

IN_C = TOTALS.replace(" AS ", " IN CLUSTER c AS ", 1)
TOPICS = (command_topic("sw", "c"), response_topic("sw", "c"))


def clusters(env: Environment) -> list[list[object]]:
    return env.rows("SHOW CLUSTERS")


def names(env: Environment) -> list[object]:
    return [row[0] for row in clusters(env)]


def has_topics(env: Environment) -> list[bool]:
    return [env.broker.topics.describe(topic) is not None for topic in TOPICS]


def test_the_default_cluster_is_there_and_wants_one_replica(env) -> None:
    assert clusters(env) == [["default", 1, 0, 0, 2, None, None]]


def test_relations_have_the_clusters_and_where_objects_are(env) -> None:
    with_orders(env)
    env.sql("CREATE CLUSTER c (REPLICAS 2, MASTER 'local[1]')")
    env.rows(IN_C)
    rows = env.rows("SELECT name, replicas, live, objects, master FROM slackwater.clusters")
    assert rows == [["default", 1, 1, 1, None], ["c", 2, 0, 1, "local[1]"]]
    located = "SELECT o.name, c.replicas FROM slackwater.objects o JOIN slackwater.clusters c"
    rows = env.rows(f"{located} ON o.cluster = c.name ORDER BY o.name")
    assert rows == [["orders", 1], ["totals", 2]]


def test_metrics_say_which_cluster_lacks_replicas(env) -> None:
    with_orders(env)
    env.sql("CREATE CLUSTER c (REPLICAS 2)")
    text = exposition(families(env.coordinator))
    assert 'slackwater_cluster_replicas{cluster="default"} 1.0\n' in text
    assert 'slackwater_cluster_replicas{cluster="c"} 0.0\n' in text
    assert 'slackwater_cluster_replicas_wanted{cluster="c"} 2.0\n' in text


def test_alter_cluster_changes_what_is_wanted_for_all_coordinators_to_come(env) -> None:
    with_orders(env)
    eventually(lambda: clusters(env)[0][2] == 1)
    done = env.sql("ALTER CLUSTER Default SET (REPLICAS 3)")
    assert done == [Complete("ALTER CLUSTER", {"replicas": 3})]
    assert clusters(env) == [["default", 3, 1, 1, 2, None, None]]
    env.start()
    assert clusters(env)[0][:2] == ["default", 3]


def test_replicas_that_start_divide_their_work_into_the_buckets_of_their_cluster(env) -> None:
    env.rows("CREATE CLUSTER c (BUCKETS 3)")
    assert env.sql("ALTER CLUSTER c SET (BUCKETS 8)") == [
        Complete("ALTER CLUSTER", {"buckets": 8})
    ]
    assert clusters(env)[1][4] == 8
    c = env.start_replica("c")
    eventually(lambda: c.session.instance == CreateInstance("sw", 8))
    env.rows("ALTER CLUSTER c RESET (BUCKETS)")
    assert clusters(env)[1][4] == 2
    env.start()
    successor = env.start_replica("c")
    eventually(lambda: successor.session.instance == CreateInstance("sw", 2))


def test_replicas_go_by_the_parameters_of_their_cluster_at_once_and_later_ones_too(env) -> None:
    env.rows("CREATE CLUSTER c (REPLICAS 1)")
    default, c = env.start_replica(), env.start_replica("c")
    eventually(lambda: c.session.parameters == DEFAULTS)
    eventually(lambda: default.session.parameters == DEFAULTS)
    done = env.sql("ALTER CLUSTER C SET (HEARTBEAT_MS 1000, max_result_bytes = 2048)")
    assert done == [Complete("ALTER CLUSTER", {})]
    ours = replace(DEFAULTS, heartbeat_ms=1000, max_result_bytes=2048)
    eventually(lambda: c.session.parameters == ours)
    assert clusters(env)[1][-1] == "heartbeat_ms 1000, max_result_bytes 2048"
    env.start()
    assert clusters(env)[1][-1] == "heartbeat_ms 1000, max_result_bytes 2048"
    successor = env.start_replica("c")
    eventually(lambda: successor.session.parameters == ours)
    env.rows("ALTER CLUSTER c RESET (heartbeat_ms); ALTER CLUSTER c SET (REPLICAS 2)")
    eventually(lambda: successor.session.parameters == replace(ours, heartbeat_ms=2000))
    assert [row[1::5] for row in clusters(env)] == [[1, None], [2, "max_result_bytes 2048"]]
    assert default.session.parameters == DEFAULTS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "SET (size 2)",
            "expected a parameter of frontiers_ms, heartbeat_ms, max_read_bytes,"
            " max_result_bytes, max_unacknowledged_bytes, actual size",
        ),
        ("SET (heartbeat_ms 1)", "parameter heartbeat_ms: expected 1000 to 4000, actual 1"),
        ("SET (REPLICAS 2, heartbeat_ms 1)", "parameter heartbeat_ms: expected 1000 to 4000"),
        ("RESET (replicas)", "expected a parameter of frontiers_ms, "),
    ],
)
def test_a_parameter_that_cannot_be_changes_nothing(env, change, message) -> None:
    assert env.fails(f"ALTER CLUSTER default {change}").message.startswith(message)
    assert clusters(env) == [["default", 1, 0, 0, 2, None, None]]


def test_stored_parameters_of_another_version_are_moved_into_bounds(env) -> None:
    """Else none of the objects in the cluster would run until somebody repairs the catalog."""
    env.rows("CREATE CLUSTER c (REPLICAS 1)")
    stored = ConfigureCluster("c", {"heartbeat_ms": 1, "of_another_version": 7})
    env.coordinator.catalog.change(lambda _: stored)
    env.start()
    c = env.start_replica("c")
    eventually(lambda: c.session.parameters == replace(DEFAULTS, heartbeat_ms=1000))


@pytest.mark.parametrize(
    "text",
    [
        "ALTER CLUSTER c SET (REPLICAS 2)",
        "ALTER CLUSTER c SET (heartbeat_ms 1000)",
        "DROP CLUSTER c",
        IN_C,
        "CREATE INDEX i IN CLUSTER c ON orders (id)",
    ],
)
def test_a_cluster_that_is_not_there_is_told_with_those_that_are(env, text) -> None:
    with_orders(env)
    failed = env.fails(text)
    assert failed.message == "cluster c does not exist"
    assert failed.detail == "clusters are default"


def test_objects_run_in_their_cluster_alone_and_read_across(env) -> None:
    default = with_orders(env)
    assert env.sql("CREATE CLUSTER C (REPLICAS 2, MASTER 'local[1]', BUCKETS 3)") == [
        Complete("CREATE CLUSTER")
    ]
    env.rows(IN_C)
    env.rows("CREATE INDEX i IN CLUSTER c ON totals (id)")
    env.rows("CREATE MATERIALIZED VIEW top AS SELECT max(total) AS m FROM totals")
    c = env.start_replica("c")
    eventually(lambda: [flow.export for flow in c.created] == ["u2", "i3"])
    eventually(lambda: [flow.export for flow in default.created] == ["s1", "u4"])
    assert c.session.instance is not None
    assert c.session.instance.buckets == 3
    eventually(lambda: clusters(env)[1][2] == 1)
    assert clusters(env) == [
        ["default", 1, 1, 2, 2, None, None],
        ["c", 2, 1, 2, 3, "local[1]", None],
    ]
    assert [row[0] for row in env.rows("SHOW CLUSTER REPLICAS")] == ["default", "c"]
    assert [row[-1] for row in env.rows("SHOW MATERIALIZED VIEWS")] == ["c", "default"]
    assert [row[-1] for row in env.rows("SHOW INDEXES")] == ["c"]
    default.append("s1", NOW + 10, [((1, 2.0), NOW + 1, 1)])
    c.append("u2", NOW + 10, [((1, 2.0), NOW + 1, 1)])
    assert env.rows("SELECT total FROM totals") == [[2.0]]


def test_what_is_in_a_cluster_keeps_it_and_is_named(env) -> None:
    with_orders(env)
    env.rows(f"CREATE CLUSTER c (REPLICAS 1); {IN_C}")
    env.rows("CREATE INDEX i IN CLUSTER c ON orders (id)")
    failed = env.fails("DROP CLUSTER C")
    assert failed.message == "cluster c cannot be dropped"
    assert failed.detail == "what is in it: materialized view totals, index i"
    assert env.fails("DROP CLUSTER default").message == "cluster default cannot be dropped"
    assert env.fails("CREATE CLUSTER c (REPLICAS 1)").message == "cluster c already exists"
    (notice, _) = env.sql("CREATE CLUSTER IF NOT EXISTS c (REPLICAS 4)")
    assert notice == Notice("cluster c already exists and is unchanged")
    (notice, _) = env.sql("DROP CLUSTER IF EXISTS d")
    assert notice == Notice("cluster d does not exist")
    assert names(env) == ["default", "c"]


def test_a_dropped_cluster_is_forgotten_with_its_topics_when_its_replicas_are_gone(
    env, beats, monkeypatch
) -> None:
    monkeypatch.setattr(cluster_lifecycle, "PATIENCE_S", 1000.0)
    with_orders(env)
    env.rows(f"CREATE CLUSTER c (REPLICAS 1); {IN_C}")
    c = env.start_replica("c")
    eventually(lambda: len(c.created) == 1)
    env.rows("DROP MATERIALIZED VIEW totals; DROP CLUSTER c")
    assert names(env) == ["default"]
    eventually(lambda: not env.coordinator.catalog.state.dropped)
    beats(5)
    assert env.fails("CREATE CLUSTER c (REPLICAS 1)").message == "cluster c is being dropped"
    assert has_topics(env) == [True, True]
    c.stop()
    monkeypatch.setattr(cluster_lifecycle, "PATIENCE_S", 0.0)
    eventually(lambda: "c" not in env.coordinator.catalog.state.clusters.ending)
    assert has_topics(env) == [False, False]
    env.rows("CREATE CLUSTER c (REPLICAS 1)")
    assert has_topics(env) == [True, True]


def test_a_dropped_cluster_without_replicas_keeps_nothing_of_its_objects(
    env, monkeypatch
) -> None:
    with_orders(env)
    env.rows(f"CREATE CLUSTER c (REPLICAS 1); {IN_C}; DROP MATERIALIZED VIEW totals")
    env.rows("DROP CLUSTER c")
    controller = env.coordinator.instances.of("c")
    clock = controller._clock
    monkeypatch.setattr(controller, "_clock", lambda: clock() + SILENCE_S)
    eventually(lambda: not env.coordinator.catalog.state.dropped)
    eventually(lambda: not env.coordinator.catalog.state.clusters.ending)
    held = env.coordinator.shards.state(CollectionId("s1")).capabilities
    assert not [name for name in held if "u2" in name]


def test_a_successor_has_all_clusters_and_their_objects(env) -> None:
    with_orders(env)
    env.rows(f"CREATE CLUSTER c (REPLICAS 2); {IN_C}")
    env.start()
    c = env.start_replica("c")
    eventually(lambda: [flow.export for flow in c.created] == ["u2"])
    eventually(lambda: clusters(env)[1][:4] == ["c", 2, 1, 1])


def test_a_cluster_whose_topics_cannot_be_made_yet_is_made_later(env, monkeypatch) -> None:
    with_orders(env)
    create = env.broker.topics.create

    def refuse(specs) -> None:
        if any(spec.name in TOPICS for spec in specs):
            raise Determinate("no broker answers")
        create(specs)

    with monkeypatch.context() as patched:
        patched.setattr(env.broker.topics, "create", refuse)
        env.rows("CREATE CLUSTER c (REPLICAS 1)")
        env.sql(IN_C)
        (row,) = env.rows("SHOW MATERIALIZED VIEWS")
        assert "cluster c is being created" in row
    eventually(lambda: has_topics(env) == [True, True])
    c = env.start_replica("c")
    eventually(lambda: [flow.export for flow in c.created] == ["u2"])


def test_a_read_says_which_cluster_has_no_replica(env, monkeypatch) -> None:
    with_orders(env)
    env.rows(f"CREATE CLUSTER c (REPLICAS 1); {IN_C}")
    catalog = env.coordinator.catalog.state
    item = catalog.find("totals")
    assert item is not None
    deserted = env.coordinator.instances.of("c").observed
    away = replace(deserted, now=deserted.since + SILENCE_S)
    clusters = {**env.coordinator.observed.clusters, "c": away}
    delay = delay_of(item, catalog, Observed(clusters))
    assert delay == Delay("no replica runs in cluster c", has_failed=False)


def test_responses_are_read_on_after_an_internal_error(env, monkeypatch) -> None:
    monkeypatch.setattr(instances, "PAUSE_S", 0.01)
    controller = env.coordinator.instances.of("default")
    poll, raised = controller.poll, list[int]()

    def failing_once(wait_ms: int) -> None:
        if not raised:
            raised.append(wait_ms)
            raise RuntimeError("a defect")
        poll(wait_ms)

    monkeypatch.setattr(controller, "poll", failing_once)
    eventually(lambda: bool(raised))
    with_orders(env)
    eventually(lambda: clusters(env)[0][2] == 1)  # what it answers is read
