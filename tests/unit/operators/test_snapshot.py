"""A SELECT says what a view of the same text says: bit for bit, at every time."""

import random
from collections import Counter

import pyarrow as pa
import pytest

from streams.errors import InvalidStatement
from streams.ids import Timestamp
from streams.operators.snapshot import snapshot_of
from streams.plan.analyses.column_usage import columns_imported
from streams.plan.compile import compile_select, compile_view
from streams.testing import Maintained, maintain
from streams.testing.maintain import _read, defined
from streams.trace import updates as trace
from streams.trace.kernel.kernel import Kernel
from tests.random_sql.case import Case, case, catalog, parse
from tests.random_sql.chance import Chance
from tests.random_sql.judge import Judge

KERNEL, JUDGE = Kernel(most_bytes=1 << 28), Judge()
EACH = 16


def viewed(drawn: Case, updates: dict[str, pa.Table]) -> Maintained:
    return maintain(
        drawn.query,
        {table.name: table.definition for table in drawn.tables},
        updates,
        drawn.cuts,
        buckets=drawn.buckets,
        functions=drawn.functions,
    )


def rows_of(rows: pa.RecordBatch, width: int) -> Counter[str]:
    """How often each row is there, by its bits: NaN and -0.0 are told apart by `repr`."""
    contents = Counter[str]()
    for row in rows.to_pylist():
        contents[repr([row[f"c{place}"] for place in range(width)])] += row["diff"]
    return contents


def differs(drawn: Case) -> str:
    """What a SELECT says else than the view of a case, if anything."""
    updates = JUDGE.load(drawn)
    try:
        view = viewed(drawn, updates)
    except InvalidStatement:
        return ""
    relations, functions = catalog(drawn, KERNEL), defined(drawn.functions)
    selected = compile_select(drawn.query, relations, functions)
    flow, width = selected.dataflow, len(selected.shown)
    assert [column.type for column in selected.shown] == [c.type for c in view.columns]
    histories = [
        _read(KERNEL, relations[name].columns, updates.get(name))
        for name in (str(imported.collection) for imported in flow.imports)
    ]
    for time in range(view.since, view.upper):
        snapshots = {
            index: pa.Table.from_batches([trace.contents_at(history, time, KERNEL)])
            for index, history in enumerate(histories)
        }
        rows, errors = snapshot_of(flow, snapshots, Timestamp(time), KERNEL)
        errors_ = sorted(row["error"] for row in errors.to_pylist() for _ in range(row["diff"]))
        if errors_ != view.errors_at(time) and len(selected.columns) == width:
            return f"at {time} errors {errors_}, in the view {view.errors_at(time)}"
        contents_ = trace.contents_at(view._updates, time, KERNEL)
        if not errors_ and rows_of(rows, width) != rows_of(contents_, width):
            return f"at {time} {rows_of(rows, width)}, in the view {rows_of(contents_, width)}"
    return ""


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(EACH * n, marks=pytest.mark.long) for n in range(1, 20))]
)
def test_a_select_holds_what_its_view_holds(first: int) -> None:
    for seed in range(first, first + EACH):
        drawn = case(Chance(random.Random(seed).randrange))
        assert not (wrong := differs(drawn)), f"{wrong}\n{drawn.script()}"


ORDERED = "table t a INTEGER, b DOUBLE\n@1 t +2 1, 1e16\n@1 t +1 1, -1e16\n@2 t +3 2, 0.1\n"


def test_columns_that_nobody_reads_are_told() -> None:
    relations = catalog(parse(ORDERED + "FROM t"), KERNEL)
    reads = {
        "SELECT count(*) AS n FROM t": {0},
        "SELECT a FROM t WHERE b > 1": {0, 1},
        "SELECT b FROM t": {1},
        "SELECT sum(b) AS s FROM t": {1},
        "FROM t": {0, 1},
    }
    for query, expected in reads.items():
        read = columns_imported(compile_view(query, relations).dataflow, 0)
        assert read <= expected, query
        assert expected - {0} <= read, query
