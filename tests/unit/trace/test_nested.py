"""Nested columns reach DuckDB as they are, at whatever offset their arrays begin."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.operators import linear
from streams.plan.physical import Expression, Linear
from streams.trace.kernel import kernel as kernels
from streams.trace.kernel.connection import EvaluationFailed, KernelFailed
from streams.trace.kernel.kernel import arrow_schema, arrow_type
from streams.trace.kernel.nested import importable
from streams.trace.updates import consolidate
from tests.support.examples import examples
from tests.support.flows import kernel

FLAT = (
    pa.array([0, 1, None, 3, 4, -5, 6, None, 8, 9, 10, 11], pa.int32()),
    pa.array(["a", None, "", "d", "é", "f" * 20, None, "h", "i", "j", "k", "l"]),
    pa.array([0.5, None, float("inf"), -0.25] * 3),
    pa.array([True, None, False] * 4),
)


@st.composite
def arrays(draw: st.DrawFn, length: int, depth: int = 3) -> pa.Array:
    """An array of a random type, and so many values; each part of it may begin anywhere."""
    skipped, behind = draw(st.integers(0, 3)), draw(st.integers(0, 2))
    array = draw(_made(skipped + length + behind, depth))
    return array.slice(skipped, length)


@st.composite
def _made(draw: st.DrawFn, length: int, depth: int) -> pa.Array:
    kind = (
        draw(st.sampled_from(["flat", "struct", "list", "fixed", "map"])) if depth else "flat"
    )
    if kind == "flat":
        places = draw(st.lists(st.integers(0, 11), min_size=length, max_size=length))
        return draw(st.sampled_from(FLAT)).take(pa.array(places, pa.int64()))
    absent = draw(st.lists(st.booleans(), min_size=length, max_size=length))
    mask = pa.array(absent, pa.bool_())
    if kind == "struct":
        count = draw(st.integers(1, 3))
        children = [draw(arrays(length, depth - 1)) for _ in range(count)]
        return pa.StructArray.from_arrays(children, [f"f{n}" for n in range(count)], mask=mask)
    if kind == "fixed":
        child = draw(arrays(2 * length, depth - 1))
        return pa.FixedSizeListArray.from_arrays(child, 2, mask=mask)
    sizes = [0 if no else draw(st.integers(0, 2)) for no in absent]
    starts = [sum(sizes[:at]) for at in range(length + 1)]
    if kind == "list":
        child = draw(arrays(starts[-1] + 1, depth - 1))
        return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), child, mask=mask)
    keys = pa.array([f"k{n}" for n in range(starts[-1])], pa.string())
    items = draw(arrays(starts[-1], depth - 1))
    return pa.MapArray.from_arrays(pa.array(starts, pa.int32()), keys, items, mask=mask)


@examples(100)
@given(st.data())
def test_nested_values_read_as_they_are_at_any_offset(data: st.DataObject) -> None:
    length = data.draw(st.integers(0, 6))
    column = data.draw(arrays(length))
    rows = pa.RecordBatch.from_arrays([column, pa.array(range(length), pa.int64())], ["x", "n"])
    cut = data.draw(st.integers(0, length))
    apart = pa.table(
        {
            "x": pa.chunked_array([column.slice(0, cut), column.slice(cut)], column.type),
            "n": pa.chunked_array([rows.column("n")]),
        }
    )
    statement = kernel().prepare("SELECT x, n FROM {t}", t=rows.schema)
    for table in (rows, apart):
        assert statement.run(table).to_pylist() == rows.to_pylist()
        assert kernel().query("SELECT x, n FROM t", t=table).to_pylist() == rows.to_pylist()


def test_rows_beyond_one_vector_keep_their_nested_values() -> None:
    size = 5000
    inner = pa.StructArray.from_arrays([pa.array(range(size + 7)).slice(7)], ["a"])
    absent = pa.array([n % 3 == 0 for n in range(size)])
    rows = pa.table([pa.StructArray.from_arrays([inner], ["s"], mask=absent)], ["x"]).slice(1)
    actual = kernel().query("SELECT x.s.a AS a FROM t", t=rows)["a"].to_pylist()
    assert actual == [None if n % 3 == 0 else n + 7 for n in range(1, size)]


def test_columns_without_offsets_are_not_copied() -> None:
    flat = pa.table({"x": [1, 2, 3], "y": ["a", "b", "c"]}).slice(1)
    assert importable(flat) is flat
    nested = pa.RecordBatch.from_pylist([{"s": {"a": {"b": 1}}}, {"s": None}])
    assert importable(nested) is nested


UNREAD = "DuckDB cannot import rows"
DEEP = "STRUCT(s STRUCT(a INTEGER))"


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> pa.RecordBatch:
    """Updates that DuckDB refuses, and nobody who puts them right."""
    monkeypatch.setattr(kernels, "importable", lambda rows: rows)
    column = pa.array([{"s": {"a": n}} for n in range(3)], arrow_type(DEEP))
    counts = pa.array([0, 1, 2], pa.int64())
    return pa.RecordBatch.from_arrays(
        [column, counts, counts], schema=arrow_schema([DEEP])
    ).slice(1)


def test_rows_that_duckdb_cannot_import_are_no_failure_of_an_expression(
    cut: pa.RecordBatch,
) -> None:
    statement = kernel().prepare("SELECT c0.s.a AS y FROM {t}", t=cut.schema)
    with pytest.raises(KernelFailed, match=UNREAD):
        statement.run(cut)
    with pytest.raises(KernelFailed, match=UNREAD):
        kernel().query("SELECT c0.s.a AS y FROM t", t=cut)
    typed = {"t": (pa.Table.from_batches([cut]), [DEEP, "BIGINT", "BIGINT"])}
    with pytest.raises(KernelFailed, match=UNREAD):
        kernel().query_as("SELECT c0.s.a AS y FROM t", typed)
    failing = kernel().prepare("SELECT error('no' || time) AS y FROM {t}", t=cut.schema)
    with pytest.raises(EvaluationFailed):
        failing.run(cut.take(pa.array([0])))


def test_rows_that_duckdb_cannot_import_stop_a_step(cut: pa.RecordBatch) -> None:
    node = Linear(0, (), (Expression("(c0.s.a + 1)", "INTEGER", "s.a + 1"),))
    with pytest.raises(KernelFailed, match=UNREAD):
        linear.step(node, cut, [DEEP], ["INTEGER"], kernel())


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("DOUBLE[]", [-0.0], [0.0]),
        ("FLOAT[2]", [1.0, -0.0], [1.0, 0.0]),
        ("STRUCT(a STRUCT(f DOUBLE)[])", {"a": [{"f": -0.0}, None]}, {"a": [{"f": 0.0}, None]}),
        ("MAP(INTEGER, DOUBLE)", [(1, 0.0), (2, None)], [(1, -0.0), (2, None)]),
        ("INTERVAL[]", [pa.MonthDayNano([1, 0, 0])], [pa.MonthDayNano([0, 30, 0])]),
    ],
)
def test_a_nested_row_goes_with_its_own_bits(kind: str, one: object, other: object) -> None:
    column = pa.array([one, other, one, None], arrow_type(kind)).slice(1)
    counts = [pa.array([0, 0, 0], pa.int64()), pa.array([1, -1, 1], pa.int64())]
    rows = pa.RecordBatch.from_arrays([column, *counts], schema=arrow_schema([kind]))
    assert consolidate(rows, kernel()).num_rows == 3
    both = pa.concat_batches([rows, rows.slice(0, 1)])
    assert sorted(consolidate(both, kernel())["diff"].to_pylist()) == [-1, 1, 2]
