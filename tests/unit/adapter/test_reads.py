"""What a SELECT may not be, whatever it reads."""

import pytest

from streams.adapter.reads import referenced
from streams.errors import InvalidStatement
from tests.support.coordinating import Environment


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


def test_an_answer_that_the_coordinator_cannot_hold_is_refused(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.adapter.reads.MOST_ANSWERED", 1 << 20)
    failed = env.fails("SELECT * FROM range(100000000000)")
    assert failed.message == "the answer is too large"
    assert failed.detail == "expected at most 1 MiB, got more"
    memory = env.fails("SELECT list(i) FROM range(100000000) t(i)")
    assert memory.message == "the query failed"
    assert memory.detail.startswith("Out of Memory Error")
    assert env.rows("SELECT 1 AS one") == [[1]]
