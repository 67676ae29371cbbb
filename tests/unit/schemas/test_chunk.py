"""Chunks: what goes in comes out, in DuckDB's types, in bodies of bounded size."""

import numpy as np
import pyarrow as pa
import pytest

from schemas import chunk
from streams.errors import Corrupt
from streams.trace.kernel.kernel import Kernel
from tests.support import foreign

EVERY_TYPE = {
    "BOOLEAN": "true",
    "TINYINT": "-7",
    "UBIGINT": "18446744073709551615",
    "HUGEINT": "-170141183460469231731687303715884105728",
    "UHUGEINT": "340282366920938463463374607431768211455",
    "DOUBLE": "'nan'",
    "DECIMAL(38,10)": "1.5",
    "VARCHAR": "'täxt'",
    "BLOB": r"'\xAA'::BLOB",
    "UUID": "'4ac7a9e9-607c-4c8a-84f3-843f0191e3fd'",
    "JSON": """'{"a": [1]}'""",
    "DATE": "'2013-01-01'",
    "TIME": "'01:02:03.4'",
    "TIMETZ": "'01:02:03+05'",
    "TIMESTAMP": "'2013-01-01 01:02:03'",
    "TIMESTAMPTZ": "'2013-01-01 01:02:03+00'",
    "TIMESTAMP_NS": "'2013-01-01 01:02:03.000000001'",
    "INTERVAL": "'1 month 2 days'",
    "BIT": "'10101'",
    "INTEGER[]": "[1, NULL]",
    "INTEGER[2]": "[1, 2]",
    "STRUCT(a INTEGER, b UUID)": "{'a': 1, 'b': uuid_literal}",
    "MAP(VARCHAR, HUGEINT)": "MAP {'k': 1}",
}


def table_of(select: str) -> pa.Table:
    return Kernel().query(f"SELECT {select}, 5::BIGINT AS time, 1::BIGINT AS diff")


@pytest.mark.parametrize("type_", EVERY_TYPE)
def test_duckdb_types_come_back_with_their_extensions(type_: str) -> None:
    value = EVERY_TYPE[type_].replace(
        "uuid_literal", "'4ac7a9e9-607c-4c8a-84f3-843f0191e3fd'::UUID"
    )
    table = table_of(f"CAST({value} AS {type_}) AS c0, CAST(NULL AS {type_}) AS c1")
    [(body, rows)] = chunk.encode(table, ["a", "b"])
    updates, errors = chunk.decode(body)
    assert rows == 1
    assert updates.schema.field("c0").type == table.schema.field("c0").type
    query = "SELECT c0::VARCHAR AS c0, typeof(c0) AS t, c1 IS NULL AS c1, time, diff FROM rows"
    assert Kernel().query(query, rows=updates).equals(Kernel().query(query, rows=table))
    assert errors.num_rows == 0


def updates_of(rows: int) -> pa.Table:
    random = np.random.default_rng(7)
    return pa.table(
        {
            "c0": random.integers(0, 1 << 62, rows),
            "c1": pa.array(np.char.mod("text %d", random.integers(0, 1 << 40, rows))),
            "time": np.arange(rows),
            "diff": np.ones(rows, np.int64),
        }
    )


def test_many_rows_are_cut_below_the_limit_and_come_back_in_order() -> None:
    table = updates_of(300_000)
    bodies = chunk.encode(table, ["id", "text"])
    assert len(bodies) > 3
    assert max(len(body) for body, _ in bodies) <= chunk.LIMIT
    # not cut too early either: what compresses well fills its chunk
    assert sorted(len(body) for body, _ in bodies)[1] > chunk.LIMIT // 2
    back = pa.concat_tables([chunk.decode(body)[0] for body, _ in bodies])
    assert sum(rows for _, rows in bodies) == table.num_rows
    assert back.combine_chunks().equals(table.cast(back.schema).combine_chunks())


def test_no_rows_make_no_chunk() -> None:
    assert chunk.encode(updates_of(0), ["id", "text"]) == []


def test_a_row_beyond_the_limit_has_a_chunk_of_its_own() -> None:
    long = "".join(map(str, np.random.default_rng(1).integers(0, 10, 3_000_000)))
    table = pa.table({"c0": ["a", long, "b"], "time": [1, 2, 3], "diff": [1, 1, 1]})
    bodies = chunk.encode(table, ["text"])
    back = pa.concat_tables([chunk.decode(body)[0] for body, _ in bodies])
    assert back.column("c0").to_pylist() == ["a", long, "b"]
    assert len(bodies) == 3


def test_errors_travel_beside_the_contents() -> None:
    errors = pa.table({"error": ["bad", "worse"], "time": [3, 4], "diff": [1, -1]})
    [(body, rows)] = chunk.encode(updates_of(2), ["id", "text"], errors)
    updates, back = chunk.decode(body)
    assert (rows, updates.num_rows) == (4, 2)
    assert back.to_pylist() == errors.to_pylist()


def test_errors_alone_still_carry_the_columns() -> None:
    errors = pa.table({"error": ["bad"], "time": [3], "diff": [1]})
    [(body, _)] = chunk.encode(updates_of(0), ["id", "text"], errors)
    updates, back = chunk.decode(body)
    assert updates.schema.names == ["c0", "c1", "time", "diff"]
    assert (updates.num_rows, back.num_rows) == (0, 1)


def test_a_foreign_writer_may_mix_contents_and_errors_in_one_batch() -> None:
    data = pa.array([{"a": 1}, None, {"a": 3}], pa.struct([("a", pa.int32())]))
    schema = chunk.wire_schema(data.type)
    columns = [data, pa.array([1, 2, 3]), pa.array([1, 1, 1]), pa.array([None, "bad", None])]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    updates, errors = chunk.decode(sink.getvalue().to_pybytes())
    assert updates.to_pylist() == [
        {"c0": 1, "time": 1, "diff": 1},
        {"c0": 3, "time": 3, "diff": 1},
    ]
    assert errors.to_pylist() == [{"error": "bad", "time": 2, "diff": 1}]


def test_user_columns_may_have_our_names() -> None:
    table = pa.table({"c0": [1], "c1": [2], "time": [3], "diff": [1]})
    [(body, _)] = chunk.encode(table, ["time", "error"])
    assert chunk.decode(body)[0].to_pylist() == [{"c0": 1, "c1": 2, "time": 3, "diff": 1}]


def test_sliced_tables_are_written_as_sliced() -> None:
    table = updates_of(100).slice(10, 20)
    [(body, rows)] = chunk.encode(table, ["id", "text"])
    assert rows == 20
    assert chunk.decode(body)[0].column("time").to_pylist() == list(range(10, 30))


@pytest.mark.parametrize(
    "body",
    [b"", b"nonsense", chunk.encode(updates_of(9), ["a", "b"])[0][0][:-40]],
    ids=["empty", "nonsense", "cut short"],
)
def test_what_is_no_chunk_is_corrupt(body: bytes) -> None:
    with pytest.raises(Corrupt, match="chunk"):
        chunk.decode(body)


def test_another_arrow_stream_is_corrupt() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("x", pa.int64())])):
        pass
    with pytest.raises(Corrupt, match="expected columns"):
        chunk.decode(sink.getvalue().to_pybytes())


def test_large_rows_among_small_ones_are_cut_apart() -> None:
    """Slices are of equal numbers of rows, and a few rows may hold nearly all of the bytes."""
    random = np.random.default_rng(0)
    large = [random.bytes(chunk.LIMIT).hex() for _ in range(4)]
    texts = [*large, *(["small"] * 20_000)]
    table = pa.table(
        {"c0": texts, "time": pa.array([1] * len(texts)), "diff": pa.array([1] * len(texts))}
    )
    bodies = chunk.encode(table, ["text"])
    assert max(len(body) for body, _ in bodies) < 3 * chunk.LIMIT  # one of them, and some
    back = pa.concat_tables([chunk.decode(body)[0] for body, _ in bodies])
    assert back.column("c0").to_pylist() == texts


def test_time_zones_and_marks_of_nullability_are_the_writers_own() -> None:
    """All name the same values, so that chunks of different writers can be put together."""
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16)))
    inside = pa.list_(pa.field("item", pa.uuid(), nullable=False))
    mapped = pa.map_(pa.utf8(), pa.field("value", pa.int32(), nullable=False))
    columns = [
        pa.array([1], pa.timestamp("us", "Europe/Berlin")),
        pa.array([[1, 2]], pa.list_(pa.field("item", pa.int32(), nullable=False))),
        pa.array([{"a": 1}], pa.struct([pa.field("a", pa.int32(), nullable=False)])),
        pa.array([[("k", 1)]], mapped),
        pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), uuids, type=inside),
    ]
    updates, _ = chunk.decode(foreign.chunk_of(columns, list("abcde"), [5]))
    updates.validate(full=True)
    assert updates.schema.types[:-2] == [
        pa.timestamp("us", "UTC"),
        pa.list_(pa.int32()),
        pa.struct([("a", pa.int32())]),
        pa.map_(pa.utf8(), pa.int32()),
        pa.list_(pa.uuid()),
    ]
    assert [column[0].as_py() for column in updates.columns[1:4]] == [
        [1, 2],
        {"a": 1},
        [("k", 1)],
    ]


@pytest.mark.parametrize(
    ("at", "column", "why"),
    [
        (0, pa.array([1]), "expected a struct, int64, int64 and string"),
        (1, pa.array([1], pa.int32()), "expected a struct, int64, int64 and string"),
        (2, pa.array([None], pa.int64()), "expected no NULL in time and diff"),
        (3, pa.array([b"x"]), "expected a struct, int64, int64 and string"),
    ],
)
def test_columns_of_other_types_are_corrupt(at: int, column: pa.Array, why: str) -> None:
    data = pa.array([{"a": 1}], pa.struct([("a", pa.int32())]))
    columns = [data, pa.array([1]), pa.array([1]), pa.nulls(1, pa.utf8())]
    columns[at] = column
    sheet = pa.RecordBatch.from_arrays(columns, names=list(chunk.COLUMNS))
    with pytest.raises(Corrupt, match=why):
        chunk.decode(foreign.stream(sheet))
