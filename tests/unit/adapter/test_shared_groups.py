"""Views of a cluster share groups: where they are made, found, and deleted."""

from dataclasses import dataclass

import pytest

from streams.adapter.shared_groups import SPAN, group_for, is_alone, may_enter
from streams.errors import InvalidUsage
from streams.ids import CollectionId
from streams.storage.client.catalog_ids import CATALOG_ID
from streams.storage.client.id_registry import Directory
from tests.support.coordinators import NOW, TOTALS, Environment, with_orders
from tests.support.processes import eventually

U2, U3 = CollectionId("u2"), CollectionId("u3")
OTHER = TOTALS.replace("totals", "other")


@dataclass(frozen=True)
class Object:
    number: int
    shared_group: str
    cluster: str = "default"


VIEW, OWN, ELSEWHERE = Object(5, "g3"), Object(6, ""), Object(9, "g9", "reports")


@pytest.mark.parametrize(
    ("number", "cluster", "live", "group"),
    [
        (7, "default", [], "g7"),
        (7, "default", [OWN], "g7"),
        (10, "default", [VIEW, OWN, ELSEWHERE], "g3"),
        (10, "reports", [VIEW, OWN, ELSEWHERE], "g9"),
        (3 + SPAN - 1, "default", [VIEW], "g3"),
        (3 + SPAN, "default", [VIEW], f"g{3 + SPAN}"),
        (300, "default", [VIEW, Object(290, "g290")], "g290"),
    ],
)
def test_a_view_is_in_the_latest_group_of_its_cluster_while_that_has_room(
    number: int, cluster: str, live: list[Object], group: str
) -> None:
    assert group_for(number, cluster, live) == group
    assert may_enter(Object(number, group, cluster), live)
    assert CATALOG_ID.fullmatch(group), "no client's"


def test_no_object_enters_a_group_without_a_live_view_of_its_cluster() -> None:
    assert not may_enter(Object(7, "g3"), [OWN, ELSEWHERE])
    assert not may_enter(Object(10, "g9"), [VIEW, ELSEWHERE])
    assert not may_enter(Object(10, "storage.ids"), [VIEW, OWN])
    assert may_enter(Object(10, "g3"), [VIEW])


def test_an_object_has_a_group_to_itself() -> None:
    assert is_alone(OWN, [OWN, VIEW])
    assert is_alone(VIEW, [VIEW, OWN, ELSEWHERE])
    assert not is_alone(VIEW, [VIEW, Object(7, "g3")])


def topics(env: Environment) -> set[str]:
    """The logs of objects, by the names of their groups."""
    names = [name.removesuffix(".log") for name in env.broker.topics.names()]
    groups = {name.removeprefix("sw.") for name in names}
    return {group for group in groups if CATALOG_ID.fullmatch(group)}


def test_views_share_a_group_unless_they_ask_for_topics_of_their_own(env: Environment) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    env.rows(TOTALS)
    env.rows(OTHER)
    env.rows(TOTALS.replace("totals", "alone OWN TOPIC"))
    assert topics(env) == {"s1", "g2", "u4"}
    eventually(lambda: len(replica.created) == 4)
    groups = {flow.export: flow.group for flow in replica.created}
    assert groups == {"s1": "s1", "u2": "g2", "u3": "g2", "u4": "u4"}
    replica.append("u2", NOW + 10, [((1, 1.0), NOW + 9, 1)])
    replica.append("u3", NOW + 10, [((2, 2.0), NOW + 9, 1)])
    assert env.rows("SELECT * FROM totals, other") == [[1, 1.0, 2, 2.0]]


def test_views_over_views_name_the_groups_of_their_inputs(env: Environment) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    env.rows(TOTALS)
    query = "SELECT t.id FROM totals t, orders o WHERE t.id = o.id"
    env.rows(f"CREATE MATERIALIZED VIEW more AS {query}")
    eventually(lambda: len(replica.created) == 3)
    (more,) = [flow for flow in replica.created if flow.export == U3]
    assert {read.collection: read.group for read in more.imports} == {"s1": "s1", "u2": "g2"}


def test_a_client_that_knows_the_id_alone_finds_the_group(env: Environment) -> None:
    with_orders(env)
    env.rows(TOTALS)
    directory = Directory(env.stranger())
    state = directory.find(U2)
    assert state is not None
    assert directory.shards.group_of(U2) == "g2"
    assert directory.claimant(U2) == "g2"


def test_a_dropped_view_leaves_the_others_of_its_group(env: Environment) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    env.rows(TOTALS)
    env.rows(OTHER)
    eventually(lambda: len(replica.created) == 3)
    replica.append("u3", NOW + 10, [((2, 2.0), NOW + 9, 1)])
    env.rows("DROP MATERIALIZED VIEW totals")
    eventually(lambda: not env.coordinator.catalog.state.dropped)
    assert topics(env) == {"s1", "g2"}
    assert env.rows("SELECT * FROM other") == [[2, 2.0]]
    for shards in (env.coordinator.shards, env.stranger()):
        state = Directory(shards).find(U2)
        assert state is not None
        assert state.is_dropped
    env.rows("DROP MATERIALIZED VIEW other")
    eventually(lambda: topics(env) == {"s1"})
    gone = Directory(env.stranger()).find(U3)
    assert gone is not None
    assert gone.is_dropped


def test_a_view_begins_a_group_after_the_last_one_of_the_other_was_dropped(
    env: Environment,
) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    env.rows(TOTALS)
    eventually(lambda: len(replica.created) == 2)
    env.rows("DROP MATERIALIZED VIEW totals")
    env.rows(OTHER)
    eventually(lambda: topics(env) == {"s1", "g3"})


def test_a_cluster_has_groups_of_its_own(env: Environment) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    env.rows(TOTALS)
    env.rows("CREATE CLUSTER reports (REPLICAS 1)")
    env.rows(TOTALS.replace("totals", "other IN CLUSTER reports"))
    env.rows(TOTALS.replace("totals", "third"))
    assert topics(env) == {"s1", "g2", "g3"}
    items = env.coordinator.catalog.state.items
    assert {id_: items[CollectionId(id_)].group for id_ in ("u2", "u3", "u4")} == {
        "u2": "g2",
        "u3": "g3",
        "u4": "g2",
    }


def test_the_next_coordinator_knows_the_groups(env: Environment) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    env.rows(TOTALS)
    eventually(lambda: len(replica.created) == 2)
    replica.append("u2", NOW + 10, [((1, 1.0), NOW + 9, 1)])
    env.start()
    assert env.rows("SELECT * FROM totals") == [[1, 1.0]]
    env.rows(OTHER)
    assert topics(env) == {"s1", "g2"}


def test_the_log_of_a_group_that_is_begun_is_no_other_catalogs(env: Environment) -> None:
    with_orders(env)
    env.stranger().make("g2")
    failed = env.fails(TOTALS)
    assert failed.message == "id u2 of the new object is taken: topic sw.g2.log exists"
    assert "sw.g2.log and sw.g2.data" in str(failed.hint)


def test_an_id_that_another_catalog_gave_away_is_refused(env: Environment) -> None:
    with_orders(env)
    directory = Directory(env.stranger())
    directory.give(U2, "g1")
    directory.give(U2, "g1")
    with pytest.raises(InvalidUsage, match="id u2 is to be in group g2, but was given away"):
        directory.give(U2, "g2")
    directory.retire("g1", [U2])
    with pytest.raises(InvalidUsage, match="but was given away before, by another catalog"):
        directory.give(U2, "g1")
