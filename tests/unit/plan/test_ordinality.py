"""WITH ORDINALITY is rewritten, and nothing else is."""

import pytest

from streams.errors import InvalidStatement
from streams.plan.sql.ordinality import rewrite_ordinality


@pytest.mark.parametrize(
    "query",
    [
        "SELECT ') WITH ORDINALITY' FROM t",
        "SELECT 1 -- unnest(l) WITH ORDINALITY",
        'WITH "a" AS (SELECT 1) SELECT * FROM "a"',
        "SELECT * FROM (SELECT 1) WITH ORDINALITY",
        "SELECT * FROM somewhere(1) WITH ORDINALITY",
        ") WITH ORDINALITY",
    ],
)
def test_other_text_stays_as_it_is(query: str) -> None:
    assert rewrite_ordinality(query) == query


LIST = 'FROM t, (SELECT unnest("values of the call") AS "unnest",'


@pytest.mark.parametrize(
    ("call", "ends"),
    [
        ("unnest(l) WITH ORDINALITY", ') AS "unnest"'),
        ("unnest(l) with ordinality AS q(x, o)", ") AS q(x, o)"),
        ('unnest(l) WITH ORDINALITY "a b" (c)', ') "a b" (c)'),
        ("unnest(l) WITH ORDINALITY JOIN u ON true", ' AS "unnest" JOIN u ON true'),
        ("unnest(l) WITH ORDINALITY, u", ' AS "unnest", u'),
    ],
)
def test_a_call_becomes_a_subquery(call: str, ends: str) -> None:
    rewritten = rewrite_ordinality(f"FROM t, {call}")
    assert rewritten.startswith(LIST), rewritten
    assert rewritten.endswith(ends), rewritten


def test_nodes_are_numbered_as_they_stand_in_the_text() -> None:
    rewritten = rewrite_ordinality("FROM json_each(j) WITH ORDINALITY k")
    assert rewritten.startswith("FROM (SELECT *, row_number() OVER (ORDER BY id) AS ordinality")
    assert rewritten.endswith("json_each(j)) k")


def test_what_is_inside_an_argument_is_rewritten_too() -> None:
    inner = "(SELECT max(ordinality) FROM range(2) WITH ORDINALITY)"
    rewritten = rewrite_ordinality(
        f"SELECT * FROM unnest([{inner}]) WITH ORDINALITY e(x) WHERE ordinality = 1"
    )
    assert "WITH ORDINALITY" not in rewritten
    assert rewritten.count("AS ordinality") == 2


@pytest.mark.parametrize("alias", ["e", "AS e", 'AS "e"'])
def test_an_alias_names_the_columns(alias: str) -> None:
    """DuckDB would call the first one `e` here, and `unnest` if it read a column."""
    with pytest.raises(InvalidStatement, match=r"write e\(x, place\)"):
        rewrite_ordinality(f"SELECT * FROM unnest([1]) WITH ORDINALITY {alias} WHERE true")
