"""The judge of other databases' suites: what it reads, and that it tells right from wrong."""

from pathlib import Path
from typing import Any

import pytest

from streams.testing import Maintained, maintain
from tests.suites.judge import SuiteJudge, Verdict
from tests.suites.replay import Replay
from tests.suites.scripts import statements

SCRIPT = """\
statement ok
CREATE TABLE t (a INT UNSIGNED, b VARCHAR) AS VALUES (1, 'x'), (2, 'y'), (2, NULL)

statement error no such table
DROP TABLE nothing

statement ok
CREATE EXTERNAL TABLE f (k BIGINT, s VARCHAR) STORED AS CSV LOCATION 'f.csv'

query IT rowsort
SELECT a, max(b)
FROM t GROUP BY a; -- of each
----
1 x
2 y

query I
SELECT count(*) FROM f WHERE k > 5
----
7
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "own.slt"
    path.write_text(SCRIPT)
    return path


def replayed(path: Path) -> tuple[Replay, list[str]]:
    """What has carried out a script, and the queries in it."""
    replay, queries = Replay(), []
    for statement in statements(path, path.parent):
        if statement.is_query:
            queries.append(statement.text)
        else:
            replay.carry_out(statement)
    return replay, queries


def judged(replay: Replay, query: str) -> Verdict:
    assert replay.answers(query)
    return SuiteJudge().verdict(query, replay.tables(query), "own.slt:1")


def test_a_script_is_read_and_carried_out(script: Path) -> None:
    replay, queries = replayed(script)
    assert queries == [
        "SELECT a, max(b)\nFROM t GROUP BY a",
        "SELECT count(*) FROM f WHERE k > 5",
    ]
    ((tables, made_up),) = [replay.tables("FROM t, f WHERE true")[::-1]]
    assert tables.rows.column("a").to_pylist() == [1, 2, 2]
    assert tables.columns == (("a", "UINTEGER"), ("b", "VARCHAR"))
    assert made_up.rows.num_rows > 0
    assert [judged(replay, query).word for query in queries] == ["right", "right"]


def test_rows_in_an_order_that_nobody_gave_them_are_not_compared(script: Path) -> None:
    replay, _ = replayed(script)
    assert judged(replay, "SELECT b FROM t LIMIT 1").word in {"right", "undetermined"}
    assert judged(replay, "SELECT b FROM t ORDER BY a LIMIT 2").word in {
        "right",
        "undetermined",
    }


def test_refusals_have_their_reason(script: Path) -> None:
    replay, _ = replayed(script)
    verdict = judged(replay, "SELECT random() < 2, a FROM t")
    assert verdict.word == "refused"
    assert "function random" in verdict.why


def test_another_answer_than_duckdbs_is_wrong(script: Path, monkeypatch) -> None:
    replay, _ = replayed(script)

    def other(query: str, *args: Any, **case: Any) -> Maintained:
        return maintain(query.replace("max", "min"), *args, **case)

    monkeypatch.setattr("tests.random_sql.judge.maintain", other)
    verdict = judged(replay, "SELECT max(b) AS b FROM t")
    assert verdict.word == "WRONG"
    assert "DuckDB: ('y',)" in verdict.why


INTERVALS = """\
statement ok
CREATE TABLE t (a BIGINT, i INTERVAL) AS VALUES
(3000000, INTERVAL '1 hour'), (2, INTERVAL '1 hour'), (5, INTERVAL '1 hour')
"""


@pytest.fixture
def intervals(tmp_path: Path) -> Replay:
    path = tmp_path / "intervals.slt"
    path.write_text(INTERVALS)
    return replayed(path)[0]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a * i AS c FROM t",
        "SELECT {'k': [a * i]} AS c FROM t",
        "SELECT max(a * i) AS c FROM t",
        "SELECT date_part('hour', c) AS h, n FROM"
        " (SELECT a * i AS c, count(*) AS n FROM t GROUP BY 1)",
        "SELECT a * i AS c FROM t LIMIT 1",
    ],
)
def test_a_view_fails_where_arrow_has_no_room_for_an_interval(
    intervals: Replay, query: str
) -> None:
    assert judged(intervals, query).word == "without room"


def test_what_has_room_may_not_fail(intervals: Replay, monkeypatch: pytest.MonkeyPatch) -> None:
    query = "SELECT a * i - a * i AS c, date_part('hour', a * i) AS h FROM t"
    assert judged(intervals, query).word == "right"
    maintained_as(monkeypatch, "SELECT a * i - a * i AS c, ('x' || a)::BIGINT AS h FROM t")
    assert judged(intervals, query).word == "WRONG"


def test_a_failure_that_duckdb_has_in_no_order_is_wrong(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its rows depend on their order."""
    replay, _ = replayed(script)
    maintained_as(monkeypatch, "SELECT ('x' || a)::INTEGER::VARCHAR AS b FROM t LIMIT 1")
    assert judged(replay, "SELECT b FROM t LIMIT 1").word == "WRONG"


def maintained_as(monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    """Have the judge maintain another query."""

    def maintained(query: str, *args: Any, **case: Any) -> Maintained:
        return maintain(other, *args, **case)

    monkeypatch.setattr("tests.random_sql.judge.maintain", maintained)
