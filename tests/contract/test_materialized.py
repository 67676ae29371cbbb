"""A task over collections in memory, in every SQL database that a connector of ours writes."""

import dataclasses
import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectors.protocol.messages import Extensions
from connectors.runtime.lane import EndpointDrifted
from connectors.runtime.runner import Runner
from connectors.runtime.task import Materialization
from connectors.transport.errors import ConnectorFailed
from streams.errors import InvalidUsage
from streams.trace.kernel.kernel import Kernel
from tests.support.collections import Collections
from tests.support.endpoints import Endpoint, on_duckdb, on_postgres, on_sqlite

PRICES = (("item", "VARCHAR"), ("price", "BIGINT"))


class Crash(BaseException):
    """The process dies here."""


@pytest.fixture(params=[on_sqlite, on_duckdb, on_postgres])
def endpoint(request: Any, memory_path: Path) -> Endpoint:
    endpoint_: Endpoint = request.param(memory_path, request)
    return endpoint_


@pytest.fixture
def collections() -> Any:
    collections_ = Collections()
    yield collections_
    collections_.close()


def catch_up(
    endpoint: Endpoint,
    collections: Collections,
    bindings: list[dict[str, Any]],
    **more: Any,
) -> None:
    crash = more.pop("crash", lambda _: None)
    task = {
        "task": "shop",
        "connector": "ours",
        "config": endpoint.config,
        "bindings": bindings,
        "limits": {"every_ms": 0, "idle_ms": 0, "rows": 2},
        "shards": more.pop("shards", 1),
    }
    runner = Runner(
        Materialization.model_validate(task),
        endpoint.driver,
        collections.client(),
        now_ms=lambda: 1000,
        stopping=threading.Event(),
        crash=crash,
    )
    runner.run(until_caught_up=True)


@pytest.mark.parametrize("endpoint", [on_sqlite, on_postgres], indirect=True)
def test_a_crash_at_any_commit_loses_and_repeats_nothing(
    endpoint: Endpoint, collections: Collections
) -> None:
    collections.create("u1", PRICES, keys=("item",))
    bindings = [
        {"collection": "u1", "resource": {"table": "prices"}},
        {"collection": "u1", "resource": {"table": "log", "delta_updates": True}},
    ]
    for time in range(11, 20):
        rows = [(f"i{time % 4}", time, time, 1)]
        rows += [(f"i{time % 4}", time - 4, time, -1)] if time > 14 else []
        collections.append("u1", time + 1, rows)
    places = ["before-commit", "in-commit", "after-commit"]
    for number in range(6):
        failures_left = [number // 3]

        def crash(
            at: str, number: int = number, failures_left: list[int] = failures_left
        ) -> None:
            failures_left[0] -= at == places[number % 3]
            if failures_left[0] < 0:
                raise Crash

        with pytest.raises(Crash):
            catch_up(endpoint, collections, bindings, crash=crash)
        ((checkpoint,),) = endpoint.query("SELECT read_through FROM slackwater_checkpoints")
        at = {
            int(source["readThrough"])
            for source in json.loads(checkpoint).get("sources", {}).values()
        }
        assert len(at) < 2, "both tables are at one time"
        total = endpoint.query("SELECT sum(price), count(*) FROM prices")
        logged = "SELECT sum(price * slackwater_diff), sum(slackwater_diff) FROM log"
        assert [tuple(value or 0 for value in row) for row in total] == [
            tuple(int(value or 0) for value in row) for row in endpoint.query(logged)
        ]
    catch_up(endpoint, collections, bindings)
    assert endpoint.query("SELECT item, price FROM prices ORDER BY item") == [
        ("i0", 16),
        ("i1", 17),
        ("i2", 18),
        ("i3", 19),
    ]
    assert endpoint.query("SELECT count(*) FROM log") == [(14,)]


def test_every_database_is_written_in_several_ranges(
    endpoint: Endpoint, collections: Collections
) -> None:
    collections.create("u1", PRICES, keys=("item",))
    bindings = [{"collection": "u1", "resource": {"table": "prices"}}]
    rows: list[Any] = []
    for time, shards in [(11, 3), (12, 2), (13, 1)]:
        deletions = [(item, price, time, -1) for item, price in rows]
        rows = [(f"i{number}", time) for number in range(8)]
        come = [(item, price, time, 1) for item, price in rows]
        collections.append("u1", time + 1, [*deletions, *come])
        catch_up(endpoint, collections, bindings, shards=shards)
        assert endpoint.query("SELECT item, price FROM prices ORDER BY item") == rows
        ranges = endpoint.query("SELECT key_begin FROM slackwater_checkpoints")
        assert len(ranges) == shards


TYPES = {
    "BIGINT": 7,
    "UBIGINT": 2**64 - 1,
    "DOUBLE": 0.5,
    "FLOAT": 0.25,
    "BOOLEAN": True,
    "VARCHAR": "a'b\"c",
    "DECIMAL(18, 3)": None,
    "INTEGER[]": [1, None],
    "STRUCT(a INTEGER, b VARCHAR)": {"a": 1, "b": "x"},
    "BLOB": b"\x00\xff",
}


def test_values_of_all_kinds_arrive(endpoint: Endpoint, collections: Collections) -> None:
    columns = [("id", "BIGINT"), *((f"c {n}", kind) for n, kind in enumerate(TYPES))]
    collections.create("u1", columns, keys=("id",))
    collections.append(
        "u1", 21, [(1, *TYPES.values(), 11, 1), (2, *[None] * len(TYPES), 11, 1)]
    )
    bindings = [{"collection": "u1", "resource": {"table": "t"}}]
    catch_up(endpoint, collections, bindings)
    first, second = endpoint.query("SELECT * FROM t ORDER BY id")
    assert int(first[2]) == 2**64 - 1
    assert tuple(first[3:7]) == (0.5, 0.25, True, "a'b\"c")
    assert first[10] == b"\x00\xff" or bytes(first[10]) == b"\x00\xff"
    assert second[1:-1] == (None,) * len(TYPES)
    collections.append("u1", 31, [(1, *TYPES.values(), 22, -1)])
    catch_up(endpoint, collections, bindings)
    assert endpoint.query("SELECT id FROM t") == [(2,)]


EDGES = {
    "BC date": ("DATE", "0044-03-15 (BC)", "0044-03-15 BC", "-0043-03-15"),
    "1 BC": ("DATE", "0001-12-31 (BC)", "0001-12-31 BC", "0000-12-31"),
    "far date": ("DATE", "12345-01-02", "12345-01-02", "12345-01-02"),
    "date ahead": ("DATE", "infinity", "infinity", "infinity"),
    "date before": ("DATE", "-infinity", "-infinity", "-infinity"),
    "BC": (
        "TIMESTAMP",
        "0044-03-15 (BC) 12:00:00.25",
        "0044-03-15 12:00:00.25+00 BC",
        "-0043-03-15T12:00:00.25Z",
    ),
    "BC zoned": (
        "TIMESTAMP WITH TIME ZONE",
        "0044-03-15 (BC) 12:00:00+00",
        "0044-03-15 12:00:00+00 BC",
        "-0043-03-15T12:00:00Z",
    ),
    "ahead": ("TIMESTAMP", "infinity", "infinity", "infinity"),
    "before": ("TIMESTAMP", "-infinity", "-infinity", "-infinity"),
    "ahead zoned": ("TIMESTAMP WITH TIME ZONE", "infinity", "infinity", "infinity"),
    "nanoseconds": (
        "TIMESTAMP_NS",
        "2026-01-02 03:04:05.123456",
        "2026-01-02 03:04:05.123456+00",
        "2026-01-02T03:04:05.123456Z",
    ),
    "nanoseconds ahead": ("TIMESTAMP_NS", "infinity", "infinity", "infinity"),
}
"""Of a type a value in DuckDB, then as PostgreSQL has it as text, and as SQLite has it."""


def in_duckdb(kind: str, value: str) -> str:
    """A time without a zone is one of UTC there."""
    is_zoned = kind == "DATE" or "infinity" in value or value.endswith("+00")
    return value if is_zoned else f"{value}+00"


def edge_rows(edges: dict[str, Any], time: int, diff: int) -> pa.Table:
    values = ", ".join(f"'{value}'::{kind}" for kind, value, *_ in edges.values())
    return Kernel().query(f"SELECT {values}, {time}::BIGINT, {diff}::BIGINT")


def test_times_at_the_edges_arrive(endpoint: Endpoint, collections: Collections) -> None:
    """As values and as a key, by which the row is found again."""
    columns = [(f"c{place}", kind) for place, (kind, *_) in enumerate(EDGES.values())]
    names = [name for name, _ in columns]
    collections.create("u1", columns, keys=(names[0], names[5]))
    collections.append_table("u1", 21, edge_rows(EDGES, 11, 1))
    bindings = [{"collection": "u1", "resource": {"table": "t"}}]
    catch_up(endpoint, collections, bindings)
    shown = ", ".join(f"CAST({name} AS VARCHAR)" for name in names)
    file = endpoint.config.get("path", "")
    at_utc = "SET TimeZone = 'UTC'; " if file.endswith(".duckdb") else ""
    (row,) = endpoint.query(f"{at_utc}SELECT {shown} FROM t")
    expected = [in_postgres for _, _, in_postgres, _ in EDGES.values()]
    if file.endswith(".duckdb"):
        expected = [in_duckdb(kind, value) for kind, value, _, _ in EDGES.values()]
    elif file:
        expected = [in_sqlite for _, _, _, in_sqlite in EDGES.values()]
    assert dict(zip(EDGES, row, strict=True)) == dict(zip(EDGES, expected, strict=True))
    collections.append_table("u1", 31, edge_rows(EDGES, 22, -1))
    catch_up(endpoint, collections, bindings)
    assert endpoint.query("SELECT * FROM t") == []


NESTED = {
    "DOUBLE[]": ("[nan, -inf, 0.5]", '["NaN","-Infinity",0.5]'),
    "STRUCT(b DECIMAL(38, 4), a VARCHAR)": (
        "{b: 12345678901234567890.1230, a: NaN Infinity}",
        '{"b":12345678901234567890.1230,"a":"NaN Infinity"}',
    ),
}
"""Of each type a value in DuckDB, and its JSON."""


def test_numbers_in_lists_and_structs_arrive(
    endpoint: Endpoint, collections: Collections
) -> None:
    """All digits of them, and those that JSON does not have; they are found again, too."""
    columns = [(f"c{place}", kind) for place, kind in enumerate(NESTED)]
    collections.create("u1", [("id", "BIGINT"), *columns], keys=("id",))
    values = ", ".join(f"$${value}$$::{kind}" for kind, (value, _) in NESTED.items())
    shown = "CAST(c0 AS VARCHAR), CAST(c1 AS VARCHAR), CAST(flow_document AS VARCHAR)"
    expected = [text for _, text in NESTED.values()]
    for time, diff in ((11, 1), (22, -1)):
        rows = Kernel().query(f"SELECT 1::BIGINT, {values}, {time}::BIGINT, {diff}::BIGINT")
        collections.append_table("u1", time + 1, rows)
        catch_up(endpoint, collections, [{"collection": "u1", "resource": {"table": "t"}}])
        for *texts, document in endpoint.query(f"SELECT {shown} FROM t"):
            assert texts == expected
            assert document == f'{{"id":1,"c0":{expected[0]},"c1":{expected[1]}}}'
    assert endpoint.query("SELECT * FROM t") == []


def test_what_is_finer_than_microseconds_is_kept_or_refused_by_name(
    endpoint: Endpoint, collections: Collections
) -> None:
    text = "2026-01-02 03:04:05.123456789"
    collections.create("u1", [("id", "BIGINT"), ("at", "TIMESTAMP_NS")], keys=("id",))
    rows = Kernel().query(f"SELECT 1::BIGINT, '{text}'::TIMESTAMP_NS, 11::BIGINT, 1::BIGINT")
    collections.append_table("u1", 21, rows)
    bindings = [{"collection": "u1", "resource": {"table": "t"}}]
    if endpoint.config.get("path", "").endswith(".db"):
        catch_up(endpoint, collections, bindings)
        assert endpoint.query("SELECT at FROM t") == [(f"{text.replace(' ', 'T')}Z",)]
        return
    expected = "column at: expected at most six digits of a second, actual '2026-01-02T03:04"
    with pytest.raises(ConnectorFailed, match=expected):
        catch_up(endpoint, collections, bindings)


def test_without_deletes_documents_say_that_they_are_gone(
    memory_path: Path, request: Any, collections: Collections
) -> None:
    endpoint = on_sqlite(memory_path, request)
    endpoint.connector = dataclasses.replace(endpoint.connector, extensions=Extensions())
    collections.create("u1", PRICES, keys=("item",))
    bindings = [{"collection": "u1", "resource": {"table": "t"}}]
    states = []
    for time, rows in enumerate(
        [[("a", 1, 11, 1), ("b", 1, 11, 1)], [("a", 1, 12, -1)], [("a", 2, 13, 1)], []], 11
    ):
        collections.append("u1", time + 1, rows)
        catch_up(endpoint, collections, bindings)
        documents = endpoint.query("SELECT flow_document FROM t ORDER BY item")
        parsed = [json.loads(text) for (text,) in documents]
        states.append([(document["price"], document["_meta"]["op"]) for document in parsed])
    assert states == [
        [(1, "c"), (1, "c")],
        [(1, "d"), (1, "c")],
        [(2, "u"), (1, "c")],
        [(2, "u"), (1, "c")],
    ]
    endpoint.query("DELETE FROM t WHERE item = 'a'")
    collections.append("u1", 21, [("a", 2, 15, -1)])
    with pytest.raises(
        EndpointDrifted, match=r't: expected \{"item": "a", "price": 2\}, actual no row'
    ):
        catch_up(endpoint, collections, bindings)


AS_THEY_ARE = {
    "DECIMAL(38, 4)": ("12345678901234567890.1230", "numeric", "12345678901234567890.1230"),
    "HUGEINT": ("-170141183460469231731687303715884105727", "numeric", None),
    "DATE": ("2026-02-28", "date", None),
    "TIME": ("23:59:59.123456", "time with time zone", "23:59:59.123456+00"),
    "TIMESTAMP": (
        "2026-01-02 03:04:05.123456",
        "timestamp with time zone",
        "2026-01-02 03:04:05.123456+00",
    ),
    "TIMESTAMP WITH TIME ZONE": (
        "2026-01-02 03:04:05+01",
        "timestamp with time zone",
        "2026-01-02 02:04:05+00",
    ),
    "INTERVAL": (
        "-1 year 2 days -03:00:00.5",
        "interval",
        "-1 years +2 days -03:00:00.5",
    ),
    "UUID": ("6f1e1a52-0000-4000-8000-000000000001", "uuid", None),
    "INTEGER[]": ("[1, NULL]", "json", "[1,null]"),
    "STRUCT(a DECIMAL(4, 2))": ("{'a': 1.50}", "json", '{"a":1.5}'),
    "MAP(VARCHAR, INTEGER)": ("{x=1}", "json", '{"x":1}'),
    "JSON": ('{"b": [1, 2.50]}', "json", '{"b":[1,2.5]}'),
    "ENUM('x', 'y')": ("y", "text", None),
    "DOUBLE": ("nan", "double precision", "NaN"),
}
"""Of each type a value in DuckDB, the type in PostgreSQL, and the value there if it differs."""


def test_postgres_has_the_types_of_columns_as_they_are(
    memory_path: Path, request: Any, collections: Collections
) -> None:
    endpoint = on_postgres(memory_path, request)
    columns = [(f"c{place}", kind) for place, kind in enumerate(AS_THEY_ARE)]
    collections.create("u1", [("id", "BIGINT"), *columns], keys=("id",))
    values = ", ".join(f"$${value}$$::{kind}" for kind, (value, _, _) in AS_THEY_ARE.items())
    rows = Kernel().query(f"SELECT 1::BIGINT, {values}, 11::BIGINT, 1::BIGINT")
    collections.append_table("u1", 21, rows)
    catch_up(endpoint, collections, [{"collection": "u1", "resource": {"table": "t"}}])
    for place, (kind, (value, type_, expected)) in enumerate(AS_THEY_ARE.items()):
        ((actual_type, actual),) = endpoint.query(
            f"SELECT pg_typeof(c{place})::text, c{place}::text FROM t"
        )
        assert (actual_type, actual) == (type_, expected or value), kind


def test_a_table_is_written_anew_when_its_backfill_is_raised(
    endpoint: Endpoint, collections: Collections
) -> None:
    """The way out of what a table cannot become; the other tables go on where they are."""
    collections.create("u1", PRICES, keys=("item",))
    collections.create("u2", (("price", "VARCHAR"), ("item", "VARCHAR")), keys=("item",))
    collections.append("u1", 21, [("a", 1, 11, 1)])
    collections.append("u2", 21, [("x", "a", 11, 1)])
    log = {"collection": "u1", "resource": {"table": "log", "delta_updates": True}}
    first = {"collection": "u1", "resource": {"table": "t"}}
    catch_up(endpoint, collections, [first, log])
    other = {"collection": "u2", "resource": {"table": "t"}}
    with pytest.raises(InvalidUsage, match="name another"):
        catch_up(endpoint, collections, [other, log])
    collections.append("u1", 31, [("a", 1, 25, -1), ("a", 2, 25, 1)])
    collections.append("u2", 31)
    raised = {"collection": "u2", "resource": {"table": "t", "backfill": 1}}
    for _ in range(2):
        catch_up(endpoint, collections, [raised, log])
        assert endpoint.query("SELECT item, price FROM t") == [("a", "x")]
    assert endpoint.query("SELECT count(*) FROM log") == [(3,)]
    with pytest.raises(ConnectorFailed, match="backfill was 1 and cannot be lower, actual 0"):
        catch_up(endpoint, collections, [other, log])
    turned = {"collection": "u1", "resource": {"table": "log", "backfill": 1}}
    catch_up(endpoint, collections, [raised, turned])
    assert endpoint.query("SELECT item, price FROM log") == [("a", 2)]
