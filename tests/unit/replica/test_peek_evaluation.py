"""A peek says what a SELECT of the same text says, and refuses what it cannot."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from streams.adapter import select
from streams.adapter.workers.limits import Limits
from streams.compute.peeks import KeyLookup, Peek, PeekError, PeekRows, PeekTarget
from streams.ids import CollectionId, Timestamp
from streams.plan import json as plans
from streams.plan.compile import CompiledSelect, Relation, compile_select
from streams.plan.physical import Column, SortKey
from streams.replica.peeks.evaluation import PeekRefused, answer, keys_of, matching, plan_of
from streams.trace.kernel.kernel import Kernel, arrow_schema

U1 = CollectionId("u1")
COLUMNS = (Column("k", "BIGINT"), Column("v", "VARCHAR"), Column("x", "DOUBLE"))
TYPES = [column.type for column in COLUMNS]
SCHEMA = arrow_schema(TYPES)
RELATIONS = {"t": Relation(U1, COLUMNS)}
NO_ERRORS = pa.table(
    {
        "error": pa.array([], pa.utf8()),
        "time": pa.array([], pa.int64()),
        "diff": pa.array([], pa.int64()),
    }
)
AT = Timestamp(9)
Row = tuple[int | None, str | None, float | None, int, int]
ROWS: list[Row] = [
    (3, "c", 1.5, 1, 2),
    (1, "a", -0.0, 2, 1),
    (1, "a", -0.0, 3, 1),
    (2, "b", 0.0, 4, 1),
    (2, "b", 0.0, 5, -1),
    (None, None, None, 6, 1),
    (4, "d", float("nan"), 7, 3),
    (5, "e", 2.0, 10, 1),
]


def table(rows: Sequence[Row]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(SCHEMA)
    arrays = [
        pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)
    ]
    return pa.table(arrays, schema=SCHEMA)


def peek_of(selected: CompiledSelect) -> Peek:
    return Peek(
        uuid="p",
        target=PeekTarget(U1, "u1"),
        time=AT,
        plan=plans.dumps(selected.dataflow),
        project=tuple(range(len(selected.shown))),
        most_bytes=1 << 20,
        order=selected.order,
    )


def rows_of(outcome: object) -> list[str]:
    assert isinstance(outcome, PeekRows), outcome
    rows = pa.ipc.open_stream(outcome.rows).read_all()
    assert rows.num_rows == outcome.count
    return list(map(repr, zip(*(c.to_pylist() for c in rows.columns), strict=True)))


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return Kernel()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t ORDER BY k, v, x",
        "SELECT v, k + 1 FROM t WHERE k = 1 ORDER BY v",
        "SELECT x FROM t WHERE x = 0 ORDER BY k DESC NULLS FIRST",
        "SELECT k FROM t WHERE v IN ('a', 'd') OR v IS NULL ORDER BY x DESC, k",
        "SELECT upper(v) FROM t WHERE k > 1 ORDER BY 1",
        "SELECT 1 FROM t WHERE k = 77",
    ],
)
def test_a_peek_is_a_select(query: str, kernel: Kernel) -> None:
    selected = compile_select(query, RELATIONS)
    peek = peek_of(selected)
    at = table([(*row[:3], AT, row[4]) for row in ROWS if row[3] <= AT])
    expected = select.answer(selected, [at], AT, kernel, Limits())
    shown = list(map(repr, zip(*(c.to_pylist() for c in expected.columns), strict=True)))
    assert rows_of(answer(peek, table(ROWS), NO_ERRORS, kernel)) == shown


def whole() -> Peek:
    return peek_of(compile_select("SELECT * FROM t", RELATIONS))


def test_limit_and_offset_count_copies_in_order(kernel: Kernel) -> None:
    order = (SortKey(0, descending=True, nulls_first=False),)
    every = rows_of(answer(replace(whole(), order=order), table(ROWS), NO_ERRORS, kernel))
    assert len(every) == 8
    for offset in range(10):
        for limit in (None, 0, 1, 3, 20):
            peek = replace(whole(), order=order, limit=limit, offset=offset)
            end = None if limit is None else offset + limit
            rows = rows_of(answer(peek, table(ROWS), NO_ERRORS, kernel))
            assert rows == every[offset:end]


def test_without_an_order_rows_follow_the_columns_that_are_answered(kernel: Kernel) -> None:
    peek = replace(whole(), project=(1, 0))
    rows = rows_of(answer(peek, table(ROWS), NO_ERRORS, kernel))
    assert [row[2] for row in rows] == ["a", "a", "c", "c", "d", "d", "d", "o"]


def keys(*values: float | str | None, kind: pa.DataType) -> bytes:
    sink = pa.BufferOutputStream()
    rows = pa.record_batch([pa.array(values, kind)], names=["key"])
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue())


def test_keys_are_equal_as_in_sql(kernel: Kernel) -> None:
    zero = KeyLookup((2,), keys(0.0, None, float("nan"), kind=pa.float64()))
    matches = matching(table(ROWS), (2,), keys_of(zero, TYPES), TYPES, kernel)
    assert sorted(matches.column("c0").to_pylist()) == [1, 1, 2, 2, 4]


@pytest.mark.parametrize("bytes_", [b"", b"no stream", keys("a", kind=pa.utf8())])
def test_keys_that_are_none_are_refused(bytes_: bytes, kernel: Kernel) -> None:
    with pytest.raises(PeekRefused, match="keys cannot be read"):
        keys_of(KeyLookup((0,), bytes_), TYPES)


@pytest.mark.parametrize(
    ("value", "kind", "at"), [(1, pa.int64(), 0), ("a", pa.utf8(), 1), (None, pa.int64(), 0)]
)
def test_one_key_of_plain_values_is_compared_without_duckdb(
    value: float | str | None, kind: pa.DataType, at: int, kernel: Kernel
) -> None:
    one = keys_of(KeyLookup((at,), keys(value, kind=kind)), TYPES)
    twice = keys_of(KeyLookup((at,), keys(value, value, kind=kind)), TYPES)
    matches = matching(table(ROWS), (at,), one, TYPES, kernel)
    assert matches.equals(matching(table(ROWS), (at,), twice, TYPES, kernel))


@pytest.mark.parametrize("columns", [(), (3,), (-1,)])
def test_a_look_up_has_columns_that_are_there(columns: tuple[int, ...]) -> None:
    with pytest.raises(PeekRefused, match="expected columns below 3"):
        keys_of(KeyLookup(columns, keys(1, kind=pa.int64())), TYPES)


def test_errors_come_first_then_counts_below_zero_then_size(kernel: Kernel) -> None:
    errors = pa.table({"error": ["bad"], "time": [3], "diff": [1]})
    below = table([(1, "a", 1.0, 3, -1)])
    assert answer(whole(), below, errors, kernel) == PeekError("bad")
    failing = peek_of(compile_select("SELECT v::INTEGER FROM t", RELATIONS))
    refused = answer(failing, table(ROWS), NO_ERRORS, kernel)
    assert isinstance(refused, PeekError)
    assert refused.message.startswith("cannot evaluate")
    small = replace(whole(), most_bytes=8)
    assert answer(small, below, NO_ERRORS, kernel) == PeekError("a row is there -1 times at 9")
    large = answer(small, table(ROWS), NO_ERRORS, kernel)
    assert isinstance(large, PeekError)
    assert large.message.startswith("expected rows of at most 8 bytes")


def test_copies_are_counted_before_they_are_made(kernel: Kernel) -> None:
    many = answer(whole(), table([(1, "a", 1.0, 3, 1 << 40)]), NO_ERRORS, kernel)
    assert isinstance(many, PeekError)
    first = replace(whole(), limit=2)
    assert (
        len(rows_of(answer(first, table([(1, "a", 1.0, 3, 1 << 40)]), NO_ERRORS, kernel))) == 2
    )


@pytest.mark.parametrize(
    "peek",
    [
        replace(whole(), plan="{}"),
        replace(whole(), project=(3,)),
        replace(whole(), order=(SortKey(-1, descending=False, nulls_first=False),)),
        peek_of(compile_select("SELECT count(*) FROM t", RELATIONS)),
        replace(whole(), plan="["),
    ],
)
def test_other_plans_are_refused(peek: Peek) -> None:
    with pytest.raises(PeekRefused):
        plan_of(peek)
