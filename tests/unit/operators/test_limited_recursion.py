"""A recursion below a LIMIT without ORDER BY: rows of the first iterations, and an end."""

import random
from collections import Counter
from itertools import accumulate

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streams.operators.iterative import ArrivedChanges
from streams.testing import maintain
from streams.trace.columns import Words
from tests.support.examples import examples
from tests.support.plan_tables import connect
from tests.support.recursive import TIMES, Histories, fill, histories, kept

MOST = 6
"""Of a recursion without an end so many iterations have at least so many rows."""
WALKS = (
    "WITH RECURSIVE t(x, n) AS (SELECT a, 1 FROM r UNION ALL"
    " SELECT {term} FROM t JOIN e ON a = x{bound}) SELECT {shown} FROM t"
)
TERMS = {
    "walks": ("b, n + 1", "x, n"),
    "other columns": ("b, n + 1", "n, x % 2 AS y, x"),
    "lists": ("unnest([b, b + 1]), n + 1", "x, n"),
}


def iterations(at: Histories, time: int, term: str, shown: str) -> list[Counter[str]]:
    """The rows of each iteration, by DuckDB, up to one that a LIMIT of MOST does not need."""
    connection = connect()
    fill(connection, at, time)
    bound = f" WHERE n < {MOST + 1}"
    walks = WALKS.format(term=term, bound=bound, shown="n AS depth, " + shown)
    depths = [Counter[str]() for _ in range(MOST + 1)]
    for depth, *row in connection.execute(walks).fetchall():
        depths[depth - 1][str(tuple(row))] += 1
    return depths


@given(st.sampled_from(sorted(TERMS)), st.integers(1, MOST), st.integers(0, 2**32))
@example("walks", 4, 0)  # takes rows of the second iteration before one of the first
@example("other columns", 1, 0)  # DuckDB's plan has the LIMIT below the projection
@examples(6)
def test_a_limit_takes_rows_of_the_first_iterations(name: str, most: int, seed: int) -> None:
    """Over graphs with cycles, where the recursion has no end of its own.

    Which rows it takes of the iterations that it needs is free.
    """
    chance = random.Random(seed)
    changes = histories(chance, nodes=3, edges=5)
    term, shown = TERMS[name]
    query = WALKS.format(term=term, bound="", shown=shown)
    cuts = chance.choice([None, [2, 3, TIMES], [TIMES]])
    view = kept(f"{query} LIMIT {most}", changes, cuts)
    for time in range(view.since, view.upper):
        assert not view.errors_at(time)
        actual = Counter(str(tuple(row.values())) for row in view.at(time).to_pylist())
        depths = iterations(changes, time, term, shown)
        ends = list(accumulate(depths))
        last = next((i for i, rows in enumerate(ends) if rows.total() >= most), MOST)
        assert actual <= ends[last], time
        assert actual.total() == min(most, ends[last].total()), time


COUNTER = "WITH RECURSIVE t(n) AS (SELECT 1 UNION {all} SELECT n + 1 FROM t) SELECT n FROM t"


@pytest.mark.parametrize("all_", ["", "ALL"])
@pytest.mark.parametrize(
    ("rest", "numbers"),
    [
        ("LIMIT 3", [1, 2, 3]),
        ("LIMIT 2 OFFSET 3", [4, 5]),
        ("LIMIT 0", []),
        ("WHERE n % 2 = 0 LIMIT 2", [2, 4]),
    ],
)
def test_a_recursion_without_an_end_has_the_rows_of_its_limit(
    rest: str, numbers: list[int], all_: str
) -> None:
    view = maintain(f"{COUNTER.format(all=all_)} {rest}", {}, {})
    assert not view.errors_at(0)
    assert sorted(row["n"] for row in view.at(0).to_pylist()) == numbers


def test_a_recursion_of_which_a_limit_does_not_get_enough_is_an_error() -> None:
    limited = COUNTER.format(all="ALL").replace(
        "RECURSIVE", "RECURSIVE (ERROR AT RECURSION LIMIT 5)"
    )
    assert not maintain(f"{limited} LIMIT 5", {}, {}).errors_at(0)
    errors = maintain(f"{limited} LIMIT 6", {}, {}).errors_at(0)
    assert "recursion t still changes after 5 iterations" in errors


def test_an_iteration_beyond_the_limit_is_not_computed() -> None:
    """DuckDB does not meet the failure there either."""
    counter = COUNTER.format(all="ALL").replace("n + 1", "(n + 100)::TINYINT::INTEGER")
    assert not maintain(f"{counter} LIMIT 2", {}, {}).errors_at(0)
    assert maintain(f"{counter} LIMIT 3", {}, {}).errors_at(0)


def test_rows_that_come_and_go_end_it_later_and_earlier() -> None:
    """Each time has its own last iteration, whatever was computed for the ones before."""
    rows = pa.table({"a": [0, 100, 0, 0], "_time": [0, 1, 2, 3], "_diff": [1, 1, -1, 1]})
    query = (
        "WITH RECURSIVE t(n) AS (SELECT a FROM r UNION ALL SELECT n + 1 FROM t)"
        " SELECT n FROM t LIMIT 4"
    )
    for cuts in ([1, 2, 3, 4], [4]):
        view = maintain(query, {"r": "a BIGINT"}, {"r": rows}, cuts)
        actual = [Counter(row["n"] for row in view.at(time).to_pylist()) for time in range(4)]
        want = [[0, 1, 2, 3], [0, 1, 100, 101], [100, 101, 102, 103], [0, 1, 100, 101]]
        assert actual == list(map(Counter, want))


def test_an_iteration_keeps_the_rows_that_it_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not that the LIMIT lacks rows, which each says and the next one takes back."""
    added = [0]
    add = ArrivedChanges.add

    def counted(
        self: ArrivedChanges, hashes: Words, iteration: int, rows: pa.RecordBatch
    ) -> None:
        added[-1] += rows.num_rows
        add(self, hashes, iteration, rows)

    monkeypatch.setattr(ArrivedChanges, "add", counted)
    for most in (4, 8, 16):
        maintain(f"{COUNTER.format(all='ALL')} LIMIT {most}", {}, {})
        added.append(0)
    four, eight, sixteen, _ = added
    assert 0 < four < eight
    assert sixteen - eight <= 2 * (eight - four)
