"""Random views against DuckDB at every time, and that the search for a wrong one finds it."""

import random
from dataclasses import replace

import duckdb
import pytest

from tests.random_sql.case import Case, case, parse
from tests.random_sql.chance import Chance
from tests.random_sql.constructs import Coverage
from tests.random_sql.judge import Judge, Refused
from tests.random_sql.search import Search
from tests.random_sql.tables import RARE, SIMPLE
from tests.support.plan_tables import as_text, connect

EACH = 25
"""Views a test: few. `.ci/run` has some minutes of `python -m tests.random_sql`."""

SIZES = 30
"""After so many a failure is shrunk enough to see that it is."""


@pytest.mark.parametrize(
    "first", [0, EACH, *(pytest.param(EACH * n, marks=pytest.mark.long) for n in (2, 3))]
)
def test_random_views_agree_with_duckdb_at_every_time(first: int) -> None:
    for failure in Search().run(first, EACH):
        pytest.fail(f"{failure.error}\n{failure.case.script()}", pytrace=False)


def test_the_whole_language_is_written() -> None:
    coverage = Coverage()
    for seed in range(3000):
        one = drawn(seed)
        coverage.kept(one.query, one.types)
    assert coverage.rare() == []
    assert min(coverage.types.values()) > 5
    assert set(coverage.types) == {*SIMPLE, *RARE}


def drawn(seed: int) -> Case:
    return case(Chance(random.Random(seed).randrange))


def test_a_case_is_the_same_as_a_script() -> None:
    for seed in range(50):
        one = drawn(seed)
        read = parse(one.script().removeprefix("view\n"))
        assert (read.query, read.pinned, read.script()) == (one.query, one.pinned, one.script())


WRONG = "table t a INTEGER\n@1 t +2 1\n@2 t -1 1\nSELECT a, count(*) AS n FROM t GROUP BY a"


@pytest.mark.parametrize(
    "pinned",
    [
        "SELECT a, 2 AS n FROM t GROUP BY a",  # right at one time of two
        "SELECT a, count(*) AS n FROM t GROUP BY a UNION ALL FROM (VALUES (1, 1))",
        "SELECT a, 10 // (count(*) - 1) AS n FROM t GROUP BY a",  # fails at the second
    ],
)
def test_a_view_that_says_something_else_is_noticed(pinned: str) -> None:
    right, judge = parse(WRONG), Judge()
    judge.judge(right)
    with pytest.raises(AssertionError, match="at "):
        judge.judge(replace(right, pinned=pinned))


def test_a_judge_closes_its_connection() -> None:
    """One that has functions and is open when the process ends is reported as a leak."""
    judge = Judge()
    connection = judge.connection
    del judge
    with pytest.raises(duckdb.ConnectionException):
        connection.execute("SELECT 1")


UNREAD = (
    "table t a INTEGER\n@1 t +1 1\ntable u b INTEGER\n@1 u +1 5\n@2 u +1 6\n"
    "SELECT a FROM (SELECT a, (SELECT b FROM u) AS c FROM t)"
)


def test_several_rows_for_a_value_count_where_it_is_read() -> None:
    drawn, judge = replace(parse(UNREAD), cuts=(3,)), Judge()
    view = judge.judge(drawn)
    assert (judge.undetermined, view.errors_at(2)) == (1, [])
    judge.load(drawn)
    several = "ELSE (SELECT b FROM u) END FROM t"
    read = replace(
        drawn, pinned=f"SELECT CASE (SELECT count(*) FROM u) WHEN 1 THEN a {several}"
    )
    with pytest.raises(AssertionError, match="at 2"):
        judge.compare(read, view)


FAILING = "table t a INTEGER\n@1 t +1 0\n@2 t +1 1\ntable u b INTEGER\n@1 u +1 7\n@2 u -1 7\n"


def test_a_query_that_duckdb_does_not_bind_is_no_failure_over_rows() -> None:
    judge = Judge()
    judge.connection.execute("CREATE TABLE t AS SELECT 1 AS a, NULL::INTEGER[] AS bins")
    assert judge.answer("SELECT histogram(a, bins) AS h FROM t", ["VARCHAR"], 0) is None
    assert "cannot be NULL" in judge.failure
    reduced = "SELECT list_reduce(b, lambda x, y: x + y) AS r FROM (SELECT []::INTEGER[] AS b)"
    assert judge.answer(reduced, ["INTEGER"], 0) is None
    assert "empty input list" in judge.failure
    with pytest.raises(Refused, match="nope"):
        judge.answer("SELECT nope FROM t", ["INTEGER"], 0)
    with pytest.raises(Refused):
        judge.answer("SELECT 'é' + 'è' FROM t", ["INTEGER"], 0)


def test_an_error_of_the_view_alone_is_noticed() -> None:
    drawn = parse(FAILING + "SELECT 10 // (a - 1) AS n FROM t")
    judge = Judge()
    judge.judge(drawn)
    with pytest.raises(AssertionError, match="at 2"):
        judge.judge(replace(drawn, pinned="SELECT 10 // nullif(a - 1, 0) AS n FROM t"))


def test_an_error_that_duckdb_does_not_come_to_is_told_by_the_plan() -> None:
    text = "SELECT n FROM (SELECT a, a::VARCHAR::DATE AS n FROM t) SEMI JOIN u ON a = b"
    judge = Judge()
    view = judge.judge(parse(FAILING + text))
    assert view.errors_at(2)
    assert judge.undetermined == 1


def test_a_plan_over_unions_is_asked_over_what_carries_them() -> None:
    text = (
        "table t c UNION(n INTEGER, t VARCHAR)\n@1 t +1 'x'\n"
        "SELECT c FROM t WHERE EXISTS (SELECT s.c::VARCHAR::DATE FROM t s WHERE s.c.t = 'x')"
    )
    judge = Judge()
    view = judge.judge(parse(text))
    assert (judge.undetermined, view.errors_at(1)) == (1, [])


def test_large_floats_are_told_apart_by_ten_digits() -> None:
    values = "1e17, 1.0000000001e17, 1.00000000000000016e17, 1e17 + 1e9, 999999.9999999999, 1e6"
    shown = as_text("x", "DOUBLE")
    connection = connect().execute(
        f"SELECT {shown} FROM (SELECT unnest([{values}]::DOUBLE[]) AS x)"
    )
    one, close, closest, other, below, million = (text for (text,) in connection.fetchall())
    assert one == close == closest != other
    assert below == million


def test_a_failure_is_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    search, sizes = Search(), list[int]()

    def compare(case: Case) -> None:
        if "LEFT JOIN" in case.query:
            sizes.append(len(case.script()))
            if len(sizes) == SIZES:
                search.shrink_until = 0.0
            search.remember(case, AssertionError("it joins"))
            raise AssertionError

    monkeypatch.setattr(search, "compare", compare)
    failure = next(search.run(0, 1000))
    assert failure.size == min(sizes)
    assert failure.size < sizes[0]
