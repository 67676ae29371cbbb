"""The kernel: prepared statements see the table of the moment; types come back as they went."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from streams.trace.kernel import kernel as kernels
from streams.trace.kernel.arrow import empty_table
from streams.trace.kernel.connection import (
    AnswerTooLarge,
    EvaluationFailed,
    KernelFailed,
    StatementRefused,
    translate_error,
)
from streams.trace.kernel.kernel import Kernel, arrow_schema, arrow_type, round_trips
from tests.support.flows import kernel

SCHEMA = pa.schema([("x", pa.int64())])


def test_a_prepared_statement_sees_each_new_table() -> None:
    statement = kernel().prepare("SELECT sum(x)::BIGINT AS s FROM {t}", t=SCHEMA)
    actual = [
        statement.run(pa.table({"x": [n, n]}, schema=SCHEMA))["s"][0].as_py() for n in range(4)
    ]
    assert actual == [0, 2, 4, 6]


def test_equal_statements_are_prepared_once() -> None:
    one = kernel().prepare("SELECT x + 1 AS y FROM {t}", t=SCHEMA)
    assert kernel().prepare("SELECT x + 1 AS y FROM {t}", t=SCHEMA) is one


def test_statements_that_were_not_used_for_long_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernels, "MOST_PREPARED", 3)
    own = Kernel()
    table = pa.table({"x": [1]})
    for n in [0, 1, 2, 3, 4, 1, 0]:
        statement = own.prepare(f"SELECT x + {n} AS y FROM {{t}}", t=SCHEMA)
        assert statement.run(table)["y"].to_pylist() == [1 + n]
    assert len(own._prepared) == 3


def test_long_statements_are_forgotten_by_their_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MOST_TEXT", 100)
    own = Kernel()
    table = pa.table({"x": [1]})
    for n in [0, 1, 2, 1, 0]:
        statement = own.prepare(f"SELECT x + {n} AS y{' ' * 30} FROM {{t}}", t=SCHEMA)
        assert statement.run(table)["y"].to_pylist() == [1 + n]
        assert sum(len(sql) for sql, _ in own._prepared) <= 100
    long = own.prepare(f"SELECT x + 7 AS y{' ' * 200} FROM {{t}}", t=SCHEMA)
    assert long.run(table)["y"].to_pylist() == [8]
    assert len(own._prepared) == 1


def test_a_failing_row_is_told_from_a_wrong_statement() -> None:
    statement = kernel().prepare("SELECT 1 // x AS y FROM {t}", t=SCHEMA)
    with pytest.raises(EvaluationFailed):
        statement.run(pa.table({"x": [0]}))
    assert statement.run(pa.table({"x": [1]}))["y"].to_pylist() == [1]
    with pytest.raises(StatementRefused):
        kernel().prepare("SELECT nothing_of_this_name FROM {t}", t=SCHEMA)


@pytest.mark.parametrize(
    "value",
    [
        "170141183460469231731687303715884105727::HUGEINT",
        "340282366920938463463374607431768211455::UHUGEINT",
        "true",
        "'00000000-0000-0000-0000-0000000000ff'::UUID",
        "'{\"a\": 1}'::JSON",
        "'12:00:00+02'::TIMETZ",
        "INTERVAL '1 month 2 days 3 microseconds'",
        "{'a': [true, NULL]}",
        "'0101'::BIT",
    ],
)
def test_types_come_back_as_they_went(value: str) -> None:
    answer = kernel().query(f"SELECT {value} AS x")
    kind = kernel().query("SELECT typeof(x) AS t FROM t", t=answer)["t"][0].as_py()
    assert kind == kernel().query(f"SELECT typeof({value}) AS t")["t"][0].as_py()
    assert answer.schema.field(0).type == arrow_type(kind)
    same = kernel().query(f"SELECT x = {value} AS same FROM t", t=answer)
    assert same["same"][0].as_py()


def test_what_arrow_cannot_carry_is_known() -> None:
    assert not round_trips("ENUM('a', 'b')")
    assert round_trips("DECIMAL(4,1)")
    assert arrow_type("ENUM('a', 'b')") == pa.string()
    assert arrow_schema(["BOOLEAN"]).field(0).type == pa.bool_()


def test_columns_are_read_as_create_table_reads_them() -> None:
    assert kernel().columns('a BIGINT, "B c" DECIMAL(4, 1)[]') == [
        ("a", "BIGINT"),
        ("B c", "DECIMAL(4,1)[]"),
    ]
    with pytest.raises(StatementRefused):
        kernel().columns("a NO_SUCH_TYPE")


def test_running_out_of_memory_is_no_error_of_the_data() -> None:
    """It must never become an error row: the next attempt may well succeed."""
    small = Kernel("20MB")
    with pytest.raises(KernelFailed):
        small.query("SELECT list(md5(x::VARCHAR) ORDER BY x) AS l FROM range(3000000) AS t(x)")


def test_an_answer_of_bounded_bytes_is_not_computed_to_its_end() -> None:
    kernel = Kernel(most_bytes=1 << 20)
    few = "SELECT i, i > 3 AS b FROM range(9000) t(i)"
    assert kernel.query(few).equals(Kernel().query(few))
    with pytest.raises(AnswerTooLarge, match="at most 1,048,576 bytes"):
        kernel.query("SELECT * FROM range(100000000000)")
    several = pa.table({"n": [1 << 24]})
    with pytest.raises(AnswerTooLarge, match="at most 1,048,576 bytes"):
        kernel.prepare("SELECT unnest(range(n)) FROM {t}", t=several.schema).run(several)
    late = "SELECT (CASE i WHEN 8999 THEN 'x' ELSE '1' END)::INT FROM range(9000) t(i)"
    with pytest.raises(EvaluationFailed, match="Could not convert string 'x'"):
        kernel.query(late)
    with pytest.raises(KernelFailed, match="Out of Memory"):
        kernel.query("SELECT list(i) FROM range(100000000) t(i)")


def test_a_query_reads_columns_as_the_types_it_is_told() -> None:
    table = pa.table({'e "x"': ["a", "z"], "n": [1, 2]})
    types = ["ENUM('z', 'a')", "BIGINT"]
    own = Kernel()
    actual = own.query_as(
        'SELECT max("e ""x""")::VARCHAR AS m FROM "T t"', {"T t": (table, types)}
    )
    assert actual["m"].to_pylist() == ["a"]
    with pytest.raises(StatementRefused):
        own.query('FROM "T t"')


NESTED = [
    "BOOLEAN[]",
    "STRUCT(b BOOLEAN)",
    "MAP(BOOLEAN, UUID)",
    "JSON[]",
    "BIT[2]",
    "HUGEINT[]",
]


@pytest.mark.parametrize("kind", [*NESTED, "ENUM('z', 'a')[]", "STRUCT(e ENUM('z', 'a')[])"])
def test_types_inside_types_make_empty_tables(kind: str) -> None:
    schema = arrow_schema([kind])
    assert empty_table(schema).num_rows == 0
    assert round_trips(kind) == ("ENUM" not in kind)
    assert "dictionary" not in str(schema)


def test_long_statements_draw_no_progress_bar() -> None:
    """DuckDB draws one after two seconds, wherever its output goes: into files as well."""
    shown = kernel().query("SELECT current_setting('enable_progress_bar') AS shown")
    assert shown["shown"].to_pylist() == [False]


def test_threads_ask_for_types_at_once() -> None:
    kinds = [f"DECIMAL({width},{width // 2})[]" for width in range(1, 39)]
    with ThreadPoolExecutor(8) as pool:
        types = list(pool.map(arrow_type, kinds * 4))
    assert types == [arrow_type(kind) for kind in kinds] * 4


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "Europe/Berlin", "America/St_Johns"])
def test_a_type_is_the_same_whatever_the_machines_time_zone(zone: str) -> None:
    program = (
        "from streams.trace.kernel.kernel import arrow_type; print(arrow_type('TIMESTAMPTZ[]'))"
    )
    process = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TZ": zone},
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.strip() == "list<l: timestamp[us, tz=UTC]>"


def test_a_failure_without_a_class_is_of_the_data() -> None:
    rows = pa.table({"x": [[1, 2], []]})
    with pytest.raises(EvaluationFailed, match="list_reduce"):
        kernel().query("SELECT list_reduce(x, lambda a, b: a + b) AS y FROM t", t=rows)


def test_a_failure_whose_text_is_not_utf8_is_of_the_data() -> None:
    """DuckDB quotes one byte of a character of two."""
    rows = pa.table({"x": ["61", "é"]})
    statement = kernel().prepare("SELECT from_hex(x) AS y FROM {t}", t=rows.schema)
    with pytest.raises(EvaluationFailed):
        statement.run(rows)
    with pytest.raises(EvaluationFailed):
        kernel().query_as("SELECT from_hex(x) AS y FROM t", {"t": (rows, ["VARCHAR"])})
    bounded = Kernel(most_bytes=1 << 20)
    with pytest.raises(EvaluationFailed):
        bounded.query_as("SELECT from_hex(x) AS y FROM t", {"t": (rows, ["VARCHAR"])})


LEAST = pa.table({"x": pa.array([-(2**63)], pa.int64())})
"""A BIGINT that is no time."""

BROKEN = pa.table(
    [pa.array(['{"a": 1'])],
    pa.schema([pa.field("j", pa.string(), metadata={"ARROW:extension:name": "arrow.json"})]),
)
"""A JSON column with text that is no JSON."""


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT make_timestamp(x)::VARCHAR AS y FROM t", LEAST),
        ("SELECT age(make_timestamp(x)) AS y FROM t", LEAST),
        ("SELECT json_keys(j) AS y FROM t", BROKEN),
        ("SELECT json_array_length(j) AS y FROM t", BROKEN),
    ],
)
@pytest.mark.parametrize("most_bytes", [1 << 62, 1 << 20], ids=["whole", "taken"])
def test_a_failure_that_duckdb_did_not_expect_is_of_the_data_and_ends_nothing(
    sql: str, rows: pa.Table, most_bytes: int
) -> None:
    engine = Kernel(most_bytes=most_bytes)
    statement = engine.prepare(sql.replace(" t", " {t}"), t=rows.schema)
    earlier = engine.prepare("SELECT x + 1 AS y FROM {t}", t=SCHEMA)
    for _ in range(2):
        with pytest.raises(EvaluationFailed) as failed:
            statement.run(rows)
        assert "Stack" not in str(failed.value)
        assert str(failed.value).startswith(("Date out of range", "Malformed JSON"))
        with pytest.raises(EvaluationFailed):
            engine.query(sql, t=rows)
    assert statement.run(rows.slice(0, 0)).num_rows == 0
    assert earlier.run(pa.table({"x": [1]}, schema=SCHEMA))["y"].to_pylist() == [2]


def test_a_fault_of_duckdb_is_none_of_the_data_and_ends_nothing() -> None:
    fault = duckdb.InternalException("INTERNAL Error: index 0 of 0\n\nStack Trace:\n\nf()")
    translated = translate_error(fault)
    assert isinstance(translated, KernelFailed)
    assert str(translated) == "INTERNAL Error: index 0 of 0"


def test_a_failure_of_binding_over_rows_is_of_the_data() -> None:
    """DuckDB names it so where a row's value is what it asks of constants."""
    schema = pa.schema([("x", pa.int64()), ("b", pa.list_(pa.int64()))])
    rows = pa.table({"x": [1, 2], "b": [None, [2]]}, schema)
    statement = kernel().prepare("SELECT histogram(x, b) AS h FROM {t}", t=rows.schema)
    with pytest.raises(EvaluationFailed, match="cannot be NULL"):
        statement.run(rows)
    assert statement.run(rows[1:])["h"].to_pylist() == [[(2, 1)]]


def test_rule_34_a_kernel_reads_no_file(tmp_path: Path) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("x\n1\n")
    for sql in (f"SELECT * FROM read_csv('{file}')", "SET enable_external_access = true"):
        with pytest.raises((StatementRefused, KernelFailed, EvaluationFailed)):
            kernel().query(sql)
