"""Views that call Python functions: every row on its own, whichever rows come with it."""

import pyarrow as pa
import pytest

from streams.errors import InvalidStatement, InvalidUsage
from streams.testing import maintain

INVERSE = """CREATE FUNCTION inverse(x BIGINT) RETURNS BIGINT LANGUAGE PYTHON AS $$
import pyarrow as pa

def inverse(x):
    return pa.array([None if v is None else 100 // v for v in x.to_pylist()], pa.int64())
$$"""
TABLES = {"t": "a BIGINT"}


def table(*values: int | None, at: int = 1, diff: int = 1) -> pa.Table:
    count = len(values)
    columns = {"a": values, "_time": [at] * count, "_diff": [diff] * count}
    return pa.table({name: pa.array(column, pa.int64()) for name, column in columns.items()})


@pytest.mark.parametrize("bad", [0, 2047, 2048, 4999])
def test_one_bad_row_costs_no_other_row_its_result(bad: int) -> None:
    values = [0 if place == bad else 1 + place % 7 for place in range(5000)]
    updates = pa.concat_tables([table(*values), table(0, at=2, diff=-1)])
    query = "SELECT inverse(a) AS i, count(*) AS n FROM t GROUP BY 1"
    view = maintain(query, TABLES, {"t": updates}, functions=INVERSE)
    expected = {100 // value: values.count(value) for value in values if value}
    for time, errors in ((1, ["cannot evaluate inverse(a)"]), (2, [])):
        actual = {row["i"]: row["n"] for row in view.at(time).to_pylist()}
        assert actual == expected
        assert view.errors_at(time) == errors


@pytest.mark.parametrize("cuts", [None, [3]])
@pytest.mark.parametrize("result", ["x.slice(0, 1)", "x.cast('double')"])
def test_what_breaks_its_promise_fails_alone_or_in_company(
    cuts: list[int] | None, result: str
) -> None:
    body = f"$$def f(x): return {result}$$"
    text = f"CREATE FUNCTION f(x BIGINT) RETURNS BIGINT LANGUAGE PYTHON AS {body}"
    updates = pa.concat_tables([table(1), table(2, 3, 4, at=2)])
    view = maintain("SELECT f(a) AS r FROM t", TABLES, {"t": updates}, cuts, functions=[text])
    assert view.at(2).num_rows == 0
    assert view.errors_at(2) == ["cannot evaluate f(a)"] * 4


def test_a_call_of_constants_fails_only_rows_that_reach_it() -> None:
    query = "SELECT a FROM t WHERE a > 1 AND inverse(0) = 1"
    view = maintain(query, TABLES, {"t": table(1, 2)}, functions=INVERSE)
    assert len(view.errors_at(1)) == 1
    query = "SELECT a + inverse(50) AS b FROM t"
    view = maintain(query, TABLES, {"t": table(1, 2)}, functions=INVERSE)
    assert sorted(view.at(1)["b"].to_pylist()) == [3, 4]


def test_functions_are_statements_that_create_them() -> None:
    for text, error in (
        ("SHOW FUNCTIONS", InvalidUsage),
        (INVERSE.replace("def inverse", "def other"), InvalidStatement),
        (INVERSE.replace("inverse", "abs"), InvalidStatement),
    ):
        with pytest.raises(error):
            maintain("SELECT a FROM t", TABLES, {}, functions=text)
