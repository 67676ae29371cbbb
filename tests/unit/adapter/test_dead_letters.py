"""Dead letters of a source: an object of the catalog that comes and goes with the source."""

import pytest

from streams.adapter.results import Complete
from streams.adapter.server import status
from streams.compute import binding, dead_letters
from streams.compute.binding import Fact
from streams.compute.description import Start
from streams.compute.protocol import Status
from streams.ids import CollectionId, Offset, Topic
from streams.kafka.log import ChunkRef
from streams.plan.sql.materializations import CreateMaterialization
from streams.plan.sql.statements import parse
from streams.progress import frontier
from streams.storage.log.events import Append, Part, write_capability
from streams.storage.log.outcomes import Appended
from tests.support.coordinators import NOW, Environment
from tests.support.processes import eventually
from tests.support.replica import FakeReplica
from tests.unit.adapter.test_resume_source import bind

S1, E1 = CollectionId("s1"), CollectionId("e1")
SOURCE = "CREATE SOURCE orders FROM KAFKA (TOPIC 'orders') (id BIGINT) FORMAT JSON{}"


def created(env: Environment, clauses: str = "") -> FakeReplica:
    """A replica that knows the source."""
    replica = env.start_replica()
    assert isinstance(env.sql(SOURCE.format(clauses))[-1], Complete)
    eventually(lambda: bool(replica.created))
    return replica


def append(
    env: Environment, replica: FakeReplica, letters: int, offsets: dict[int, int]
) -> None:
    """What a replica appends for a source of which so many messages were bad."""
    replica.shards.open(S1)
    replica.shards.sync(S1)
    state = replica.shards.state(S1)
    bounds = state.upper, frontier(state.upper.time + 1)
    part = Part(
        collection=S1,
        capability=write_capability(S1),
        lower=bounds[0],
        upper=bounds[1],
        from_offsets=state.source or {},
        to_offsets=offsets,
    )
    chunk = ChunkRef(0, Offset(0), "k", 0, letters, 10)
    own = Part(
        collection=E1,
        capability=write_capability(E1),
        lower=bounds[0],
        upper=bounds[1],
        chunks=(chunk,) if letters else (),
    )
    (outcome,) = replica.shards.submit([("s1", Append((part, own)))])
    assert isinstance(outcome, Appended)
    env.coordinator.shards.sync(S1)


def columns(env: Environment, query: str) -> list[str]:
    view = f"CREATE MATERIALIZED VIEW v AS {query}"
    assert isinstance(env.sql(view)[-1], Complete), env.sql(view)
    item = env.coordinator.catalog.state.find("v")
    assert item is not None
    return [column.name for column in item.columns]


@pytest.mark.parametrize(
    ("clauses", "on_error"),
    [
        ("", "dead_letter"),
        (" ENVELOPE NONE ON ERROR DEAD LETTER START FROM EARLIEST", "dead_letter"),
        (" ENVELOPE UPSERT (KEY (id))", "inline"),
        (" ENVELOPE UPSERT (KEY (id)) ON ERROR DEAD LETTER", "dead_letter"),
        (" ON ERROR INLINE", "inline"),
        (" ON ERROR FAIL", "fail"),
        (" ON ERROR SKIP", "skip"),
    ],
)
def test_what_becomes_of_bad_messages_is_in_the_description(env, clauses, on_error):
    source = created(env, clauses).created[-1].source
    assert source is not None
    assert source.on_error == on_error
    assert source.dead_letters == (E1 if on_error == "dead_letter" else None)
    errors_view = env.coordinator.catalog.state.find("orders.errors")
    assert (errors_view is not None) == (on_error == "dead_letter")


def test_an_unknown_word_is_refused(env):
    env.start_replica()
    failed = env.fails(SOURCE.format(" ON ERROR IGNORE"))
    assert "expected DEAD LETTER, INLINE, FAIL or SKIP, actual IGNORE" in failed.message


def test_they_are_in_the_group_of_their_source_and_begin_with_it(env):
    created(env)
    shards = env.coordinator.shards
    assert shards.group_of(E1) == "s1"
    assert shards.state(E1).since == shards.state(S1).since
    assert [item.name for item in env.coordinator.catalog.state.ordered()] == [
        "orders",
        "orders.errors",
    ]


def test_a_view_reads_them_by_their_name(env):
    replica = created(env)
    shown = columns(env, "SELECT e.*, orders.id FROM orders . ERRORS e JOIN orders ON true")
    assert shown[:-1] == [column.name for column in dead_letters.COLUMNS]
    eventually(lambda: len(replica.created) == 2)
    read = {imported.collection: imported.group for imported in replica.created[-1].imports}
    assert read == {S1: "s1", E1: "s1"}
    failed = env.fails("DROP SOURCE orders")
    assert failed.message == "source orders cannot be dropped"


@pytest.mark.parametrize(
    "query",
    [
        'SELECT errors.reason FROM "orders".errors',
        "SELECT /* é */ reason FROM (FROM orders.errors) WHERE reason > 'é orders.errors'",
        "WITH orders AS (SELECT 1 AS errors) SELECT reason FROM orders, orders.errors e",
    ],
)
def test_a_name_with_a_dot_is_read_wherever_a_relation_is(env, query):
    created(env)
    assert columns(env, query)[-1] == "reason"


def test_a_schema_that_is_no_source_is_refused_as_before(env):
    created(env)
    assert "does not exist" in env.fails("SELECT * FROM others.errors").message
    assert "does not exist" in env.fails("SELECT * FROM orders.others").message


def test_sinks_and_subscriptions_take_the_name(env):
    created(env)
    sink = "CREATE SINK dlq FROM orders.errors INTO KAFKA (TOPIC 'dlq') KEY (partition)"
    assert isinstance(env.sql(sink)[-1], Complete)
    item = env.coordinator.catalog.state.find("dlq")
    assert item is not None
    assert item.inputs == (E1,)
    assert env.fails("DROP SOURCE orders").message == "source orders cannot be dropped"


def number(env: Environment) -> object:
    """The number of dead letters of the one source, as /status has it."""
    objects = status(env.coordinator)["objects"]
    assert isinstance(objects, list)
    return objects[0]["letters"]


def test_their_number_is_in_show_and_status(env):
    replica = created(env)
    assert number(env) is None
    append(env, replica, 0, {0: 1})
    assert (env.rows("SHOW SOURCES")[0][6], number(env)) == ("", 0)
    append(env, replica, 3, {0: 9})
    assert [row[6] for row in env.rows("SHOW SOURCES")] == ["3 dead letters in orders.errors"]
    assert number(env) == 3


def test_by_event_time_their_number_is_known_before_there_is_a_row(env):
    replica = env.start_replica()
    timed = SOURCE.replace("BIGINT", "BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts", 1)
    assert isinstance(env.sql(timed.format(""))[-1], Complete)
    eventually(lambda: bool(replica.created))
    assert number(env) is None
    letters = Part(
        collection=E1,
        capability=write_capability(E1),
        lower=frontier(0),
        upper=frontier(1),
        chunks=(ChunkRef(0, Offset(0), "k", 0, 2, 10),),
    )
    replica.shards.open(S1)
    (outcome,) = replica.shards.submit([("s1", Append((letters,)))])
    assert isinstance(outcome, Appended)
    env.coordinator.shards.sync(S1)
    assert env.coordinator.shards.state(S1).upper == frontier(0)
    assert number(env) == 2


@pytest.mark.parametrize(
    ("clauses", "shown"),
    [
        ("ON ERROR SKIP", (None, 5)),
        ("WITH (LATE ROWS PLACE)", (8, 5)),
        ("ON ERROR SKIP WITH (LATE ROWS PLACE)", (8, 5)),
        ("ON ERROR FAIL", (None, 5)),
    ],
)
def test_show_and_status_have_what_the_binding_counts(env, clauses, shown):
    """Also what was skipped before ALTER SOURCE said something else."""
    replica = env.start_replica()
    text = SOURCE.format(f" {clauses}")
    if "LATE" in clauses:
        text = text.replace("BIGINT", "BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts", 1)
    assert isinstance(env.sql(text)[-1], Complete)
    eventually(lambda: bool(replica.created))
    replica.shards.open(S1)
    replica.shards.sync(S1)
    bound = binding.counted({0: 30, 1: 30}, 0, {0: 3, 1: 5}, Fact.LATE)
    bound = binding.counted(bound, 0, {1: 5}, Fact.SKIPPED)
    upper = replica.shards.state(S1).upper
    part = Part(
        collection=S1,
        capability=write_capability(S1),
        lower=upper,
        upper=frontier(upper.time + 1),
        from_offsets={},
        to_offsets=bound,
    )
    (outcome,) = replica.shards.submit([("s1", Append((part,)))])
    assert isinstance(outcome, Appended)
    env.coordinator.shards.sync(S1)
    assert tuple(env.rows("SHOW SOURCES")[0][-3:-1]) == shown
    objects = status(env.coordinator)["objects"]
    assert isinstance(objects, list)
    assert [(source["late"], source["skipped"]) for source in objects] == [shown]


def test_they_go_with_their_source(env):
    replica = created(env)
    assert isinstance(env.sql("DROP SOURCE orders")[-1], Complete)
    eventually(lambda: replica.dropped == [S1])
    eventually(lambda: not env.coordinator.catalog.state.dropped)
    assert env.coordinator.catalog.state.items == {}
    assert isinstance(env.sql(SOURCE.format(""))[-1], Complete)
    assert env.coordinator.catalog.state.find("orders.errors") is not None


def test_a_name_that_is_taken_is_refused(env):
    env.start_replica()
    env.sql('CREATE MATERIALIZED VIEW "orders.errors" AS SELECT 1 AS a')
    assert "orders.errors already exists" in env.fails(SOURCE.format("")).message


def test_a_read_policy_is_theirs_too(env):
    created(env, " WITH (RETAIN HISTORY FOR '1 day')")
    env.sql("ALTER SOURCE orders SET (RETAIN HISTORY FOR '2 days')")
    items = env.coordinator.catalog.state.items
    assert items[E1].policy == items[S1].policy


def test_another_coordinator_has_them(env):
    created(env)
    columns(env, "SELECT count(*) AS n FROM orders.errors")
    env.start()
    assert env.coordinator.catalog.state.find("orders.errors") is not None
    assert env.coordinator.shards.group_of(E1) == "s1"
    assert [row[4] for row in env.rows("SHOW SOURCES")] != ["failed"]


def test_a_materialization_binds_them_by_their_name(env):
    statement = (
        "CREATE MATERIALIZATION shop INTO SQLITE (PATH 'a.db') BIND orders.errors (TABLE 'bad')"
    )
    (parsed,) = parse(statement)
    assert isinstance(parsed, CreateMaterialization)
    assert [binding.relation for binding in parsed.bindings] == ["orders.errors"]


def test_before_all_up_to_a_bad_message_is_read_it_cannot_be_passed(env):
    """What lies between would be skipped."""
    replica = created(env, " ON ERROR FAIL")
    for _ in range(5):
        env.broker.store.partition(Topic("orders"), 0).append(NOW, None, b"{", {})
    bind(env, replica, {0: 2})
    at = "cannot decode message: topic orders, partition 0, offset {}: x"
    replica.say(Status(S1, "stalled", at.format(4)))
    eventually(lambda: env.rows("SHOW SOURCES")[0][6] == at.format(4))
    resume = "ALTER SOURCE orders RESUME FROM OFFSETS (0 => 5)"
    assert env.fails(resume).message == "source orders is not stalled"
    bind(env, replica, {0: 4})
    assert isinstance(env.sql(resume)[-1], Complete)


def test_a_message_at_which_a_source_stops_may_be_passed(env):
    replica = created(env, " ON ERROR FAIL")
    env.broker.store.partition(Topic("orders"), 0).append(NOW, None, b"{", {})
    replica.say(
        Status(S1, "stalled", "cannot decode message: topic orders, partition 0, offset 0: x")
    )
    resume = "ALTER SOURCE orders RESUME FROM OFFSETS (0 => 1)"
    eventually(lambda: isinstance(env.sql(resume)[-1], Complete))
    item = env.coordinator.catalog.state.items[S1]
    assert item.source is not None
    assert item.source.start == Start(1, ((0, 1),))
