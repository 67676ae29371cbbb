"""ALTER SOURCE ... SET (ON ERROR ..., ERROR LIMIT ...): the catalog, the description, SHOW."""

import pytest

from streams.adapter.results import Complete
from streams.compute import binding
from streams.compute.binding import Fact
from streams.compute.description import IngestionDescription
from streams.compute.protocol import Status
from streams.compute.stalls import OVER_LIMIT
from streams.ids import CollectionId
from streams.plan.metadata import ErrorLimit
from tests.support.coordinators import Environment, Killed
from tests.support.processes import eventually
from tests.support.replica import FakeReplica
from tests.unit.adapter.test_dead_letters import SOURCE, created
from tests.unit.adapter.test_resume_source import bind

S1, E1 = CollectionId("s1"), CollectionId("e1")


def described(replica: FakeReplica, count: int) -> IngestionDescription:
    """The description of the source once it was sent so often."""
    eventually(lambda: len(replica.created) == count)
    source = replica.created[-1].source
    assert source is not None
    return source


def alter(env: Environment, options: str) -> None:
    done = env.sql(f"ALTER SOURCE orders SET ({options})")[-1]
    assert isinstance(done, Complete), done


def test_a_limit_is_in_the_description(env):
    replica = created(env, " ON ERROR SKIP WITH (ERROR LIMIT '1 %')")
    source = described(replica, 1)
    assert source.error_limit == ErrorLimit(millionths=10_000)
    assert source.revision == 0


def test_dead_letters_are_made_when_they_are_wanted_and_stay(env):
    replica = created(env, " ON ERROR SKIP")
    assert env.coordinator.catalog.state.find("orders.errors") is None
    alter(env, "ON ERROR DEAD LETTER")
    source = described(replica, 2)
    assert (source.on_error, source.dead_letters, source.revision) == ("dead_letter", E1, 1)
    replica.shards.open("s1")
    assert E1 in replica.shards.group_state("s1").collections
    alter(env, "ON ERROR SKIP")
    source = described(replica, 3)
    assert (source.on_error, source.dead_letters, source.revision) == ("skip", E1, 2)
    assert env.coordinator.catalog.state.find("orders.errors") is not None


def test_a_limit_begins_with_the_counts_there_are(env):
    replica = created(env, " WITH (ERROR LIMIT 2)")
    bound = binding.counted({0: 9}, 0, {0: 2}, Fact.REFUSED)
    bind(env, replica, binding.counted(bound, 0, {0: 9}, Fact.MESSAGES))
    detail = "ON ERROR DEAD LETTER, ERROR LIMIT 2: 2 of 9 messages could not be decoded"
    assert env.rows("SHOW SOURCES")[0][6] == detail
    alter(env, "ERROR LIMIT 3")
    source = described(replica, 2)
    assert source.error_limit == ErrorLimit(number=3, refused_before=2, messages_before=9)
    assert source.on_error == "dead_letter"
    assert "ERROR LIMIT 3: 0 of 0 messages" in str(env.rows("SHOW SOURCES")[0][6])
    alter(env, "ERROR LIMIT NONE")
    assert described(replica, 3).error_limit is None
    assert env.rows("SHOW SOURCES")[0][6] == "ON ERROR DEAD LETTER"


def test_a_source_at_its_limit_does_not_resume_elsewhere(env):
    replica = created(env, " WITH (ERROR LIMIT 2)")
    replica.say(Status(S1, "stalled", f"{OVER_LIMIT}x"))
    eventually(lambda: env.rows("SHOW SOURCES")[0][6] == f"{OVER_LIMIT}x")
    failed = env.fails("ALTER SOURCE orders RESUME FROM LATEST")
    assert failed.message == "source orders is stopped by its ERROR LIMIT, not by its topic"


def test_a_coordinator_that_dies_has_altered_it(env):
    replica = created(env, " ON ERROR SKIP")
    env.dying_at = "after-catalog-errors"
    with pytest.raises(Killed):
        env.sql("ALTER SOURCE orders SET (ON ERROR DEAD LETTER, ERROR LIMIT 7)")
    env.dying_at = ""
    env.start()
    source = described(replica, 2)
    assert (source.on_error, source.dead_letters) == ("dead_letter", E1)
    assert source.error_limit == ErrorLimit(number=7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "ON ERROR FAIL, ERROR LIMIT 1",
            "ERROR LIMIT 1 with ON ERROR FAIL, which stops at the first bad message",
        ),
        ("ON ERROR DEAD LETTER", "materialized view orders.errors already exists"),
    ],
)
def test_what_cannot_be_is_refused(env, options, message):
    created(env, " ON ERROR SKIP")
    env.sql('CREATE MATERIALIZED VIEW "orders.errors" AS SELECT 1 AS a')
    assert env.fails(f"ALTER SOURCE orders SET ({options})").message == message


@pytest.mark.parametrize("statement", ["DROP SOURCE", "ALTER SOURCE", "DROP MATERIALIZED VIEW"])
def test_dead_letters_go_with_their_source(env, statement):
    created(env)
    verb = statement.split()[0]
    rest = " SET (RETAIN HISTORY FOR '1 hour')" if verb == "ALTER" else ""
    failed = env.fails(f'{statement} "orders.errors"{rest}')
    assert "but a collection of dead letters" in failed.message
    assert failed.hint == f"it comes and goes with its source: {verb} SOURCE orders"


def test_a_new_source_says_that_its_dead_letters_have_no_name(env):
    env.start_replica()
    env.sql('CREATE MATERIALIZED VIEW "orders.errors" AS SELECT 1 AS a')
    failed = env.fails(SOURCE.format(""))
    assert failed.message == "materialized view orders.errors already exists"
    assert failed.detail == "dead letters of the source orders would have that name"
    assert "SKIP" in failed.hint
    env.sql(SOURCE.format(" ON ERROR SKIP"))
    assert env.fails(SOURCE.format("")).message == "source orders already exists"


def test_sources_alone_read_messages(env):
    env.start_replica()
    env.sql("CREATE MATERIALIZED VIEW v AS SELECT 1 AS a")
    failed = env.fails("ALTER SOURCE v SET (ON ERROR SKIP)")
    assert failed.message == "v is not a source but a materialized view"
    assert env.fails("ALTER SOURCE x SET (ON ERROR SKIP)").message == "x does not exist"
