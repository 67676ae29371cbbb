"""What a SELECT loads: no more than fits, and of columns that nobody reads nothing."""

from dataclasses import replace

import pyarrow as pa
import pytest

from streams.adapter.pruning import Allowance, Wanted
from streams.errors import InvalidStatement
from streams.ids import Offset
from streams.kafka.log import ChunkRef, Range
from streams.plan.analyses.column_bounds import ColumnComparison
from streams.trace.kernel.kernel import arrow_schema

ROWS = [{"c0": i, "c1": "x" * 100, "time": 7, "diff": 1} for i in range(1000)]
REF = ChunkRef(partition=0, offset=Offset(0), key="k", checksum=0, rows=1000, size=1)
TABLE = pa.Table.from_pylist(ROWS, arrow_schema(["BIGINT", "VARCHAR"]))


def test_columns_that_nobody_reads_are_empty() -> None:
    applied = Wanted(frozenset({0}), Allowance(1 << 20)).apply(TABLE)
    assert applied.column("c0") == TABLE.column("c0")
    assert applied.column("c1").null_count == 1000
    assert applied.schema.types == TABLE.schema.types


def test_chunks_without_a_row_that_counts_are_left_where_they_are() -> None:
    ref = replace(REF, ranges=(Range(10, 20), Range("a", "f"), None))
    cases = [
        (ColumnComparison(0, "=", 15), True), (ColumnComparison(0, "=", 21), False),
        (ColumnComparison(0, "<", 10), False), (ColumnComparison(0, "<=", 10), True),
        (ColumnComparison(0, ">", 20), False), (ColumnComparison(0, ">=", 20), True),
        (ColumnComparison(1, "=", "b"), True), (ColumnComparison(1, ">", "g"), False),
        (ColumnComparison(2, "=", 0.5), True),
    ]  # fmt: skip
    for where, may_match in cases:
        request = Wanted(frozenset({0}), Allowance(1 << 20), (where,))
        assert request.may_match(ref) is may_match
        assert request.may_match(REF)  # it has no ranges
    both = Wanted(frozenset({0}), Allowance(1 << 20), (cases[0][0], cases[1][0]))
    assert not both.may_match(ref)


def test_all_imports_share_an_allowance() -> None:
    allowance = Allowance(3 * TABLE.nbytes)
    first, second = (Wanted(frozenset({0, 1}), allowance) for _ in range(2))
    first.apply(TABLE)
    second.apply(TABLE)
    second.apply(TABLE)
    with pytest.raises(InvalidStatement, match="too much memory"):
        first.apply(TABLE)


def test_a_load_anew_counts_once() -> None:
    allowance = Allowance(2 * TABLE.nbytes)
    request, other = (Wanted(frozenset({0, 1}), allowance) for _ in range(2))
    other.apply(TABLE)
    for _ in range(3):
        assert request.may_match(REF)
        request.apply(TABLE)
    with pytest.raises(InvalidStatement, match="too much memory"):
        other.apply(TABLE)
