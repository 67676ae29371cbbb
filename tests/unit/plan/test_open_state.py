"""Which views with EMIT ON CLOSE keep rows of windows that have closed."""

import re

import pytest

from streams.ids import CollectionId
from streams.plan.compile import Relation, compile_view, explain
from streams.plan.physical import Column

COLUMNS = (Column("id", "BIGINT"), Column("page", "VARCHAR"), Column("ts", "TIMESTAMP"))
CATALOG = {
    "clicks": Relation(CollectionId("s1"), COLUMNS, monotone=True),
    "views": Relation(CollectionId("s2"), COLUMNS, monotone=True),
    "pages": Relation(CollectionId("s3"), COLUMNS, keys=(("page",),)),
}
MINUTE = "time_bucket(INTERVAL '1 minute', ts)"
DAY = "(SELECT * FROM {0} WHERE mz_now() < ts + INTERVAL '1 day') AS {0}"
SESSIONS = """
SELECT page, max(ts) AS last_click FROM (
  SELECT *, count(*) FILTER (WHERE begins) OVER (PARTITION BY page ORDER BY ts, id) AS session
  FROM (SELECT *, ts - lag(ts) OVER (PARTITION BY page ORDER BY ts, id)
                  >= INTERVAL '10 minutes' AS begins FROM clicks))
GROUP BY page, session EMIT ON CLOSE (last_click)
"""
FULL = """
SELECT coalesce(clicks.ts, views.ts) AS window_end, clicks.id AS a, views.id AS b
FROM clicks FULL JOIN views ON clicks.page = views.page EMIT ON CLOSE
"""
RANGE = """
SELECT id, ts AS window_end, count(*) OVER (PARTITION BY page ORDER BY ts
  RANGE BETWEEN INTERVAL '1 minute' PRECEDING AND CURRENT ROW) AS n FROM clicks EMIT ON CLOSE
"""
BETWEEN = """
SELECT clicks.id, views.id AS other, clicks.ts AS window_end FROM clicks JOIN views
ON views.ts BETWEEN clicks.ts - INTERVAL '1 minute' AND clicks.ts EMIT ON CLOSE
"""
NEARBY = f"""
SELECT {MINUTE.replace("ts", "clicks.ts")} AS window_end, count(*) AS n FROM clicks JOIN views
ON views.ts BETWEEN clicks.ts - INTERVAL '1 minute' AND clicks.ts GROUP BY ALL EMIT ON CLOSE
"""
HOPS = """
SELECT s, s + INTERVAL '1 minute' AS window_end, count(*) AS n FROM (
  SELECT unnest(range(ts - INTERVAL '45 seconds', ts, INTERVAL '15 seconds')) AS s FROM clicks)
GROUP BY s EMIT ON CLOSE
"""


def kept(query: str) -> tuple[str, ...]:
    return compile_view(query, CATALOG).kept


@pytest.mark.parametrize(
    ("query", "operators"),
    [
        (SESSIONS, {"OVER", "GROUP BY"}),
        (FULL, {"FULL JOIN"}),
        (RANGE.replace("INTERVAL '1 minute'", "UNBOUNDED"), {"OVER"}),
        (RANGE.replace("count(*)", "sum(page::BIGINT)"), {"OVER"}),
        (
            BETWEEN.replace("clicks.ts - INTERVAL '1 minute'", "TIMESTAMP '2020-01-01'"),
            {"JOIN"},
        ),
    ],
    ids=["sessions", "full join", "range", "range that may fail", "one way"],
)
def test_what_keeps_rows_of_closed_windows_is_named_with_the_way_out(
    query: str, operators: set[str]
) -> None:
    said = kept(query)
    assert {text.split(" keeps all rows of ")[0] for text in said} == operators
    assert all("WHERE mz_now() < ts + INTERVAL '1 day'" in text for text in said)
    assert all(f"  -- {text}" in explain(query, CATALOG) for text in said)
    bounded = re.sub(
        r"\b(FROM|JOIN) (clicks|views)\b", lambda m: f"{m[1]} {DAY.format(m[2])}", query
    )
    assert bounded != query
    assert kept(bounded) == ()


@pytest.mark.parametrize(
    "query",
    [
        FULL.replace("ON clicks", "ON clicks.ts = views.ts AND clicks"),
        f"SELECT {MINUTE} AS window_end, count(*) AS n FROM clicks GROUP BY ALL EMIT ON CLOSE",
        HOPS,
        "SELECT c.id, p.id AS of, c.ts AS window_end FROM clicks c JOIN views p USING (ts)"
        " EMIT ON CLOSE",
        "SELECT ts AS window_end, id FROM clicks EMIT ON CLOSE",
        RANGE,
        RANGE.replace("INTERVAL '1 minute'", "INTERVAL '1 month 2 days'"),
        BETWEEN,
        BETWEEN.replace("JOIN", "LEFT JOIN"),
        BETWEEN.replace(
            "clicks.ts AS window_end", "greatest(views.ts, clicks.ts) AS window_end"
        ),
        NEARBY,
    ],
)
def test_of_a_view_whose_state_is_dropped_nothing_is_said(query: str) -> None:
    assert kept(query) == ()


def test_a_join_with_a_table_keeps_events_only_where_their_end_is_unknown() -> None:
    query = (
        "SELECT c.id, p.id AS page, {} AS window_end FROM clicks c JOIN pages p USING (page)"
        " EMIT ON CLOSE"
    )
    assert kept(query.format("c.ts")) == ()
    (said,) = kept(query.format("p.ts"))
    assert said.startswith("JOIN keeps all rows of clicks,")


def test_of_a_view_without_the_clause_nothing_is_said() -> None:
    assert kept("SELECT page, count(*) AS n FROM clicks GROUP BY page") == ()
