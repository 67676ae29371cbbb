"""A shared group that is halted, lost or another's: which views suffer, and the ways out."""

import pytest

from streams.adapter.results import Complete
from streams.app.shard.attach import AttachedNamespace
from streams.app.shard.repair import findings
from streams.ids import CollectionId, Offset, Timestamp, Topic
from streams.kafka.memory.records import MemoryRawReader
from streams.storage.client.id_registry import Directory
from streams.storage.client.reserved_names import REGISTRY
from tests.support.coordinators import NOW, TOTALS, Environment, Killed, with_orders
from tests.support.processes import eventually
from tests.support.replica import FakeReplica

U2, U3, U4 = (CollectionId(f"u{number}") for number in (2, 3, 4))
OTHER = TOTALS.replace("totals", "other")
THIRD = TOTALS.replace("totals", "third")
LOG = Topic("sw.g2.log")


def both(env: Environment) -> FakeReplica:
    """Two views in a group."""
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    env.rows(TOTALS)
    env.rows(OTHER)
    eventually(lambda: len(replica.created) == 3)
    replica.append("u2", NOW + 10, [((1, 1.0), NOW + 9, 1)])
    replica.append("u3", NOW + 10, [((2, 2.0), NOW + 9, 1)])
    return replica


def one_over_the_other(env: Environment) -> None:
    """Two views in a group, of which `more` reads `totals`."""
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    env.rows(TOTALS)
    eventually(lambda: len(replica.created) == 2)
    replica.append("u2", NOW + 10)
    env.rows("CREATE MATERIALIZED VIEW more AS SELECT id FROM totals")
    eventually(lambda: len(replica.created) == 3)


def halt(env: Environment) -> None:
    """Somebody writes into the log of the group."""
    env.broker.logs.append([(LOG, b"not one of ours")])
    eventually(lambda: "g2" not in env.coordinator.shards.groups())


def logs(env: Environment) -> set[str]:
    return {name for name in env.broker.topics.names() if name.endswith(".log")}


def test_all_views_of_a_halted_group_can_be_dropped(env: Environment) -> None:
    both(env)
    halt(env)
    env.sql("DROP MATERIALIZED VIEW totals")
    assert list(env.coordinator.catalog.state.dropped) == [U2], "the log may be repaired"
    env.sql("DROP MATERIALIZED VIEW other")
    eventually(lambda: not env.coordinator.catalog.state.dropped)
    assert LOG not in logs(env)


def test_views_that_read_each_other_in_a_halted_group_can_be_dropped(env: Environment) -> None:
    one_over_the_other(env)
    halt(env)
    env.sql("DROP MATERIALIZED VIEW more")
    env.sql("DROP MATERIALIZED VIEW totals")
    eventually(lambda: not env.coordinator.catalog.state.dropped)
    assert LOG not in logs(env)


def test_an_input_is_released_that_is_the_last_live_view_of_its_group(
    env: Environment,
) -> None:
    one_over_the_other(env)
    env.rows("DROP MATERIALIZED VIEW more")
    eventually(lambda: not env.coordinator.catalog.state.dropped)
    capabilities = env.coordinator.shards.state(U2).capabilities
    assert not [name for name in capabilities if name.startswith("u3.")]


def test_a_new_view_avoids_a_group_that_cannot_be_followed(env: Environment) -> None:
    both(env)
    halt(env)
    assert env.sql(THIRD)[-1] == Complete("CREATE MATERIALIZED VIEW", {"id": "u4"})
    assert env.coordinator.catalog.state.items[U4].group == "g4"
    assert env.rows("SHOW MATERIALIZED VIEWS")[2][4] != "failed"


def test_what_was_in_a_lost_group_is_dropped_and_made_again(env: Environment) -> None:
    both(env)
    env.broker.logs.truncate(LOG, Offset(3))
    env.start()
    env.sql("DROP MATERIALIZED VIEW totals")
    eventually(lambda: not env.coordinator.catalog.state.dropped)
    env.rows(TOTALS)
    assert env.coordinator.catalog.state.items[U4].group == "g4"
    eventually(lambda: env.rows("SHOW MATERIALIZED VIEWS")[1][4] != "failed")


def test_a_coordinator_that_starts_makes_deleted_topics_again(env: Environment) -> None:
    both(env)
    env.broker.topics.delete([LOG, Topic("sw.g2.data")])
    env.start()
    directory = Directory(env.stranger())
    states = [directory.find(id_) for id_ in (U2, U3)]
    assert all(state is not None and not state.is_dropped for state in states)


@pytest.mark.parametrize("statement", ["SELECT * FROM totals", "SUBSCRIBE totals"])
def test_a_read_of_a_halted_group_names_it(env: Environment, statement: str) -> None:
    both(env)
    halt(env)
    failed = env.fails(statement)
    assert f"log {LOG}/0@" in failed.detail
    assert "'slackwater shard verify g2 --chunks'" in failed.hint
    assert "'slackwater shard verify g2'" in str(env.rows("SHOW MATERIALIZED VIEWS")[0][6])


def test_a_read_names_a_group_that_was_halted_before_the_start(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    both(env)
    halt(env)
    monkeypatch.setattr("streams.adapter.collection_reads.MADE_MS", 50)
    env.start()
    assert "'slackwater shard verify g2'" in env.fails("SELECT * FROM totals").message


def test_a_group_is_verified_by_the_id_of_a_view(env: Environment) -> None:
    both(env)
    broker = env.broker
    at = AttachedNamespace("sw", env.stranger(), broker.topics, MemoryRawReader(broker.store))
    (finding,) = findings(at, ("u2",), with_chunks=False)
    assert (finding.group, finding.is_sound) == ("g2", True)


def test_a_view_is_refused_whose_id_has_topics(env: Environment) -> None:
    """Of a catalog that is gone, in which it had a group of its own."""
    both(env)
    env.stranger().create("u4", U4, "the old catalog's", Timestamp(5))
    failed = env.fails(THIRD)
    assert failed.message == "id u4 of the new object is taken: topic sw.u4.log exists"
    assert "OWN TOPIC" not in failed.hint


def test_a_view_is_refused_whose_group_is_a_clients(env: Environment) -> None:
    with_orders(env)
    env.stranger().create("g2", CollectionId("mine"), "a client's", Timestamp(5))
    failed = env.fails(TOTALS)
    assert failed.message == "id u2 of the new object is taken: topic sw.g2.log exists"
    assert "a client did, before the name was reserved" in failed.detail
    assert failed.hint.endswith("or create it with OWN TOPIC")
    env.rows(TOTALS.replace("totals", "totals OWN TOPIC"))
    env.rows(OTHER)
    assert logs(env) >= {"sw.g2.log", "sw.u2.log", "sw.g3.log"}


def given_elsewhere(directory: Directory) -> None:
    directory.give(U2, "g1")


def retired(directory: Directory) -> None:
    directory.retire("u2", [U2])


@pytest.mark.parametrize("harm", [given_elsewhere, retired])
def test_a_view_is_refused_whose_id_was_given_away(env: Environment, harm) -> None:
    with_orders(env)
    directory = Directory(env.stranger())
    directory.shards.make(REGISTRY)
    harm(directory)
    failed = env.fails(TOTALS)
    assert failed.message == "id u2 of the new object is taken: it was given to another one"
    assert failed.hint.endswith("or create it with OWN TOPIC")
    env.rows(TOTALS.replace("totals", "totals OWN TOPIC"))
    env.rows(OTHER)


def test_a_view_is_refused_whose_id_is_in_the_group(env: Environment) -> None:
    """A catalog was restored that is older than its shards."""
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    env.rows(TOTALS)
    shards = env.stranger()
    shards.open("g2")
    shards.create("g2", U3, "the newer catalog's", Timestamp(5))
    eventually(lambda: U3 in env.coordinator.shards.group_state("g2").collections)
    failed = env.fails(OTHER)
    assert failed.message == "id u3 of the new object is taken: it was given to another one"
    env.rows("DROP MATERIALIZED VIEW totals")
    eventually(lambda: not env.coordinator.catalog.state.dropped)
    assert LOG in logs(env), "it holds what another catalog made"


def test_a_damaged_registry_is_named(env: Environment) -> None:
    both(env)
    log = env.coordinator.shards.names(REGISTRY).log
    env.broker.logs.append([(log, b"not one of ours")])
    failed = env.fails(THIRD)
    assert failed.message == "the registry of ids cannot be read"
    assert failed.hint == (
        "'slackwater shard verify storage.ids' says what is wrong; or create it with OWN TOPIC"
    )
    env.rows(TOTALS.replace("totals", "third OWN TOPIC"))


@pytest.mark.parametrize(
    "point", ["after-holds", "after-birth", "after-shard", "before-command", "after-command"]
)
def test_a_coordinator_may_die_while_a_view_enters_a_group(
    env: Environment, point: str
) -> None:
    both(env)
    env.dying_at = point
    with pytest.raises(Killed):
        env.sql(THIRD)
    env.dying_at = ""
    env.start()
    eventually(lambda: U4 in env.coordinator.shards.group_state("g2").collections)


def test_an_id_is_given_to_a_group_that_exists(env: Environment, monkeypatch) -> None:
    """Else a client that asks for the id would hear that its log is lost."""
    with_orders(env)
    there: list[bool] = []
    give = Directory.give

    def watched(directory: Directory, id_: CollectionId, group: str) -> None:
        there.append(env.broker.topics.describe(LOG) is not None)
        give(directory, id_, group)

    monkeypatch.setattr(Directory, "give", watched)
    env.rows(TOTALS)
    assert there == [True]
