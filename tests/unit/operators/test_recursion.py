"""Recursion at every time: random graphs with cycles, rows that cancel, any cut of time."""

import json
import random
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.ids import CollectionId
from streams.operators.local import LocalDataflow
from streams.plan.compile import Relation, compile_view
from streams.plan.physical import Column, Dataflow
from streams.progress import Interval, interval_of
from streams.trace import updates as trace
from streams.trace.kernel.kernel import Kernel, arrow_schema
from tests.support.examples import examples
from tests.support.recursive import (
    MUTUAL,
    RECURSIVE,
    TABLES,
    TIMES,
    Histories,
    History,
    histories,
    judge,
    kept,
    updates,
)

QUERIES = RECURSIVE | MUTUAL


def dataflow(query: str) -> Dataflow:
    catalog = {
        name: Relation(
            CollectionId(name), tuple(Column(*column.split()) for column in columns.split(", "))
        )
        for name, columns in TABLES.items()
    }
    return compile_view(query, catalog).dataflow


def cuts(chance: random.Random) -> list[int] | None:
    some = sorted(chance.sample(range(1, TIMES), chance.randrange(TIMES - 1)))
    return chance.choice([None, [*some, TIMES]])


@pytest.mark.parametrize("name", QUERIES)
@given(st.integers(0, 2**32))
@examples(3)
def test_every_recursion_is_what_a_naive_evaluation_says(name: str, seed: int) -> None:
    chance = random.Random(seed)
    changes = histories(chance, nodes=chance.choice([3, 4, 6]))
    view = kept(QUERIES[name], changes, cuts(chance), chance.randint(1, 3))
    judge(view, QUERIES[name], changes)


@given(st.sampled_from(sorted(QUERIES)), st.integers(0, 2**32))
@examples(3)
def test_how_time_is_cut_does_not_show(name: str, seed: int) -> None:
    changes = histories(random.Random(seed))
    views = [kept(QUERIES[name], changes, [*some, TIMES]) for some in ([], [1, 2, 3, 4], [3])]
    since = max(3, *(view.since for view in views))
    first, *others = ([view.at(t).to_pylist() for t in range(since, TIMES)] for view in views)
    for other in others:
        assert [sorted(map(str, at)) for at in other] == [sorted(map(str, at)) for at in first]


@given(st.sampled_from(sorted(QUERIES)), st.integers(0, 2**32))
@examples(3)
def test_a_view_born_later_goes_on_as_the_older_one(name: str, seed: int) -> None:
    """Hydrated at 2 from rows that were brought there, it has the same contents from 2 on."""
    changes = histories(random.Random(seed))
    brought = {
        name: [(row, max(at, 2), diff) for row, at, diff in rows]
        for name, rows in changes.items()
    }
    old, young = (kept(QUERIES[name], rows, [3, 4, TIMES]) for rows in (changes, brought))
    for time in range(2, TIMES):
        one, other = (view.at(time).to_pylist() for view in (old, young))
        assert sorted(map(str, one)) == sorted(map(str, other))


@given(st.sampled_from(sorted(QUERIES)), st.integers(0, 2**32))
@examples(3)
def test_another_worker_goes_on_from_the_run_files(name: str, seed: int) -> None:
    changes = histories(random.Random(seed))
    flow = dataflow(QUERIES[name])
    steps = [interval_of(0, 2, as_of=True), interval_of(2, 4), interval_of(4, 5)]
    assert (
        run(flow, changes, steps, restarts=True)
        == run(flow, changes, steps, restarts=False)
        == run(flow, changes, steps, restarts=False, merge_factor=1000)
    )


def run(
    flow: Dataflow,
    changes: Histories,
    steps: list[Interval],
    *,
    restarts: bool,
    merge_factor: int = 2,
) -> list[str]:
    """The updates of the steps, each by a worker that knows no more than names of runs."""
    parts: list[pa.Table] = []
    with tempfile.TemporaryDirectory() as directory:
        local = LocalDataflow(flow, Path(directory), 2, merge_factor)
        for number, interval in enumerate(steps):
            if restarts and number:
                state = json.loads(json.dumps(local.runs))
                where = Path(directory)
                local = LocalDataflow(flow, where, 2, merge_factor)
                names = (f"again{number}-{i}" for i in range(10**6))
                object.__setattr__(local.context, "new_name", names.__next__)
                local.runs = {int(bucket): runs for bucket, runs in state.items()}
            output, errors = local.step(interval, imports(flow, changes, interval))
            assert not errors
            parts += output
    schema = arrow_schema([column.type for column in flow.output])
    settled = trace.consolidate(trace.flatten(parts, schema), Kernel())
    return sorted(map(str, settled.to_pylist()))


def imports(flow: Dataflow, changes: Histories, interval: Interval) -> dict[int, pa.Table]:
    tables = {}
    for index, imported in enumerate(flow.imports):
        rows = updates(changes[str(imported.collection)], len(imported.columns))
        types = arrow_schema([column.type for column in imported.columns])
        batch = trace.flatten([rows], types)
        tables[index] = pa.Table.from_batches(
            [trace.clip(batch, int(interval.lower), int(interval.upper))]
        )
    return tables


LINE: Histories = {"e": [((i, i + 1), 0, 1) for i in range(5)], "r": [((0,), 0, 1)]}
RING = (
    "WITH RECURSIVE t(x, n) AS (SELECT a, 0 FROM r UNION ALL"
    " SELECT b, n + 1 FROM t JOIN e ON a = x)"
)
"""Has an end as long as there is no cycle."""


def test_an_edge_of_a_cycle_goes_and_its_facts_with_it() -> None:
    """Facts on a cycle support each other; what led there is gone (rule 25)."""
    edges: History = [
        ((0, 1), 0, 1),
        ((1, 2), 0, 1),
        ((2, 3), 0, 1),
        ((3, 1), 0, 1),
        ((0, 1), 2, -1),
    ]
    changes: Histories = {"e": edges, "r": LINE["r"]}
    for some in ([1, 2, 3], [3]):
        view = kept(RECURSIVE["reachable"], changes, some)
        assert sorted(row["x"] for row in view.at(1).to_pylist()) == [0, 1, 2, 3]
        assert [row["x"] for row in view.at(2).to_pylist()] == [0]


@pytest.mark.parametrize("some", [[1, 2, 3, 4, 5], [5], [3, 5]])
def test_a_recursion_without_an_end_is_an_error_until_its_cause_is_gone(
    some: list[int],
) -> None:
    limited = RING.replace("RECURSIVE", "RECURSIVE (ERROR AT RECURSION LIMIT 20)")
    cycle: History = [((5, 3), 2, 1), ((5, 3), 4, -1)]
    view = kept(f"{limited} SELECT x, n FROM t", LINE | {"e": LINE["e"] + cycle}, some)
    text = "recursion t still changes after 20 iterations"
    assert [view.errors_at(time) for time in range(5)] == [[], [], [text], [text], []]
    want = [(i, i) for i in range(6)]
    for time in (0, 1, 4):
        assert sorted((row["x"], row["n"]) for row in view.at(time).to_pylist()) == want


def test_the_limit_counts_iterations_and_the_base_is_the_first() -> None:
    """Six rows need six iterations; a seventh finds nothing new."""
    for most, errors in ((5, 1), (6, 0), (7, 0)):
        words = f"RECURSIVE (ERROR AT RECURSION LIMIT {most})"
        query = RING.replace("RECURSIVE", words) + " SELECT x FROM t"
        assert len(kept(query, LINE, None).errors_at(0)) == errors, most


def test_a_recursion_may_return_what_it_has_at_its_limit() -> None:
    words = "RECURSIVE (RETURN AT RECURSION LIMIT 4)"
    view = kept(RING.replace("RECURSIVE", words) + " SELECT x FROM t", LINE, None)
    assert sorted(row["x"] for row in view.at(0).to_pylist()) == [0, 1, 2, 3]
    assert not view.errors_at(0)


def test_counts_that_double_at_each_iteration_are_an_error_before_they_are_wrong() -> None:
    """Doubled 64 times, a count would be zero in 64 bits and the loop would seem to end."""
    words = "RECURSIVE (ERROR AT RECURSION LIMIT 80)"
    query = RING.replace("t(x, n)", "t(x)").replace("a, 0", "a").replace("b, n + 1", "b")
    edges: History = [((0, 0), 0, 1), ((0, 0), 1, 1), ((0, 0), 2, -2)]
    changes: Histories = {"e": edges, "r": LINE["r"]}
    for some in ([1, 2, 3], [3]):
        view = kept(query.replace("RECURSIVE", words) + " SELECT x FROM t", changes, some)
        assert view.errors_at(0) == ["recursion t still changes after 80 iterations"]
        assert "the multiplicity of a row exceeds 1099511627776" in view.errors_at(1)
        assert not view.errors_at(2)
        assert view.at(2).to_pylist() == [{"x": 0}]


def test_an_error_of_one_iteration_stays_to_the_end_until_its_row_is_gone() -> None:
    """Though no later iteration meets it: the last one of a recursion is empty."""
    query = (
        "WITH RECURSIVE (ERROR AT RECURSION LIMIT 30) t(x) AS (SELECT a FROM r UNION ALL"
        " SELECT max(b)::TINYINT::BIGINT FROM t JOIN e ON a = x GROUP BY x) SELECT x FROM t"
    )
    text = "cannot evaluate CAST(CAST(max(b) AS TINYINT) AS BIGINT)"
    edges: History = [((0, 1000), 1, 1), ((0, 1000), 2, -1), ((0, 7), 3, 1)]
    for some in ([1, 2, 3, 4], [4]):
        view = kept(query, {"e": edges, "r": LINE["r"]}, some)
        assert [view.errors_at(time) for time in range(4)] == [[], [text], [], []]
        assert sorted(row["x"] for row in view.at(3).to_pylist()) == [0, 7]


def test_a_change_at_the_end_of_a_deep_recursion_makes_few_rows_move() -> None:
    line: History = [((i, i + 1), 0, 1) for i in range(60)]
    changes: Histories = {"e": [*line, ((59, 60), 1, -1)], "r": LINE["r"]}
    view = kept(f"{RING} SELECT x, n FROM t", changes, None)
    assert [row for row in view.updates.to_pylist() if row["_time"] == 1] == [
        {"x": 60, "n": 60, "_time": 1, "_diff": -1}
    ]


def test_a_shorter_way_goes_and_the_longer_one_counts_where_it_ends() -> None:
    """Nothing arrives at that iteration: what was stored there must be visited again."""
    edges: History = [((0, 1), 0, 1), ((0, 2), 0, 1), ((2, 1), 0, 1), ((0, 1), 1, -1)]
    view = kept(RECURSIVE["reachable"], {"e": edges, "r": LINE["r"]}, [1, 2])
    assert sorted(row["x"] for row in view.at(1).to_pylist()) == [0, 1, 2]
