"""Statements against a coordinator over a broker in memory, with a replica without Spark."""

import itertools
import threading
import time

import pytest

from streams.adapter.results import Columns, Complete, Failed, Progress, Result
from streams.compute.protocol import Hydration, Status
from streams.ids import CollectionId, Topic
from streams.progress import EMPTY
from streams.storage import Storage
from streams.storage.client.lifecycle import NotBound
from tests.support.coordinators import NOW, ORDERS, SINK, TOTALS, rows_of, with_orders
from tests.support.processes import eventually


def test_a_source_is_read_at_a_time(env) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10, [((1, 2.5), NOW, 1), ((2, 1.0), NOW + 5, 2)])
    results = env.sql("SELECT id, amount FROM orders ORDER BY id")
    assert results[0] == Columns(results[0].columns)
    assert [(column.name, column.type) for column in results[0].columns] == [
        ("id", "BIGINT"),
        ("amount", "DOUBLE"),
    ]
    assert rows_of(results) == [[1, 2.5], [2, 1.0], [2, 1.0]]
    assert results[-1] == Complete("SELECT 3", {"as_of": NOW + 9})
    assert env.rows(f"SELECT count(*) FROM orders AS OF {NOW}") == [[1]]
    assert env.rows(f"SELECT count(*) FROM orders AS OF {NOW + 5};") == [[3]]


def test_a_read_below_since_is_refused(env) -> None:
    with_orders(env)
    failed = env.fails(f"SELECT * FROM orders AS OF {NOW - 1}")
    assert failed.message == f"orders cannot be read at {NOW - 1}"
    assert str(NOW) in failed.detail


def test_a_read_waits_until_its_time_is_final(env) -> None:
    replica = with_orders(env)
    answers: list[list[list[object]]] = []
    reader = threading.Thread(
        target=lambda: answers.append(env.rows(f"SELECT * FROM orders AS OF {NOW + 7}"))
    )
    reader.start()
    replica.append("s1", NOW + 7, [((1, 1.0), NOW, 1)])
    time.sleep(0.1)
    assert not answers
    replica.append("s1", NOW + 8, [((1, 1.0), NOW + 7, -1), ((3, 3.0), NOW + 7, 1)])
    reader.join(60)
    assert answers == [[[3, 3.0]]]


def test_a_view_is_born_at_the_greatest_time_its_inputs_share(env) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    assert env.sql(TOTALS)[-1] == Complete("CREATE MATERIALIZED VIEW", {"id": "u2"})
    eventually(lambda: len(replica.created) == 2)
    description = replica.created[1]
    assert description.as_of == NOW + 9
    assert [imported.collection for imported in description.imports] == ["s1"]
    state = env.coordinator.shards.state(CollectionId("s1"))
    hold = description.holds[CollectionId("s1")]
    assert state.capabilities[hold].frontier.time <= NOW + 9
    replica.append("u2", NOW + 10, [((1, 4.0), NOW + 9, 1)])
    assert env.rows("SELECT t.total, o.id FROM totals t LEFT JOIN orders o USING (id)") == [
        [4.0, None]
    ]


def test_a_read_sees_the_types_that_a_view_declares(env) -> None:
    """Values of an enum are in the enum's order, not in the alphabet's; a tuple is a tuple."""
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    env.rows(
        "CREATE MATERIALIZED VIEW v AS"
        " SELECT (if(id = 1, 'z', 'a'))::ENUM('z', 'a') AS e, row(id, 'x') AS \"t \"\"\","
        " [(if(id = 1, 'z', 'a'))::ENUM('z', 'a')] AS l FROM orders"
    )
    eventually(lambda: len(replica.created) == 2)
    replica.append("u2", NOW + 10)
    tuples = [{"element1": number, "element2": "x"} for number in (1, 2)]
    assert env.rows("SELECT e, l FROM v") == []
    updates = [(("z", tuples[0], ["z"]), NOW + 10, 1), (("a", tuples[1], []), NOW + 10, 1)]
    replica.append("u2", NOW + 11, updates)
    assert env.rows("SELECT * FROM v ORDER BY e") == [
        ["z", "(1, x)", ["z"]],
        ["a", "(2, x)", []],
    ]
    assert env.rows("SELECT l FROM v WHERE e > 'z'::ENUM('z', 'a')") == [[[]]]
    query = 'SELECT max(e), typeof(max(e)), typeof(any_value("t """)) FROM v'
    assert env.rows(query) == [["a", "ENUM('z', 'a')", "TUPLE(BIGINT, VARCHAR)"]]


def test_a_view_of_booleans_in_a_list_can_be_read_when_it_is_empty(env) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    env.rows(
        "CREATE MATERIALIZED VIEW v AS SELECT [id > 1] AS l, {'j': [id::JSON]} AS s FROM orders"
    )
    eventually(lambda: len(replica.created) == 2)
    replica.append("u2", NOW + 10)
    assert env.rows("SELECT count(*) FROM v") == [[0]]
    assert env.rows("SELECT * FROM v") == []


def test_what_cannot_be_shown_is_refused(env) -> None:
    failed = env.fails("SELECT 1::VARIANT AS v")
    assert failed.message == "column v of type VARIANT is not supported in a materialized view"
    assert env.rows("SELECT 1::VARIANT::VARCHAR") == [["1"]]


def test_what_is_depended_on_cannot_be_dropped(env) -> None:
    with_orders(env)
    env.rows(TOTALS)
    env.rows(SINK)
    failed = env.fails("DROP SOURCE orders")
    assert failed.message == "source orders cannot be dropped"
    assert failed.detail == "what depends on it: materialized view totals"
    assert (
        env.fails("DROP SOURCE totals").message
        == "totals is not a source but a materialized view"
    )


def test_a_sink_has_a_topic_of_as_many_partitions_as_it_says(env) -> None:
    replica = with_orders(env)
    env.rows("CREATE SINK k FROM orders INTO KAFKA (TOPIC 'many', PARTITIONS 8) KEY (id)")
    env.rows("CREATE SINK l FROM orders INTO KAFKA (TOPIC 'one') KEY (id)")
    created = {name: env.broker.topics.describe(Topic(name)) for name in ("many", "one")}
    assert {name: info and info.partitions for name, info in created.items()} == {
        "many": 8,
        "one": 1,
    }
    eventually(lambda: len(replica.created) == 3)
    sinks = [flow.sink for flow in replica.created if flow.sink is not None]
    assert [sink.partitions for sink in sinks] == [8, 1]


def test_a_drop_removes_everything_but_the_number(env) -> None:
    replica = with_orders(env)
    env.rows(TOTALS)
    eventually(lambda: len(replica.created) == 2)
    env.rows("DROP MATERIALIZED VIEW totals")
    assert env.rows("SHOW MATERIALIZED VIEWS") == []
    assert "does not exist" in env.fails("SUBSCRIBE totals").message
    eventually(lambda: not env.coordinator.catalog.state.dropped)
    assert not [name for name in env.broker.topics.names() if ".g2." in name]
    capabilities = env.coordinator.shards.state(CollectionId("s1")).capabilities
    assert not [capability for capability in capabilities if capability.startswith("u2")]
    with Storage.memory(env.broker) as fresh:
        acquired = fresh.acquire_capabilities(CollectionId("u2"))
        assert [capability.frontier for capability in acquired] == [EMPTY, EMPTY]
        with pytest.raises(NotBound):
            fresh.acquire_capabilities(CollectionId("u3"))
    assert env.sql(TOTALS)[-1] == Complete("CREATE MATERIALIZED VIEW", {"id": "u3"})


def test_a_subscription_gives_the_contents_and_then_every_change(env) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10, [((1, 1.0), NOW, 1)])
    results: list[Result] = []
    stream = env.coordinator.execute("SUBSCRIBE orders")
    results.extend(itertools.islice(stream, 3))
    assert isinstance(results[0], Columns)
    names = [column.name for column in results[0].columns]
    assert names == ["slackwater_time", "slackwater_diff", "id", "amount"]
    assert rows_of(results) == [[NOW + 9, 1, 1, 1.0]]
    assert isinstance(results[2], Progress)
    assert results[2].frontier.time == NOW + 10
    replica.append("s1", NOW + 20, [((2, 2.0), NOW + 15, 1), ((1, 1.0), NOW + 12, -1)])
    while len(rows_of(results)) < 3:
        results.append(next(stream))
    assert rows_of(results)[1:] == [[NOW + 12, -1, 1, 1.0], [NOW + 15, 1, 2, 2.0]]
    last = next(stream)
    assert isinstance(last, Progress)
    assert last.frontier.time == NOW + 20
    stream.close()


def test_a_subscription_of_a_sealed_object_has_its_last_changes_and_ends(env) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10, [((1, 1.0), NOW, 1)])
    stream = env.coordinator.execute("SUBSCRIBE orders")
    results = list(itertools.islice(stream, 3))
    replica.append("s1", None, [((2, 2.0), NOW + 15, 1)])
    results += stream
    assert rows_of(results)[1:] == [[NOW + 15, 1, 2, 2.0]]
    assert results[-2:] == [Progress(EMPTY), Complete("SUBSCRIBE")]


WRONG, OTHER = "orders/0@7: not JSON", "orders/0@8: not JSON"


@pytest.mark.parametrize("cuts", [[], [NOW + 16], [NOW + 17], [NOW + 16, NOW + 17, NOW + 19]])
@pytest.mark.parametrize("heals", [True, False])
def test_a_subscription_ends_at_the_first_error_however_intervals_are_cut(
    env, cuts, heals
) -> None:
    """A key's message is bad at 16 and written again at 19: at 17 there is no telling."""
    updates = [((2, 2.0), NOW + 15, 1), ((1, 1.0), NOW + 16, -1), ((1, 3.0), NOW + 19, 1)]
    errors = [(WRONG, NOW + 16, 1), (OTHER, NOW + 18, 1), (OTHER, NOW + 18, -1)]
    errors += [(WRONG, NOW + 19, -1)] if heals else []
    replica = with_orders(env)
    replica.append("s1", NOW + 10, [((1, 1.0), NOW, 1)])
    stream = env.coordinator.execute("SUBSCRIBE orders")
    results = list(itertools.islice(stream, 3))
    lower = NOW + 10
    for upper in [*cuts, None]:
        replica.append(
            "s1",
            upper,
            [update for update in updates if lower <= update[1] < (upper or NOW + 20)],
            [error for error in errors if lower <= error[1] < (upper or NOW + 20)],
        )
        lower = upper or lower
    results += stream
    assert rows_of(results)[1:] == [[NOW + 15, 1, 2, 2.0]]
    last = [result for result in results if isinstance(result, Progress)][-1]
    assert last.frontier.time == NOW + 16
    failed = results[-1]
    assert isinstance(failed, Failed)
    assert (failed.message, failed.detail) == (f"orders holds an error at {NOW + 16}", WRONG)


def test_errors_that_come_and_go_at_one_time_are_no_errors(env) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10, [((1, 1.0), NOW, 1)])
    stream = env.coordinator.execute("SUBSCRIBE orders")
    results = list(itertools.islice(stream, 3))
    replica.append(
        "s1", None, [((2, 2.0), NOW + 15, 1)], [(WRONG, NOW + 12, 1), (WRONG, NOW + 12, -1)]
    )
    results += stream
    assert rows_of(results)[1:] == [[NOW + 15, 1, 2, 2.0]]
    assert results[-1] == Complete("SUBSCRIBE")


@pytest.mark.parametrize("far", ["dropped", "deleted"])
def test_a_subscription_of_a_dropped_object_fails(env, far) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10, [((1, 1.0), NOW, 1)])
    stream = env.coordinator.execute("SUBSCRIBE orders")
    results = list(itertools.islice(stream, 3))
    if far == "dropped":
        replica.shards.drop(CollectionId("s1"))
    else:
        env.rows("DROP SOURCE orders")
        eventually(lambda: not env.coordinator.catalog.state.dropped)
    results += stream
    assert isinstance(results[-1], Failed)
    assert (results[-1].message, results[-1].detail) == (
        "orders can no longer be read",
        "it was dropped",
    )
    assert Progress(EMPTY) not in results


def test_a_read_that_waits_for_an_object_fails_when_it_is_dropped(env) -> None:
    with_orders(env)
    stream = env.coordinator.execute(f"SELECT * FROM orders AS OF {NOW + 100}")
    assert isinstance(next(stream), Progress)
    env.rows("DROP SOURCE orders")
    assert "dropped" in next(result.detail for result in stream if isinstance(result, Failed))


def test_an_error_in_a_collection_fails_its_reads_until_it_is_retracted(env) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 5, [((1, 1.0), NOW, 1)], [("orders/0@7: not JSON", NOW + 3, 1)])
    failed = env.fails("SELECT * FROM orders")
    assert failed.message == f"orders holds an error at {NOW + 4}"
    assert failed.detail == "orders/0@7: not JSON"
    assert env.rows(f"SELECT id FROM orders AS OF {NOW + 2}") == [[1]]
    replica.append("s1", NOW + 9, [], [("orders/0@7: not JSON", NOW + 6, -1)])
    assert env.rows("SELECT id FROM orders") == [[1]]


def test_show_tells_frontiers_and_who_is_waited_for(env) -> None:
    assert env.rows(ORDERS) == []
    retention = "1 second behind upper (default)"
    shown = ["orders", "s1", NOW, NOW, "starting", "", "", retention, *[None] * 5]
    assert env.rows("SHOW SOURCES") == [shown]
    replica = env.start_replica()
    eventually(lambda: env.rows("SHOW SOURCES")[0][4] == "hydrating")
    replica.say(Status(CollectionId("s1"), "hydrating", "", "1 of 2 slices"))
    replica.say(Hydration(CollectionId("s1"), 2_000, 3_000))
    eventually(lambda: env.rows("SHOW SOURCES")[0][5] == "2,000 of 3,000 messages")
    replica.say(Status(CollectionId("s1"), "running"))
    replica.append("s1", NOW + 10)
    eventually(lambda: env.rows("SHOW SOURCES")[0][4:6] == ["running", ""])
    env.rows(TOTALS)
    eventually(lambda: len(replica.created) == 2)
    replica.say(Status(CollectionId("u2"), "hydrating", "", "1 of 2 slices"))
    eventually(lambda: env.rows("SHOW MATERIALIZED VIEWS")[0][4] == "hydrating")
    said = ["hydrating", "1 of 2 slices", "", retention]
    row = ["totals", "u2", NOW + 9, NOW + 9, *said, None, "default"]
    assert env.rows("SHOW MATERIALIZED VIEWS") == [row]
    replica.say(Hydration(CollectionId("u2"), 5_000, 9_000))
    shown = ["5,000 of 9,000 rows", "8,000 of 9,000 rows, 3 s left", ""]
    eventually(lambda: env.rows("SHOW MATERIALIZED VIEWS")[0][5] == shown[0])
    replica.say(Hydration(CollectionId("u2"), 8_000, 9_000, 3))
    eventually(lambda: env.rows("SHOW MATERIALIZED VIEWS")[0][5] == shown[1])
    replica.say(Status(CollectionId("u2"), "running"))
    eventually(lambda: env.rows("SHOW MATERIALIZED VIEWS")[0][5] == shown[2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT * FROM nothing", "nothing does not exist"),
        ("SELECT nope FROM orders", 'referenced column "nope" not found'),
        ("SELEC 1", "expected"),
        ("CREATE SOURCE x FROM KAFKA (TOPIC 'missing') (a INT) FORMAT JSON", "topic missing"),
        (
            "CREATE SOURCE x FROM KAFKA (TOPIC 'sw.catalog') (a INT) FORMAT JSON",
            "topic sw.catalog",
        ),
        ("CREATE SOURCE x FROM KAFKA (TOPIC 'orders') (a NOTYPE) FORMAT JSON", "columns"),
        (
            "CREATE SOURCE x FROM KAFKA (TOPIC 'orders') (a INT, b UNION(a INT)) FORMAT JSON",
            "column b of type UNION(a INTEGER) cannot be read from a topic",
        ),
        (
            "CREATE SOURCE x FROM KAFKA (TOPIC 'orders') (a INT[]) FORMAT JSON"
            " ENVELOPE UPSERT (KEY (a))",
            "key column a of type INTEGER[] is not a single value",
        ),
        *(
            (
                f"CREATE SOURCE x FROM KAFKA (TOPIC 'orders') (a INT, b TEXT, c BLOB) {reads}",
                message,
            )
            for reads, message in [
                (
                    "KEY FORMAT TEXT FORMAT JSON",
                    "KEY FORMAT TEXT in a source of ENVELOPE NONE, which reads no keys",
                ),
                (
                    "KEY FORMAT JSON FORMAT JSON INCLUDE KEY",
                    "KEY FORMAT JSON in a source of ENVELOPE NONE, which does not parse keys",
                ),
                (
                    "KEY FORMAT TEXT FORMAT JSON ENVELOPE UPSERT (KEY (a))",
                    "KEY FORMAT TEXT does not fit the key (a INTEGER)",
                ),
                (
                    "KEY FORMAT BYTES FORMAT JSON ENVELOPE UPSERT (KEY (b, c))",
                    "KEY FORMAT BYTES does not fit the key (b VARCHAR, c BLOB)",
                ),
            ]
        ),
        (ORDERS, "source orders already exists"),
        (
            "CREATE SINK k FROM orders INTO KAFKA (TOPIC 'orders') KEY (id)",
            "topic orders already",
        ),
        *(
            (text, f"topic name '{shown}' is not valid")
            for name, shown in [
                ("bad topic name!", "bad topic name!"),
                ("", ""),
                (".", "."),
                ("..", ".."),
                ("ä", "ä"),
                ("x" * 250, "x" * 20 + "... (250 characters)"),
            ]
            for text in (
                f"CREATE SINK k FROM orders INTO KAFKA (TOPIC '{name}') KEY (id)",
                f"CREATE SOURCE x FROM KAFKA (TOPIC '{name}') (a INT) FORMAT JSON",
            )
        ),
        ("CREATE SINK k FROM orders INTO KAFKA (TOPIC 'o') KEY (x)", "column x of orders"),
        *(
            (
                f"CREATE SINK k FROM orders INTO KAFKA (TOPIC 'o', PARTITIONS {number})"
                " KEY (id)",
                f"option PARTITIONS is {shown}",
            )
            for number, shown in [
                ("0", "0"),
                ("1001", "1001"),
                ("many", "many"),
                ("1" * 30, "1" * 20),
                ("''", ""),
            ]
        ),
        (
            "CREATE SINK k FROM orders INTO KAFKA (TOPIC 'o', FORMAT x) KEY (id)",
            "option FORMAT is not known",
        ),
        ("CREATE MATERIALIZED VIEW v AS SELECT now()", ""),
        ("DROP SINK nothing", "nothing does not exist"),
    ],
)
def test_what_cannot_be_is_refused_with_words(env, text, message) -> None:
    with_orders(env)
    version = env.coordinator.catalog.state.version
    assert message in env.fails(text).message
    assert env.coordinator.catalog.state.version == version


def test_an_unknown_name_is_told_the_nearest_of_ours(env) -> None:
    with_orders(env)
    for text in ("SELECT * FROM ordrs", "SUBSCRIBE ordrs", 'SELECT * FROM orders, "Order"'):
        failed = env.fails(text)
        assert failed.detail == "there are orders" or failed.detail.startswith("line 1")
        assert failed.hint == "did you mean orders?"
    assert not env.fails("SELECT * FROM pg_sequenc").hint


def test_if_exists_and_if_not_exists_are_content(env) -> None:
    with_orders(env)
    again = ORDERS.replace("SOURCE", "SOURCE IF NOT EXISTS", 1)
    assert env.sql(again)[-1] == Complete("CREATE SOURCE", {"id": "s1"})
    assert isinstance(env.sql("DROP SINK IF EXISTS nothing")[-1], Complete)


def test_constants_need_no_collection(env) -> None:
    assert env.rows("SELECT 1 AS a, 'x' AS b; SELECT 2") == [[1, "x"], [2]]
    results = env.sql("SELECT 1; SELECT nope; SELECT 2")
    assert isinstance(results[-1], Failed)
    assert rows_of(results) == [[1]]


def test_a_plan_is_shown_as_text_and_as_a_picture(env) -> None:
    with_orders(env)
    rows = [row for (row,) in env.rows("EXPLAIN SELECT id FROM orders")]
    assert any("Get orders [s1]" in str(row) for row in rows)
    results = env.sql("EXPLAIN AS SVG SELECT id FROM orders")
    assert isinstance(results[0], Columns)
    assert [column.type for column in results[0].columns] == ["SVG"]
    [[picture]] = rows_of(results)
    assert str(picture).startswith("<svg")
    assert "Source orders [s1]" in str(picture)
