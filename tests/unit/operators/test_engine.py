"""The engine's own promises: replays, births, packets, fingerprints."""

import itertools
from pathlib import Path

import pyarrow as pa
import pytest

from streams.errors import InvalidUsage
from streams.operators.context import Context, EngineOutput
from streams.operators.engine import RunsByOperator, advance, fingerprint, start
from streams.plan.physical import Aggregate, Constant, Dataflow, Distinct, Reduce, Union
from streams.progress import interval_of
from streams.trace.arrange.runs import RunCache, RunName
from tests.support.flows import dataflow, kernel, run, table

TYPES = ["INTEGER", "VARCHAR"]
COUNT = (Aggregate("count", None, "BIGINT"), Aggregate("max", 1, "VARCHAR"))
counter = itertools.count()


def context(directory: Path) -> Context:
    return Context(directory, kernel(), lambda: f"file{next(counter)}", RunCache())


def rows(emitted: EngineOutput) -> list[str]:
    tables = [part for part in (emitted.output, emitted.errors) if part is not None]
    return sorted(str(row) for part in tables for row in part.to_pylist())


def test_a_replayed_step_emits_the_same_and_writes_new_files(tmp_path: Path) -> None:
    flow = dataflow([TYPES], (Reduce(0, (0,), COUNT), ["INTEGER", "BIGINT", "VARCHAR"], 1))
    worker = context(tmp_path)

    def step(
        updates: list[tuple[tuple[int, str], int, int]], lower: int, runs: RunsByOperator
    ) -> tuple[EngineOutput, RunsByOperator]:
        interval = interval_of(lower, lower + 3, as_of=lower == 0)
        inbox: dict[tuple[int, str], list[pa.Table]] = {}
        for packet in start(flow, {0: table(updates, TYPES)}, interval, 1, worker).packets:
            inbox.setdefault((packet.node, packet.port), []).append(packet.table)
        return advance(flow, 1, 0, inbox, runs, interval, worker.of_task(), buckets=1)

    _, before = step([((1, "a"), 0, 1), ((2, "b"), 1, 1)], 0, {})
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    changes = [((1, "c"), 3, 1), ((1, "a"), 4, -1), ((2, "b"), 5, -1)]
    first, after = step(changes, 3, before)
    again, twice = step(changes[::-1], 3, before)
    assert rows(first) == rows(again)
    assert {path: path.read_bytes() for path in files} == files
    names = [
        {name for runs in runs_of.values() for name, _ in runs} for runs_of in (after, twice)
    ]
    assert not names[0] & names[1]


@pytest.mark.parametrize("buckets", [1, 2, 3, 4])
def test_one_bucket_alone_gives_birth(tmp_path: Path, buckets: int) -> None:
    types = ["BIGINT", "VARCHAR"]
    flow = dataflow(
        [TYPES],
        (Reduce(0, (), COUNT), types, 1),
        (Constant("SELECT 7::BIGINT AS c0, 'x' AS c1"), types, 1),
        (Union((1, 2)), types, 1),
    )
    for as_of, want in ((True, 2), (False, 0)):
        interval = interval_of(5, 6, as_of=as_of)
        emitted = [
            advance(flow, 1, bucket, {}, {}, interval, context(tmp_path), buckets=buckets)[0]
            for bucket in range(buckets)
        ]
        assert sum(part.output.num_rows for part in emitted if part.output) == want


def test_the_row_over_nothing_comes_back() -> None:
    flow = dataflow([TYPES], (Reduce(0, (), COUNT), ["BIGINT", "VARCHAR"], 1))
    history = run(flow, [[((1, "a"), 1, 1), ((1, "a"), 3, -1)]], [1, 2, 3, 4, 5])
    assert [dict(history.at(time)) for time in range(5)] == [
        {(0, None): 1},
        {(1, "a"): 1},
        {(1, "a"): 1},
        {(0, None): 1},
        {(0, None): 1},
    ]


def keyed() -> Dataflow:
    return dataflow([TYPES], (Distinct(0), TYPES, 1))


def test_packets_carry_one_row_a_key_and_time(tmp_path: Path) -> None:
    updates = [((n % 2, "same"), n % 3, 1) for n in range(600)]
    sent = start(
        keyed(), {0: table(updates, TYPES)}, interval_of(0, 3, as_of=True), 4, context(tmp_path)
    )
    assert sum(packet.table.num_rows for packet in sent.packets) == 6
    keys = [
        {tuple(row.values())[:2] for row in packet.table.to_pylist()} for packet in sent.packets
    ]
    assert sum(len(key) for key in keys) == len(set().union(*keys)) == 2
    assert {packet.level for packet in sent.packets} == {1}


def test_nothing_in_nothing_out(tmp_path: Path) -> None:
    worker = context(tmp_path)
    emitted = start(keyed(), {}, interval_of(0, 1), 2, worker)
    assert emitted == EngineOutput((), None, None)
    runs: dict[str, list[RunName]] = {"1.keys": [["kept", 3]]}
    after = advance(keyed(), 1, 0, {}, runs, interval_of(0, 1), worker, buckets=2)
    assert after == (EngineOutput((), None, None), runs)
    assert not list(tmp_path.iterdir())


def test_an_aggregate_over_what_cannot_be_summed_is_refused(tmp_path: Path) -> None:
    node = Reduce(0, (0,), (Aggregate("sum", 1, "VARCHAR"),))
    flow = dataflow([TYPES], (node, ["INTEGER", "VARCHAR"], 1))
    with pytest.raises(InvalidUsage, match="sum expects numbers"):
        start(
            flow, {0: table([((1, "a"), 0, 1)], TYPES)}, interval_of(0, 1), 1, context(tmp_path)
        )


def test_the_fingerprint_names_all_that_state_depends_on() -> None:
    for part in ("engine", "duckdb", "pyarrow", "hash"):
        assert part in fingerprint()
