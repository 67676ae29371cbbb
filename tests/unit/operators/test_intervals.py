"""Intervals in views: what went in comes out, and what Arrow cannot carry is an error."""

import pyarrow as pa
import pytest

from streams.errors import InvalidStatement
from streams.testing import Maintained, maintain
from tests.support.plan_tables import connect

VALUES = {
    1: "INTERVAL '-5 s'",
    2: "INTERVAL '30 days'",
    3: "INTERVAL '1 month'",
    4: "INTERVAL '36 hours'",
    5: "INTERVAL '1 day 12 hours'",
    6: "INTERVAL '-5 s'",
}
TABLES = {"t": "id INTEGER, i INTERVAL, h INTEGER, f DOUBLE"}


def rows(*ids: int, hours: int = 1) -> pa.Table:
    """Rows that are there at 0; the last one goes at 1."""
    zeros = ["0.0", "'-0.0'"]
    listed = ", ".join(
        f"({id_}, {VALUES[id_]}, {hours}, {zeros[id_ % 2]}::DOUBLE, {time}, {diff})"
        for id_, time, diff in [*((id_, 0, 1) for id_ in ids), (ids[-1], 1, -1)]
    )
    text = f"FROM (VALUES {listed}) AS v(id, i, h, f, _time, _diff)"
    with connect() as connection:
        connection.execute("SET arrow_lossless_conversion = true")
        return connection.sql(text).to_arrow_table()


def view(query: str, *ids: int, hours: int = 1) -> Maintained:
    return maintain(query, TABLES, {"t": rows(*ids, hours=hours)}, [1, 2])


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("SELECT list(i ORDER BY id)::VARCHAR FROM t", "['-00:00:05', 30 days, 1 month]"),
        ("SELECT first(i ORDER BY id)::VARCHAR FROM t", "-00:00:05"),
        ("SELECT min(i)::VARCHAR FROM t", "-00:00:05"),
        ("SELECT max(i)::VARCHAR FROM t WHERE id = 2", "30 days"),
        ("SELECT mode(i)::VARCHAR FROM t", "30 days"),
        ("SELECT list({'k': i} ORDER BY id)::VARCHAR FROM t WHERE id = 1",
         "[{'k': '-00:00:05'}]"),
        ("SELECT histogram(i ORDER BY id)::VARCHAR FROM t", "{'-00:00:05'=1, 30 days=2}"),
        ("SELECT list(DISTINCT i ORDER BY i)::VARCHAR FROM t", "['-00:00:05', 1 month]"),
        ("SELECT i::VARCHAR FROM (SELECT i FROM t WHERE id = 1 GROUP BY i)", "-00:00:05"),
        ("SELECT i::VARCHAR FROM (SELECT DISTINCT i FROM t WHERE id = 1)", "-00:00:05"),
        ("SELECT k::VARCHAR FROM (SELECT DISTINCT {'i': i} AS k FROM t WHERE id = 1)",
         "{'i': '-00:00:05'}"),
        ("SELECT k::VARCHAR FROM (SELECT [i] AS k, count(*) FROM t WHERE id = 1 GROUP BY 1)",
         "['-00:00:05']"),
        ("SELECT i::VARCHAR FROM (FROM t WHERE id = 1 UNION FROM t WHERE h > 1)", "-00:00:05"),
        ("SELECT list(f ORDER BY id)::VARCHAR FROM t", "[-0.0, 0.0, -0.0]"),
        ("SELECT list(DISTINCT f)::VARCHAR FROM t WHERE id = 1", "[-0.0]"),
    ],
)  # fmt: skip
def test_values_are_shown_as_they_came(query: str, text: str) -> None:
    assert view(query, 1, 2, 3, 6).at(1).column(0).to_pylist() == [text]


def test_the_average_of_distinct_intervals_divides_their_parts() -> None:
    fetched = view("SELECT avg(DISTINCT i)::VARCHAR AS a FROM t", 1, 6, 2)
    assert fetched.at(1)["a"].to_pylist() == ["-00:00:05"]
    assert fetched.at(0)["a"].to_pylist() == ["15 days -00:00:02.5"]


@pytest.mark.parametrize(
    "expression", ["to_hours(h)", "{'k': [to_hours(h)]}", "MAP {'k': to_hours(h)}"],
    ids=["plain", "nested", "map"],
)  # fmt: skip
@pytest.mark.parametrize(("hours", "is_far"), [(2562046, False), (-2562047, True)])
def test_an_interval_beyond_what_arrow_counts_is_an_error_of_its_row(
    expression: str, hours: int, *, is_far: bool
) -> None:
    fetched = view(f"SELECT id, {expression} AS x FROM t", 1, 2, hours=hours)
    assert fetched.at(0).num_rows == (0 if is_far else 2)
    assert len(fetched.errors_at(0)) == (2 if is_far else 0)
    assert len(fetched.errors_at(1)) == (1 if is_far else 0)


def test_what_an_expression_has_by_the_way_may_be_of_any_size() -> None:
    fetched = view("SELECT to_hours(h)::VARCHAR AS x FROM t", 1, 2, hours=3000000)
    assert fetched.at(1)["x"].to_pylist() == ["3000000:00:00"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT INTERVAL '3000000 hours' AS x FROM t",
        "SELECT max(x) AS x FROM (SELECT to_hours(h * 3000000) AS x FROM t)",
    ],
)
def test_what_does_not_fit_is_an_error_wherever_it_comes_from(query: str) -> None:
    assert view(query, 1, 2).errors_at(0)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT max(x) AS x FROM (VALUES (INTERVAL '3000000 hours')) AS v(x)",
        "SELECT lag(i, 1, INTERVAL '3000000 hours') OVER (ORDER BY id) AS x FROM t",
    ],
)
def test_a_constant_beside_rows_that_does_not_fit_is_refused(query: str) -> None:
    with pytest.raises(InvalidStatement, match="interval below 292 years"):
        view(query, 1)
