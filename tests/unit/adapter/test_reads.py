"""What a SELECT may not be, whatever it reads."""

import pytest

from streams.adapter.reads import referenced
from streams.errors import InvalidStatement


@pytest.mark.parametrize(
    "query",
    [
        "WITH MUTUALLY RECURSIVE r(n INT) AS (SELECT 1) SELECT n FROM r",
        "WITH RECURSIVE (ERROR AT RECURSION LIMIT 9) r(n) AS (SELECT 1) SELECT n FROM r",
    ],
)
def test_a_recursion_that_duckdb_does_not_know_is_for_views(query: str) -> None:
    with pytest.raises(InvalidStatement, match="make a materialized view of it"):
        referenced(query, {})


def test_a_recursion_that_it_knows_is_read() -> None:
    query = "WITH RECURSIVE r(n) AS (SELECT 1 UNION SELECT n + 1 FROM r WHERE n < 3) FROM r"
    assert referenced(query, {}) == ()
