"""Parquet files of answers: DuckDB reads the rows that SELECT shows."""

import json
import random
from pathlib import Path

import duckdb
import pytest

from streams.adapter.workers.handlers import RequestExecutor
from streams.adapter.workers.limits import Limits
from streams.adapter.workers.requests import Compute, EncodeFiles, FileSizes, Plan, Query
from streams.copies.parquet_types import parquet_type
from streams.errors import InvalidStatement
from streams.ids import Timestamp
from streams.plan.physical import Column
from streams.trace.kernel.connection import UTC
from streams.trace.kernel.kernel import printed_type

VALUES = {
    "BOOLEAN": ["true", "false"],
    "TINYINT": ["-128", "127"],
    "UBIGINT": ["18446744073709551615"],
    "BIGINT": ["-9223372036854775808", "3"],
    "HUGEINT": ["99999999999999999999999999999999999999", "-7"],
    "UHUGEINT": ["12"],
    "FLOAT": ["'nan'", "1.5", "'-inf'"],
    "DOUBLE": ["1e300", "-0.0", "'inf'"],
    "DECIMAL(38,3)": ["99999999999999999999999999999999999.999", "-0.001"],
    "DECIMAL(4,1)": ["-999.9"],
    "VARCHAR": ["'a\"b'", "''", "'é\n'"],
    "BLOB": ["'\\x00\\xFF'"],
    "DATE": ["'1969-01-01'", "'infinity'"],
    "TIME": ["'23:59:59.999999'"],
    "TIME WITH TIME ZONE": ["'12:30:00+05:30'"],
    "TIMESTAMP": ["'2026-11-28 01:02:03.000001'", "'-infinity'"],
    "TIMESTAMP_S": ["'2026-11-28 01:02:03'"],
    "TIMESTAMP_NS": ["'2026-11-28 01:02:03.000000001'"],
    "TIMESTAMP WITH TIME ZONE": ["'2026-11-28 01:02:03+02'"],
    "INTERVAL": ["'1 month -2 days 00:00:01.000001'"],
    "BIT": ["'10101'"],
    "UUID": ["'6f9619ff-8b86-d011-b42d-00c04fc964ff'"],
    "JSON": ["'{\"a\": [1, null]}'"],
    "ENUM('HUGEINT', 'it''s')": ["'it''s'", "'HUGEINT'"],
    'STRUCT("HUGEINT" INTEGER, u UUID, b BOOLEAN, h HUGEINT)': ["row(1, uuid(), true, 2)"],
    "BOOLEAN[]": ["[true, NULL]", "[]"],
    "INTEGER[2]": ["[1, NULL]"],
    "MAP(VARCHAR, STRUCT(i INTERVAL))[]": ["[map {'k': {'i': INTERVAL '1 day'}}]"],
    "JSON[]": ["['[1]']"],
}


@pytest.fixture(scope="module")
def executor() -> RequestExecutor:
    return RequestExecutor(Limits())


def planned(executor: RequestExecutor, text: str) -> bytes:
    return b"".join(executor.answer(Plan(Query(text, {}, ())), (), {}))


def shown(executor: RequestExecutor, text: str) -> list[list[object]]:
    blocks = executor.answer(Compute(planned(executor, text), Timestamp(1)), (), {})
    return [json.loads(row) for block in blocks for row in block.splitlines()]


def copied(
    executor: RequestExecutor, text: str, directory: Path, file_bytes: int = 1 << 20
) -> FileSizes:
    """Write the files, and return their sizes."""
    facts: dict[str, object] = {}
    request = EncodeFiles(planned(executor, text), Timestamp(1), file_bytes)
    data = b"".join(executor.answer(request, (), facts))
    sizes = FileSizes.told(facts)
    for number, (_, size) in enumerate(sizes.files):
        (directory / f"{number:05}.parquet").write_bytes(data[:size])
        data = data[size:]
    assert not data
    return sizes


def read(directory: Path, columns: str = "*") -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        connection.execute(UTC)
        return connection.execute(f"SELECT {columns} FROM '{directory}/*.parquet'").fetchall()


@pytest.mark.parametrize("kind", VALUES)
def test_each_type_is_read_back(executor, tmp_path: Path, kind: str) -> None:
    """A cast of what is read to the type that was written is the text that SELECT shows."""
    values = [f"SELECT CAST({value} AS {kind}) AS v" for value in [*VALUES[kind], "NULL"]]
    if "uuid()" in kind + VALUES[kind][0]:
        values = [value.replace("uuid()", VALUES["UUID"][0]) for value in values]
    text = " UNION ALL ".join(values)
    assert copied(executor, text, tmp_path).rows == len(values)
    expected = shown(executor, f"SELECT v::VARCHAR FROM ({text}) ORDER BY 1")
    rows = read(tmp_path, f"CAST(CAST(v AS {kind}) AS VARCHAR)")
    assert sorted(map(repr, rows)) == sorted(repr(tuple(row)) for row in expected)
    (name,) = {row[0] for row in read(tmp_path, "typeof(v)")}
    wanted = printed_type(parquet_type(kind))
    assert name == wanted.replace("[2]", "[]").replace("TIMESTAMP_MS", "TIMESTAMP")


@pytest.mark.parametrize("seed", range(5))
def test_duckdb_reads_the_multiset_of_a_select(executor, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    kinds = chance.sample(sorted(VALUES), 4)
    rows = [
        ", ".join(
            f"CAST({chance.choice([*VALUES[kind], 'NULL'])} AS {kind}) AS v{place}"
            for place, kind in enumerate(kinds)
        )
        for _ in range(chance.randrange(12))
    ] or ["1 AS v0, 2 AS v1, 3 AS v2, 4 AS v3"]
    text = " UNION ALL ".join(f"SELECT {row}" for row in rows)
    text = text.replace("uuid()", VALUES["UUID"][0])
    copied(executor, text, tmp_path)
    casts = ", ".join(f"CAST(v{n} AS {kind})::VARCHAR" for n, kind in enumerate(kinds))
    expected = shown(executor, f"SELECT {casts} FROM ({text})")
    assert sorted(map(repr, read(tmp_path, casts))) == sorted(
        repr(tuple(row)) for row in expected
    )


def test_a_large_answer_is_several_files_in_order(executor, tmp_path: Path) -> None:
    text = "SELECT range AS n, hash(range) AS h FROM range(200000) ORDER BY n"
    sizes = copied(executor, text, tmp_path, 256 << 10)
    assert len(sizes.files) > 5
    assert max(size for _, size in sizes.files) <= 256 << 10
    assert sizes.rows == 200_000
    assert [row[0] for row in read(tmp_path, "n")] == list(range(200_000))


def test_no_rows_are_one_file_with_columns(executor, tmp_path: Path) -> None:
    text = 'SELECT range AS "a b", true AS c FROM range(0)'
    assert len(copied(executor, text, tmp_path).files) == 1
    assert read(tmp_path, 'count("a b"), count(c)') == [(0, 0)]


def test_what_does_not_fit_names_the_column(executor, tmp_path: Path) -> None:
    text = "SELECT 1 AS small, 100000000000000000000000000000000000000::HUGEINT AS big"
    with pytest.raises(InvalidStatement, match=r"column big, of type HUGEINT") as caught:
        copied(executor, text, tmp_path)
    assert caught.value.hint == "write it as text: CAST(big AS VARCHAR)"


def test_types_inside_of_names_are_no_types() -> None:
    assert parquet_type('STRUCT("UUID" UUID, "a, JSON" JSON[])') == (
        'STRUCT("UUID" VARCHAR, "a, JSON" VARCHAR[])'
    )
    assert parquet_type("ENUM('UUID', '\"')[]") == "VARCHAR[]"
    assert Column("a", parquet_type("TIMESTAMP_S")).type == "TIMESTAMP_MS"
