"""CLUSTER statements: what they change in the catalog, and what SHOW says of it."""

from streams.adapter.results import Complete
from tests.support.coordinators import Environment, with_orders
from tests.support.processes import eventually


def clusters(env: Environment) -> list[list[object]]:
    return env.rows("SHOW CLUSTERS")


def test_the_default_cluster_is_there_and_wants_one_replica(env) -> None:
    assert clusters(env) == [["default", 1, 0, 0, 2]]


def test_alter_cluster_changes_what_is_wanted_for_all_coordinators_to_come(env) -> None:
    with_orders(env)
    eventually(lambda: clusters(env)[0][2] == 1)
    done = env.sql("ALTER CLUSTER Default SET (REPLICAS 3)")
    assert done == [Complete("ALTER CLUSTER", {"replicas": 3})]
    assert clusters(env) == [["default", 3, 1, 1, 2]]
    env.start()
    assert clusters(env)[0][:2] == ["default", 3]


def test_a_cluster_that_is_not_there_is_told_with_those_that_are(env) -> None:
    failed = env.fails("ALTER CLUSTER c SET (REPLICAS 2)")
    assert failed.message == "cluster c does not exist"
    assert failed.detail == "clusters are default"
