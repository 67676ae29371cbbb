"""Rebases: what the statement makes of them, their timeline, and what depends on them."""

import pytest

from connectors.runtime.task import Materialization
from streams.adapter import delays
from streams.adapter.provisioning import relations
from streams.adapter.results import Complete, Notice
from streams.adapter.show import REBASE_COLUMNS
from streams.adapter.timelines import timeline
from streams.app.materialize.catalog_lookup import named
from streams.compute.protocol import Status
from streams.compute.rebasing import FRONTIER
from streams.ids import CollectionId
from streams.progress import frontier
from streams.storage.log.events import Append, Part
from streams.storage.log.outcomes import Appended
from tests.support.coordinators import NOW, ORDERS, Environment
from tests.support.processes import eventually
from tests.support.replica import FakeReplica

S1, S2, R3 = CollectionId("s1"), CollectionId("s2"), CollectionId("r3")
CLICKS = (
    "CREATE SOURCE clicks FROM KAFKA (TOPIC 'orders')"
    " (id BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts) FORMAT JSON"
)
REBASED = "CREATE REBASE rebased OF Clicks"


@pytest.fixture
def both(env: Environment) -> FakeReplica:
    """A replica that knows orders, s1, clicks by event time, s2, and the rebase of it, r3."""
    replica = env.start_replica()
    for statement in (ORDERS, CLICKS, REBASED):
        assert isinstance(env.sql(statement)[-1], Complete), env.sql(statement)
    eventually(lambda: len(replica.created) == 3)
    return replica


def bind(replica: FakeReplica, lower: int, upper: int, bound: int | None, to: int) -> None:
    """Append nothing to the rebase, with the frontier that is bound."""
    replica.shards.open("r3")
    replica.shards.sync(R3)
    part = Part(
        collection=R3,
        capability=replica.created[2].capability,
        lower=frontier(lower),
        upper=frontier(upper),
        from_offsets={} if bound is None else {FRONTIER: bound},
        to_offsets={FRONTIER: to},
    )
    (outcome,) = replica.shards.submit([("r3", Append((part,)))])
    assert isinstance(outcome, Appended), outcome


def test_the_description_has_one_import_and_its_columns(env, both):
    description, clicks = both.created[2], both.created[1]
    assert (description.export, description.kind, description.plan) == (R3, "rebase", "")
    assert description.columns == clicks.columns
    assert [imported.collection for imported in description.imports] == [S2]
    assert description.as_of == NOW
    hold = description.imports[0].hold
    assert env.coordinator.shards.state(S2).capabilities[hold].frontier == frontier(0)


def test_it_is_described_again_at_a_restart(env, both):
    before = both.created[2]
    env.coordinator.stop()
    env.start()
    catalog = env.coordinator.catalog.state
    assert catalog.items[R3].kind == "rebase"
    assert both.created.count(before) == 1
    assert isinstance(env.sql("CREATE MATERIALIZED VIEW v AS FROM rebased")[-1], Complete)
    eventually(lambda: len(both.created) == 4)


@pytest.mark.parametrize(
    ("statement", "message", "said"),
    [
        (
            "CREATE REBASE r OF orders",
            "orders cannot be rebased: it is already on the timeline of the clock",
            "read orders directly",
        ),
        ("CREATE REBASE r OF rebased", "rebased cannot be rebased", "read rebased directly"),
        ("CREATE REBASE r OF orders.errors", "orders.errors cannot be rebased", "read orders"),
        ("CREATE REBASE r OF click", "click does not exist", "did you mean clicks?"),
        ("CREATE REBASE clicks OF clicks", "source clicks already exists", "another name"),
        ("CREATE REBASE Rebased OF clicks", "rebase rebased already exists", "another name"),
    ],
)
def test_what_cannot_be_rebased_is_refused(env, both, statement, message, said):
    failed = env.fails(statement)
    assert failed.message.startswith(message)
    assert said in failed.hint
    assert len(env.coordinator.catalog.state.items) == 5  # three, and dead letters of two


def test_a_rebase_of_a_sink_is_refused(env, both):
    env.rows("CREATE SINK k FROM rebased INTO KAFKA (TOPIC 'k') KEY (id)")
    assert env.fails("CREATE REBASE r OF k").message == "sink k cannot be read"


def test_a_name_that_is_taken_may_be_left_alone(env, both):
    said, done = env.sql("CREATE REBASE IF NOT EXISTS rebased OF clicks")
    assert said == Notice("rebased already exists and is unchanged")
    assert done == Complete("CREATE REBASE", {"id": "r3"})


def test_the_refusal_of_two_timelines_names_the_way_out(env, both):
    failed = env.fails("SELECT * FROM orders JOIN clicks USING (id)")
    assert failed.hint.startswith("CREATE REBASE name OF clicks, and read that in its place")
    catalog = env.coordinator.catalog.state
    assert timeline(catalog.items[R3], catalog.items) == "wall"
    joined = "CREATE MATERIALIZED VIEW v AS SELECT amount FROM orders JOIN rebased USING (id)"
    assert isinstance(env.sql(joined)[-1], Complete)
    assert "different timelines" in env.fails("SELECT * FROM rebased, clicks").message


def test_dead_letters_and_views_can_be_rebased(env, both):
    env.rows("CREATE MATERIALIZED VIEW ids AS SELECT id FROM clicks")
    for name in ("clicks.errors", "ids"):
        assert isinstance(env.sql(f'CREATE REBASE "of {name}" OF {name}')[-1], Complete)
    eventually(lambda: len(both.created) == 6)
    assert both.created[-1].columns == both.created[3].columns


def test_what_is_read_cannot_be_dropped(env, both):
    env.rows("CREATE MATERIALIZED VIEW v AS FROM rebased")
    assert env.fails("DROP SOURCE clicks").detail == "what depends on it: rebase rebased"
    assert env.fails("DROP REBASE rebased").detail == "what depends on it: materialized view v"
    assert env.fails("DROP SOURCE rebased").hint == "use DROP REBASE rebased"
    for text in ("MATERIALIZED VIEW v", "REBASE rebased", "SOURCE clicks"):
        assert isinstance(env.sql(f"DROP {text}")[-1], Complete)
    eventually(lambda: not env.coordinator.catalog.state.dropped)
    assert both.dropped == ["u4", "r3", "s2"]


def test_show_says_what_it_has(env, both):
    names = [column.name for column in REBASE_COLUMNS]

    def shown() -> dict[str, object]:
        (row,) = env.rows("SHOW REBASES")
        return dict(zip(names, row, strict=True))

    eventually(lambda: shown()["status"] == "hydrating")
    first = shown()
    assert (first["name"], first["id"], first["of"]) == ("rebased", "r3", "clicks")
    assert first["event_time"] is None
    bind(both, NOW, NOW + 1, None, 0)
    eventually(lambda: shown()["status"] == "running")
    assert shown()["event_time"] is None
    bind(both, NOW + 1, NOW + 500, 0, 90_061_001)
    eventually(lambda: shown()["event_time"] == "1970-01-02 01:01:01.001")
    assert shown()["upper"] == NOW + 500
    assert shown()["retains"] == "1 second behind upper (default)"
    env.rows("ALTER REBASE rebased SET (RETAIN HISTORY FOR '2 hours')")
    eventually(lambda: shown()["retains"] == "history for 2 hours")
    assert [row[0] for row in env.rows("SHOW SOURCES")] == ["orders", "clicks"]


def test_explain_says_what_it_is_of(env, both):
    lines = [str(row) for (row,) in env.rows("EXPLAIN SELECT id FROM rebased")]
    (line,) = [line for line in lines if "Get rebased" in line]
    assert line.split("  -- ")[1] == "rebase of clicks: times of the clock; append-only"
    assert "rebase" not in str(env.rows("EXPLAIN SELECT id FROM clicks"))


def test_it_can_be_read_while_its_input_stands_still(env, both):
    """What holds up the input does not hold up the rebase."""
    both.say(Status(S2, "stalled", "the topic is gone"))
    bind(both, NOW, NOW + 1, None, 0)
    catalog = env.coordinator.catalog.state

    def delay(id_: CollectionId) -> object:
        return delays.delay_of(catalog.items[id_], catalog, env.coordinator.observed)

    eventually(lambda: delay(S2) is not None)
    assert delay(R3) is None
    assert env.rows("SELECT * FROM rebased") == []


def test_keys_and_growth_are_those_of_the_input(env, both):
    keyed = CLICKS.replace("clicks", "keyed") + " ENVELOPE UPSERT (KEY (id))"
    for statement in (keyed, "CREATE REBASE latest OF keyed"):
        assert isinstance(env.sql(statement)[-1], Complete), env.sql(statement)
    items = env.coordinator.catalog.state.items
    by_name = relations([items[R3], items[CollectionId("r5")]], items)
    assert (by_name["rebased"].keys, by_name["rebased"].monotone) == ((), True)
    assert (by_name["latest"].keys, by_name["latest"].monotone) == ((("id",),), False)
    assert by_name["latest"].id == "r5"


def test_a_task_in_a_file_has_the_key_of_the_input(env, both):
    keyed = CLICKS.replace("clicks", "keyed") + " ENVELOPE UPSERT (KEY (id))"
    grouped = "CREATE MATERIALIZED VIEW g AS SELECT ts, count(*) AS n FROM clicks GROUP BY ts"
    names = ("latest", "counts", "rebased")
    for statement in (
        keyed,
        grouped,
        "CREATE REBASE latest OF keyed",
        "CREATE REBASE counts OF g",
    ):
        assert isinstance(env.sql(statement)[-1], Complete), env.sql(statement)
    bindings = [{"collection": name, "resource": {}} for name in names]
    task = {"task": "t", "connector": "sqlite", "config": {}, "bindings": bindings}
    bound = named(
        Materialization.model_validate(task), env.broker.logs, env.broker.topics, "sw"
    )
    assert [binding.key for binding in bound.bindings] == [["id"], ["ts"], None]
