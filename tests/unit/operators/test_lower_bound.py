"""Rule 37: what was deleted before the first row of a group is not searched again."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streams.ids import CollectionId
from streams.operators.local import LocalDataflow
from streams.plan.compile import Relation, compile_view
from streams.plan.physical import Column
from streams.progress import interval_of
from tests.support.work import counted

ROWS, DELETED = 9_000, 3_000
"""So many that a run of the deleted ones stays beside that of all, and they are in both."""


def updates(values: np.ndarray, time: int, diff: int) -> pa.Table:
    size = len(values)
    columns = {"x": values, "time": np.full(size, time), "diff": np.full(size, diff)}
    return pa.table({name: pa.array(column, pa.int64()) for name, column in columns.items()})


@pytest.mark.parametrize(
    ("query", "sign"),
    [
        ("SELECT min(x) AS o FROM t", 1),
        ("SELECT max(x) AS o FROM t", -1),
        ("SELECT x FROM t ORDER BY x LIMIT 3", 1),
        ("SELECT x FROM t ORDER BY x DESC LIMIT 3", -1),
    ],
)
def test_rule_37_rows_long_gone_are_not_searched_again(
    query: str, sign: int, tmp_path: Path
) -> None:
    relation = Relation(CollectionId("t"), (Column("x", "BIGINT"),))
    local = LocalDataflow(compile_view(query, {"t": relation}).dataflow, tmp_path, buckets=1)
    values = sign * np.arange(ROWS)
    local.step(interval_of(0, 1, as_of=True), {0: updates(values, 0, 1)})
    local.step(interval_of(1, 2), {0: updates(values[:DELETED], 1, -1)})
    with counted() as work:
        outputs, _ = local.step(interval_of(2, 3), {0: updates(values[DELETED:][:1], 2, -1)})
    changes = [row for output in outputs for row in output.to_pylist()]
    assert {row["c0"] for row in changes if row["diff"] < 0} == {sign * DELETED}
    assert work.rows < DELETED / 10
