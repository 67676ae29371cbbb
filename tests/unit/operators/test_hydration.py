"""Hydration in slices whose merges are larger than a piece: the same contents, to the bit."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streams.ids import CollectionId
from streams.operators.local import LocalDataflow
from streams.plan.compile import CompiledView, Relation, compile_view
from streams.plan.physical import Column
from streams.progress import interval_of
from streams.trace import updates as trace
from streams.trace.arrange.runs import PIECE
from streams.trace.kernel.kernel import arrow_schema
from tests.support.flows import kernel

COLUMNS = (Column("k", "BIGINT"), Column("v", "BIGINT"), Column("s", "VARCHAR"))
ROWS, SLICE, LITTLE = 1200, 200, 1 << 10
QUERIES = {
    "join": "SELECT d.k, d.v, t.s FROM d JOIN t ON d.k = t.k AND d.v = t.v + 1",
    "delta_join": "SELECT a.v, c.s FROM t a JOIN t b ON a.v = b.k JOIN t c ON b.v = c.k",
    "group": "SELECT k, count(*) AS n, sum(v) AS s, max(s) AS m FROM t GROUP BY k",
    "extremes": "SELECT min(s) AS least, max(v) AS most FROM t",
    "distinct": "SELECT DISTINCT s FROM t",
    "count_distinct": "SELECT count(DISTINCT s) AS n FROM t",
    "except": "SELECT k, v FROM t EXCEPT ALL SELECT k, v + 1 FROM d",
    "top_k": "SELECT k, v FROM t ORDER BY v DESC, k LIMIT 10",
    "lag": "SELECT v, lag(v) OVER (PARTITION BY k % 3 ORDER BY v) AS b FROM t",
    "moving_sum": "SELECT v, sum(k) OVER (ORDER BY v ROWS 5 PRECEDING) AS s FROM t",
    "median": "SELECT k % 20 AS p, median(v) AS m FROM t GROUP BY k % 20",
    "list": "SELECT k % 50 AS p, list(s ORDER BY s) AS l FROM t GROUP BY k % 50",
    "temporal": "SELECT k, s FROM t WHERE mz_now() <= v",
}


def updates(numbers: np.ndarray, time: int, diff: int) -> pa.Table:
    keys = pa.array(numbers // 7)
    names = pa.array([f"name {number * 37 % 1009}" for number in numbers.tolist()])
    same = np.ones(len(numbers), np.int64)
    return pa.table([keys, numbers, names, same * time, same * diff], names=[*"kvs", "t", "n"])


def said(
    compiled: CompiledView, directory: Path, piece: int, *, parallel: bool = False
) -> tuple[list[str], int]:
    """The updates of a view, slice by slice; and of how many pieces its longest run was."""
    flow = compiled.dataflow
    local = LocalDataflow(flow, directory, piece=piece, kernel=kernel(), parallel=parallel)
    local.step(interval_of(0, 1, as_of=True), {})
    numbers = np.random.default_rng(2).permutation(ROWS)
    deleted = numbers[::9]
    slices = [(some, 1) for some in np.split(numbers, range(SLICE, ROWS, SLICE))]
    slices += [(some, -1) for some in np.split(deleted, range(SLICE, len(deleted), SLICE))]
    outputs, most = list[pa.Table](), 0
    for time, (some, diff) in enumerate(slices, 1):
        step = {
            index: updates(some, time, diff).select(
                [*(c.name for c in imported.columns), "t", "n"]
            )
            for index, imported in enumerate(flow.imports)
        }
        output, errors = local.step(interval_of(time, time + 1), step)
        assert not errors
        outputs += output
        for bucket, state in local.runs.items():
            open_runs = local.contexts[bucket % len(local.contexts)].files.open
            for run in (run for names in state.values() for run in names):
                most = max(most, len(open_runs([run])))
    schema = arrow_schema([column.type for column in flow.output])
    rows = trace.consolidate(trace.flatten(outputs, schema), kernel())
    return sorted(map(str, rows.to_pylist())), most


@pytest.mark.parametrize("name", QUERIES)
def test_hydrated_in_pieces(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    catalog = {name: Relation(CollectionId(name), COLUMNS) for name in ("t", "d")}
    compiled = compile_view(QUERIES[name], catalog)
    unsliced, one = said(compiled, tmp_path_factory.mktemp("whole"), PIECE)
    pieces, several = said(compiled, tmp_path_factory.mktemp("pieces"), LITTLE)
    assert one == 1
    assert several > 2
    assert pieces == unsliced
    assert unsliced


@pytest.mark.parametrize("name", ["join", "delta_join", "group", "top_k"])
def test_hydrated_by_two_threads(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    catalog = {name: Relation(CollectionId(name), COLUMNS) for name in ("t", "d")}
    compiled = compile_view(QUERIES[name], catalog)
    one, _ = said(compiled, tmp_path_factory.mktemp("one"), PIECE)
    both, _ = said(compiled, tmp_path_factory.mktemp("both"), PIECE, parallel=True)
    assert both == one
