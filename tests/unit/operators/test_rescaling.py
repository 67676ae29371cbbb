"""State over another number of buckets: exact at every time, and no row is written."""

import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.bench.tpch.columns import catalog
from streams.bench.tpch.queries import QUERIES, query
from streams.ids import CollectionId, Timestamp
from streams.operators.exchange import bucket_of, range_of
from streams.operators.local import LocalDataflow
from streams.operators.rescaling import rescaled
from streams.plan.compile import Relation, compile_view
from streams.plan.lowering.partitioning import StateSpread, state_spread
from streams.plan.physical import Column, Dataflow
from streams.progress import Interval, interval_of
from streams.trace.arrange.runs import RunFiles, clipped
from tests.random_sql.search import Search
from tests.support.flows import kernel, running, table

EACH = 20
NUMBERS = (1, 2, 3, 4, 5, 7, 8, 16)
TYPES = ("INTEGER", "INTEGER", "DOUBLE")
COLUMNS = tuple(map(Column, ("a", "b", "x"), TYPES))
GIVEN = {"t": Relation(CollectionId("t"), COLUMNS)}


def plan(text: str) -> Dataflow:
    return compile_view(text, GIVEN).dataflow


def rescale(local: LocalDataflow, buckets: int) -> bool:
    """Go on over another number of buckets; False, and as before, if the state cannot."""
    runs = rescaled(local.dataflow, local.runs, local.buckets, buckets)
    if runs is not None:
        local.runs = {bucket: dict(of_bucket) for bucket, of_bucket in runs.items()}
        local.buckets = buckets
    return runs is not None


@contextmanager
def rescaled_at_every_step(seed: int) -> Iterator[Counter[bool]]:
    """Local dataflows that go over to other buckets before each step, if their state can."""
    step, chance, results = LocalDataflow.step, random.Random(seed), Counter[bool]()

    def rescaling_step(
        local: LocalDataflow, interval: Interval, imports: Mapping[int, pa.Table]
    ) -> tuple[list[pa.Table], list[pa.Table]]:
        if local.runs:
            results[rescale(local, chance.choice(NUMBERS))] += 1
        output = step(local, interval, imports)
        check_ranges(local)
        return output

    with patch.object(LocalDataflow, "step", rescaling_step):
        yield results


def check_ranges(local: LocalDataflow) -> None:
    """What a bucket has by key is in its range of hashes."""
    spread = state_spread(local.dataflow)
    for bucket, runs in local.runs.items():
        low, high = range_of(bucket, local.buckets)
        for name, names in runs.items():
            if spread[int(name.partition(".")[0])] is StateSpread.BY_KEY:
                for run in local.context.files.open(names):
                    halves = run.hashes >> np.uint64(32)
                    assert low <= int(halves.min())
                    assert int(halves.max()) < high


@pytest.mark.parametrize(
    "first",
    [7000, *(pytest.param(7000 + EACH * n, marks=pytest.mark.long) for n in range(1, 30))],
)
def test_random_views_are_exact_while_buckets_change(first: int) -> None:
    with rescaled_at_every_step(first) as results:
        for failure in Search().run(first, EACH):
            pytest.fail(f"{failure.error}\n{failure.case.script()}", pytrace=False)
    assert results[True] > results[False]


KEYED = {
    "SELECT a, sum(b) AS s FROM t GROUP BY a",
    "SELECT DISTINCT a, b FROM t",
    "SELECT l.a, r.b FROM t l JOIN t r USING (a)",
    "SELECT a, count(*) AS n FROM (SELECT l.a FROM t l JOIN t r USING (a)) GROUP BY a",
    "SELECT DISTINCT ON (a) * FROM t ORDER BY a, b",
    "SELECT a, max(b) OVER (PARTITION BY a ORDER BY b) AS m FROM t",
    "SELECT count(*) AS n FROM t",
    "SELECT a FROM t EXCEPT ALL SELECT b FROM t",
}
OTHERS = {
    "SELECT l.a, l.b, count(*) AS n FROM t l JOIN t r USING (a) GROUP BY l.a, l.b",
    "SELECT x FROM t EXCEPT ALL SELECT a FROM t",  # -0.0 is a row of its own, and no key
}


@pytest.mark.parametrize("text", sorted(KEYED | OTHERS))
def test_the_spread_of_state_is_known(text: str) -> None:
    spread = set(state_spread(plan(text)))
    assert (StateSpread.OTHERWISE in spread) == (text in OTHERS)


@pytest.mark.parametrize("text", sorted(KEYED | OTHERS))
def test_views_go_on_over_other_buckets(text: str) -> None:
    """Those whose state tells no buckets apart go over to fewer ones that have whole ones."""
    flow, chance = plan(text), random.Random(text)
    changes = [
        ((chance.randrange(9), chance.randrange(5), float(chance.randrange(3))), time, 1)
        for time in range(6)
        for _ in range(40)
    ]
    sums: list[Counter[tuple[object, ...]]] = []
    for counts in ((2,) * 6, (2, 8, 3, 16, 1, 4)):
        total = Counter[tuple[object, ...]]()
        with running(flow) as local:
            for time, buckets in enumerate(counts):
                is_rescaled = rescale(local, buckets)
                assert is_rescaled or text in OTHERS
                rows = [change for change in changes if change[1] == time]
                outputs, errors = local.step(
                    interval_of(time, time + 1, as_of=time == 0), {0: table(rows, TYPES)}
                )
                assert not errors
                for row in (row for output in outputs for row in output.to_pylist()):
                    *values, diff = row.values()
                    total[*values] += diff
        sums.append(Counter({row: count for row, count in total.items() if count}))
    assert sums[0] == sums[1]
    assert sums[0]


CLOSING = """SELECT a, CAST(s AS INTEGER) AS n, ts FROM clicks
    WHERE mz_now() >= ts EMIT ON CLOSE (ts + INTERVAL '10 milliseconds')"""


@pytest.mark.parametrize("buckets", [1, 2, 8])
def test_an_error_that_never_was_stays_away_from_what_is_final(
    buckets: int, tmp_path: Path
) -> None:
    """What EMIT ON CLOSE calls an error stays one, so its end has to be in its bucket."""
    types = ("BIGINT", "VARCHAR", "TIMESTAMP")
    columns = tuple(map(Column, ("a", "s", "ts"), types))
    clicks = {"clicks": Relation(CollectionId("clicks"), columns)}
    flow = compile_view(CLOSING, clicks, (), Timestamp(0)).dataflow
    local = LocalDataflow(flow, tmp_path, kernel=kernel())
    start = datetime(1970, 1, 1)  # noqa: DTZ001 - a TIMESTAMP has no zone
    rows = [
        (number, "x" if number % 2 else "7", start + timedelta(milliseconds=20 + number))
        for number in range(20)
    ]
    local.step(interval_of(0, 1, as_of=True), {})
    local.step(interval_of(1, 2), {0: table([(row, 1, 1) for row in rows], types)})
    is_rescaled = rescale(local, buckets)
    assert is_rescaled == (buckets <= 2), "a bucket's rows are to stay together"
    outputs, errors = local.step(
        interval_of(2, 80), {0: table([(row, 2, -1) for row in rows], types)}
    )
    assert not errors
    assert not [row for output in outputs for row in output.to_pylist() if row["diff"]]


def test_state_whose_buckets_rows_do_not_tell_stays_as_it_is(tmp_path: Path) -> None:
    flow = plan(min(OTHERS, key=len))
    local = LocalDataflow(flow, tmp_path, kernel=kernel())
    rows = [((number, number, number / 2), 0, 1) for number in range(100)]
    local.step(interval_of(0, 1, as_of=True), {0: table(rows, TYPES)})
    before = dict(local.runs)
    assert not rescale(local, 8)
    assert (local.buckets, local.runs) == (2, before)
    assert rescale(local, 1), "all of a bucket is in one new bucket"


def test_most_of_tpch_is_rescaled() -> None:
    flows = {number: compile_view(query(number), catalog()).dataflow for number in QUERIES}
    fixed = [n for n, flow in flows.items() if StateSpread.OTHERWISE in state_spread(flow)]
    assert fixed == [3, 18, 20, 21, 22]


def test_no_file_is_written_and_every_row_is_in_one_bucket(tmp_path: Path) -> None:
    flow = plan("SELECT a, count(*) AS n FROM t GROUP BY a")
    local = LocalDataflow(flow, tmp_path, kernel=kernel())
    rows = [((number, 0, 0.0), 0, 1) for number in range(5000)]
    local.step(interval_of(0, 1, as_of=True), {0: table(rows, TYPES)})
    files = sorted(path.name for path in tmp_path.iterdir())
    assert rescale(local, 8)
    assert sorted(path.name for path in tmp_path.iterdir()) == files
    opened = [
        run
        for runs in local.runs.values()
        for names in runs.values()
        for run in local.context.files.open(names)
    ]
    assert sorted(local.runs) == list(range(8))
    assert sum(run.rows.num_rows for run in opened) == 5000
    estimated = [
        name[1] for runs in local.runs.values() for names in runs.values() for name in names
    ]
    assert sum(map(int, estimated)) == pytest.approx(5000, abs=8)


def test_parts_that_meet_again_are_one_run(tmp_path: Path) -> None:
    flow = plan("SELECT a, count(*) AS n FROM t GROUP BY a")
    local = LocalDataflow(flow, tmp_path, kernel=kernel(), merge_factor=0)
    for time in range(3):
        rows = [((number, 0, 0.0), time, 1) for number in range(900 >> time)]
        local.step(interval_of(time, time + 1, as_of=time == 0), {0: table(rows, TYPES)})
    before = Counter(len(names) for runs in local.runs.values() for names in runs.values())
    assert rescale(local, 8)
    assert rescale(local, 2)
    after = Counter(len(names) for runs in local.runs.values() for names in runs.values())
    assert after == before == {3: 2}


@given(st.integers(1, 4096), st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_a_bucket_is_a_range_of_hashes(buckets: int, hashes: list[int]) -> None:
    words = np.array(hashes, np.uint64)
    for word, bucket in zip(hashes, bucket_of(words, buckets), strict=True):
        low, high = range_of(int(bucket), buckets)
        assert low <= word >> 32 < high
    edges = [range_of(bucket, buckets) for bucket in range(buckets)]
    assert [edges[0][0], edges[-1][1]] == [0, 1 << 32]
    assert all(left[1] == right[0] for left, right in pairwise(edges))


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1), st.lists(st.integers(1, 9), max_size=4))
def test_parts_of_parts_of_a_run_are_its_rows(hashes: list[int], counts: list[int]) -> None:
    column = pa.array(np.sort(np.array(hashes, np.uint64)))
    with tempfile.TemporaryDirectory() as directory:
        written = RunFiles(Path(directory), lambda: "r")
        parts = written.write([pa.RecordBatch.from_arrays([column], ["h"])])
        for count in counts:
            ranges = [range_of(bucket, count) for bucket in range(count)]
            cut = [clipped(part, *range_) for part in parts for range_ in ranges]
            parts = [part for part in cut if part is not None]
        read = RunFiles(Path(directory), lambda: "s").open(parts)
        words = [int(word) for run in read for word in run.hashes]
    assert sorted(words) == column.to_pylist()
