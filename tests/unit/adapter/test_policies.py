"""How much history is kept: by policies of statements, by clocks, and never past a hold."""

import itertools
from collections.abc import Callable

import pytest

from streams.adapter.results import Complete, Failed
from streams.ids import CapabilityId, CollectionId
from streams.progress import frontier
from streams.storage import policy
from streams.storage.log.events import Downgrade
from streams.storage.log.persistent_map import Map
from tests.support.coordinators import NOW, ORDERS, Environment, since, with_orders
from tests.support.processes import eventually

HOUR_MS = 3_600_000

Walk = Callable[[Map[object, object]], object]
"""A method that looks at all entries of a map."""


def test_history_is_let_go_but_not_under_a_reader(env, beats) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10, [((1, 1.0), NOW, 1)])
    stream = env.coordinator.execute("SUBSCRIBE orders")
    list(itertools.islice(stream, 3))
    replica.append("s1", NOW + 50_000)
    beats()
    assert env.rows("SHOW SOURCES")[0][2] <= NOW + 9
    stream.close()
    eventually(lambda: env.rows("SHOW SOURCES")[0][2] == NOW + 49_999 - 1000)


def test_a_view_keeps_as_much_history_as_its_statement_says(env) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    results = env.sql(
        "CREATE MATERIALIZED VIEW v WITH (LAG BEHIND UPPER '10 seconds') AS"
        " SELECT id FROM orders"
    )
    assert isinstance(results[-1], Complete)
    [shown] = env.rows("SHOW MATERIALIZED VIEWS")
    assert shown[7] == "10 seconds behind upper"
    assert env.rows("SHOW SOURCES")[0][7] == "1 second behind upper (default)"
    eventually(lambda: len(replica.created) == 2)
    replica.append("u2", NOW + 50_000)
    eventually(lambda: since(env, "u2") == NOW + 39_999)
    env.sql("ALTER MATERIALIZED VIEW v SET (LAG BEHIND UPPER '2 s')")
    eventually(lambda: since(env, "u2") == NOW + 47_999)
    env.sql("ALTER MATERIALIZED VIEW v RESET (RETAIN HISTORY)")
    eventually(lambda: since(env, "u2") == NOW + 48_999)


def test_history_may_be_kept_by_the_clock(env, beats) -> None:
    """Then it goes whether or not anything happens, but for the newest time."""
    replica = with_orders(env)
    env.sql("ALTER SOURCE orders SET (RETAIN HISTORY FOR '1 hour')")
    assert env.rows("SHOW SOURCES")[0][7] == "history for 1 hour"
    replica.append("s1", NOW + 50_000)
    beats()
    assert since(env) == NOW  # all of it is younger
    env.start()  # the policy is in the catalog
    assert env.rows("SHOW SOURCES")[0][7] == "history for 1 hour"
    env.now = env.brokers_now = NOW + 3_600_000 + 20_000
    eventually(lambda: since(env) == NOW)
    env.sql("ALTER SOURCE orders SET (RETAIN HISTORY FOR '1 minute')")
    eventually(lambda: since(env) == NOW + 49_999)


@pytest.mark.parametrize("ahead", ["ours", "the broker's"])
def test_history_is_kept_while_one_of_two_clocks_says_so(
    env, beats, monkeypatch, ahead
) -> None:
    """What went does not come back: a clock that is hours ahead takes nothing."""
    monkeypatch.setattr("streams.adapter.retention.ASK_EVERY_S", 0.2)
    replica = with_orders(env)
    env.sql("ALTER SOURCE orders SET (RETAIN HISTORY FOR '1 hour')")
    replica.append("s1", NOW + 2 * HOUR_MS)
    later = NOW + 6 * HOUR_MS
    if ahead == "ours":
        env.now = later
    else:
        env.brokers_now = later
    beats(10)
    assert since(env) == NOW
    env.now = env.brokers_now = later
    eventually(lambda: since(env) == NOW + 2 * HOUR_MS - 1)


def test_a_clock_that_is_ahead_does_not_fill_the_log(env, beats) -> None:
    replica = with_orders(env)
    env.sql("ALTER SOURCE orders SET (RETAIN HISTORY FOR '1 hour')")
    replica.append("s1", NOW + 2 * HOUR_MS)
    env.coordinator.shards.sync()  # else what the replica wrote may count as well
    before = env.coordinator.shards.group_state("s1").upto
    env.now = NOW + 6 * HOUR_MS
    eventually(lambda: env.coordinator.shards.group_state("s1").upto > before)
    beats(10)
    assert env.coordinator.shards.group_state("s1").upto == before + 1


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("ALTER SOURCE nothing SET (RETAIN HISTORY FOR '1 h')", "nothing does not exist"),
        (
            "ALTER MATERIALIZED VIEW orders SET (RETAIN HISTORY FOR '1 h')",
            "orders is not a materialized view but a source",
        ),
        ("ALTER SOURCE orders SET (RETAIN HISTORY FOR '1 fortnight')", "expected a duration"),
        ("ALTER SOURCE orders SET (RETAIN HISTORY FOR 5)", "expected a duration in quotes"),
        ("ALTER SINK orders SET (RETAIN HISTORY FOR '1 h')", "expected SOURCE"),
        (
            "ALTER SOURCE orders SET (TOPIC 'x')",
            "expected RETAIN HISTORY, LAG BEHIND, ON ERROR or",
        ),
    ],
)
def test_a_policy_that_cannot_be_is_refused(env, statement: str, message: str) -> None:
    with_orders(env)
    [answer] = env.sql(statement)
    assert isinstance(answer, Failed)
    assert message in answer.message


def let_go(env: Environment, to: int) -> None:
    """What `slackwater compact --since` does to the catalog's hold, from outside."""
    hold = CapabilityId("s1.catalog")
    moved = Downgrade(collection=CollectionId("s1"), capability=hold, frontier=frontier(to))
    env.coordinator.shards.submit([("s1", moved)])


def test_a_user_who_lets_history_go_does_not_pass_a_read_in_progress(env, beats) -> None:
    replica = with_orders(env)
    env.sql("ALTER SOURCE orders SET (RETAIN HISTORY FOR '1 hour')")
    replica.append("s1", NOW + 10, [((1, 1.0), NOW, 1)])
    stream = env.coordinator.execute(f"SUBSCRIBE orders AS OF {NOW + 3}")
    list(itertools.islice(stream, 2))
    let_go(env, NOW + 9)
    beats()
    assert since(env) == NOW + 3
    stream.close()
    eventually(lambda: since(env) == NOW + 9)
    assert env.rows(f"SELECT id FROM orders AS OF {NOW + 9}") == [[1]]


def rests(looked: list[str], beats: Callable[[int], None]) -> bool:
    """Whether nothing is looked at for six beats; what was before is forgotten."""
    looked.clear()
    beats(6)
    return not looked


def test_a_collection_that_stands_still_costs_a_beat_nothing(env, beats, monkeypatch) -> None:
    looked: list[str] = []

    def downgrade(state, *more):
        looked.append(state.id)
        return policy.downgrade(state, *more)

    monkeypatch.setattr("streams.adapter.retention.downgrade", downgrade)
    replica = with_orders(env)
    env.rows("CREATE MATERIALIZED VIEW v AS SELECT id FROM orders")
    eventually(lambda: len(replica.created) == 2)
    replica.append("s1", NOW + 10)
    eventually(lambda: rests(looked, beats))
    replica.append("u2", NOW + 50_000)
    eventually(lambda: since(env, "u2") == NOW + 48_999)
    assert set(looked) == {"u2"}


def test_a_new_object_makes_no_other_looked_at(env, beats, monkeypatch) -> None:
    looked: list[str] = []

    def downgrade(state, *more):
        looked.append(state.id)
        return policy.downgrade(state, *more)

    with_orders(env)
    monkeypatch.setattr("streams.adapter.retention.downgrade", downgrade)
    env.sql("ALTER SOURCE orders SET (RETAIN HISTORY FOR '1 hour')")
    eventually(lambda: rests(looked, beats))
    env.sql(ORDERS.replace("SOURCE orders", "SOURCE others"))
    eventually(lambda: {"s2", "e2"} <= set(looked))
    assert set(looked) == {"s2", "e2"}
    env.sql("ALTER SOURCE orders SET (RETAIN HISTORY FOR '1 minute')")
    eventually(lambda: "s1" in looked)


@pytest.mark.parametrize("sources", [1, 40])
def test_a_beat_looks_through_no_catalog_that_stands_still(
    env, beats, monkeypatch, sources
) -> None:
    """What a beat looks at does not grow with the sources that nobody changed."""
    columns = "(id BIGINT, amount DOUBLE) FORMAT JSON ON ERROR INLINE"
    for number in range(sources):
        env.sql(f"CREATE SOURCE o{number} FROM KAFKA (TOPIC 'orders') {columns}")
    looked = [0]

    def watched(method: Walk) -> Walk:
        def looked_through(self: Map[object, object]) -> object:
            looked[0] += len(self)
            return method(self)

        return looked_through

    for name in ("__iter__", "keys", "values", "items"):
        monkeypatch.setattr(Map, name, watched(getattr(Map, name)))
    beats()  # what was just made is looked at once more
    looked[0] = 0
    beats(5)
    assert looked[0] == 0
    env.coordinator.catalog.state.items.values()
    assert looked[0] == sources, "it would have been counted"
