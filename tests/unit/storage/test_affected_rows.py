"""Whoever counts looks at the rows of the update alone, and finds what the whole would say."""

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.ids import Offset
from streams.kafka.log import ChunkRef, Range
from streams.storage.write.affected_rows import affected_rows
from streams.storage.write.validation import shortfall
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import flatten
from tests.support.command_service import DESCRIPTION, World, update

ROWS = 20_000


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return Kernel()


def batch(kind: str, values: list[Any]) -> pa.RecordBatch:
    """Each value once at time 0."""
    schema = arrow_schema((kind,))
    column = pa.array(values, schema.field(0).type)
    zeros, ones = (pa.array([number] * len(values), pa.int64()) for number in (0, 1))
    return pa.RecordBatch.from_arrays([column, zeros, ones], schema=schema)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("BIGINT", 1, 2),
        ("VARCHAR", "a", None),
        ("DOUBLE", float("nan"), 1.5),
        ("DECIMAL(38,2)", Decimal("1.25"), Decimal("-1.25")),
        ("BLOB", b"\xff", b""),
        ("BOOLEAN", True, False),
        ("TIMESTAMP", dt.datetime(2020, 1, 1), None),  # noqa: DTZ001  DuckDB's has none
        ("BIGINT[]", [1, None], [1]),
        ("STRUCT(a BIGINT)", {"a": None}, None),
    ],
)
def test_rows_of_any_type_are_found_again(
    kernel: Kernel, kind: str, one: object, other: object
) -> None:
    chosen = affected_rows(batch(kind, [one, one]), kernel)
    rows = chosen.apply(pa.Table.from_batches([batch(kind, [other, one, other, one])]))
    assert rows.column("diff").to_pylist() == [2], "equal rows are added up"
    again = shortfall(flatten([rows, batch(kind, [one])], chosen.schema), 1, kernel)
    assert again is None
    assert chosen.apply(rows.slice(0, 0)).num_rows == 0


@pytest.mark.parametrize(
    ("kind", "own", "there", "expected"),
    [
        ("BIGINT", [5, 7], Range(8, 9), False),
        ("BIGINT", [5, 8], Range(8, 9), True),
        ("BIGINT", [5, None], Range(8, 9), True),
        ("DOUBLE", [5.0, float("nan")], Range(8.0, 9.0), True),
        ("DOUBLE", [5.0], Range(8.0, 9.0), False),
        ("VARCHAR", ["b"], Range("c", "d"), False),
        ("VARCHAR", ["b"], None, True),
        ("BLOB", [b"b"], None, True),
    ],
)
def test_a_chunk_that_holds_no_row_of_the_update_is_not_fetched(
    kernel: Kernel, kind: str, own: list[Any], there: Range | None, *, expected: bool
) -> None:
    ref = ChunkRef(0, Offset(0), "key", 0, 1, 1)
    chosen = affected_rows(batch(kind, own), kernel)
    assert chosen.may_match(ref)
    assert chosen.may_match(replace(ref, ranges=(there,))) is expected


PAIRS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(-2, 2)), max_size=8
)


@given(PAIRS, PAIRS)
def test_what_is_left_out_changes_no_answer(
    kernel: Kernel, past: list[tuple[int, int, int]], fresh: list[tuple[int, int, int]]
) -> None:
    schema = arrow_schema(("BIGINT", "BIGINT"))
    before, own = (
        pa.RecordBatch.from_arrays(
            [
                pa.array([one for one, _, _ in rows], pa.int64()),
                pa.array([other for _, other, _ in rows], pa.int64()),
                pa.array(range(len(rows)), pa.int64()),
                pa.array([diff for _, _, diff in rows], pa.int64()),
            ],
            schema=schema,
        )
        for rows in (past, fresh)
    )
    rows = affected_rows(own, kernel).apply(pa.Table.from_batches([before]))
    narrow = shortfall(flatten([rows, own], schema), own.num_rows, kernel)
    full = shortfall(flatten([before, own], schema), own.num_rows, kernel)
    assert (narrow is None) == (full is None)
    if narrow is not None and full is not None:
        assert (narrow.time, narrow.count) == (full.time, full.count)


def test_one_row_of_many_is_counted_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service counts for one client while all others wait."""
    counted: list[int] = []

    def looked(updates: pa.RecordBatch, own: int, kernel: Kernel) -> object:
        counted.append(updates.num_rows)
        return shortfall(updates, own, kernel)

    monkeypatch.setattr("streams.storage.write.validation.shortfall", looked)
    world = World()
    _, write = world.ask("create", collection="t", description=DESCRIPTION)["capabilities"]
    many = [(f"row {number}", number, 0, 1) for number in range(ROWS)]
    (write,) = world.ask("update_and_downgrade", **update(write, 1, *many))["capabilities"]
    fields = update(write, 2, ("row 7", 7, 1, -1), ("new", 0, 1, 1))
    (write,) = world.ask("update_and_downgrade", **fields, check_counts=True)["capabilities"]
    assert counted == [3]
    fields = update(write, 3, ("row 7", 7, 2, -1))
    assert world.ask("update_and_downgrade", **fields, check_counts=True)["status"] == "REFUSED"
    fields = update(write, 3, ("row 8", 8, 2, -1))
    assert world.ask("update_and_downgrade", **fields, check_counts=True)["status"] == "DONE"
