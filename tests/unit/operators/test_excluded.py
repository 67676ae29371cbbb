"""Frames of ROWS without the peers of their row, against a self-join that says the same."""

import random

import pytest

from tests.random_sql.case import Case
from tests.random_sql.judge import Judge, Refused
from tests.random_sql.tables import LAST, Table, Update

CALLS = {
    "count(*)": "count(*)",
    "sum(x)": "sum(b.x)",
    "list(s)": "list(b.s ORDER BY b.n)",
    "string_agg(s, '-') FILTER (WHERE x > 0)": (
        "string_agg(b.s, '-' ORDER BY b.n) FILTER (WHERE b.x > 0)"
    ),
    "count(DISTINCT x)": "count(DISTINCT b.x)",
    "first_value(s)": "first(b.s ORDER BY b.n)",
    "last_value(s IGNORE NULLS)": "last(b.s ORDER BY b.n) FILTER (WHERE b.s IS NOT NULL)",
    "nth_value(x, 2)": "list(b.x ORDER BY b.n)[2]",
    "quantile_disc(x, 0.5)": "quantile_disc(b.x, 0.5)",
    "max(s)": "max(b.s)",
    "list(s ORDER BY x DESC)": "list(b.s ORDER BY b.x DESC, b.g, b.s)",
    "first_value(x ORDER BY s)": "first(b.x ORDER BY b.s, b.g, b.x)",
    "array_agg(s ORDER BY s DESC NULLS LAST) FILTER (WHERE x > 0)": (
        "array_agg(b.s ORDER BY b.s DESC NULLS LAST) FILTER (WHERE b.x > 0)"
    ),
    "list(DISTINCT s)": "list(DISTINCT b.s ORDER BY b.s)",
    "string_agg(DISTINCT s, '-' ORDER BY s DESC)": (
        "string_agg(DISTINCT b.s, '-' ORDER BY b.s DESC)"
    ),
    "count(DISTINCT x ORDER BY x)": "count(DISTINCT b.x)",
    "avg(x::DOUBLE)": "avg(b.x::DOUBLE ORDER BY b.n)",
}
FRAMES = {
    "2 PRECEDING AND CURRENT ROW": "b.n BETWEEN a.n - 2 AND a.n",
    "1 PRECEDING AND 2 FOLLOWING": "b.n BETWEEN a.n - 1 AND a.n + 2",
    "UNBOUNDED PRECEDING AND 1 FOLLOWING": "b.n <= a.n + 1",
    "1 FOLLOWING AND UNBOUNDED FOLLOWING": "b.n >= a.n + 1",
    "x % 2 + 1 PRECEDING AND 1 FOLLOWING": "b.n BETWEEN a.n - (a.x % 2 + 1) AND a.n + 1",
}
ORDERS = ("x % 2", "s DESC NULLS FIRST", "x, s")


@pytest.mark.parametrize("seed", range(6))
def test_rows_without_peers_are_right_at_every_time(seed: int) -> None:
    chance = random.Random(seed)
    judge = Judge()
    for _ in range(3):
        view = judge.judge(_case(chance))
        assert view._updates.num_rows


def _case(chance: random.Random) -> Case:
    frame, order = chance.choice(list(FRAMES)), chance.choice(ORDERS)
    partition = chance.choice(["PARTITION BY g ", ""])
    exclude, out = chance.choice(
        [("GROUP", "b.r <> a.r"), ("TIES", "(b.r <> a.r OR b.n = a.n)")]
    )
    calls = chance.sample(list(CALLS), 3)
    over = f"({partition}ORDER BY {order} ROWS BETWEEN {frame} EXCLUDE {exclude})"
    shown = [f"{call} OVER {over} AS c{number}" for number, call in enumerate(calls)]
    same = "b.g IS NOT DISTINCT FROM a.g AND " if partition else ""
    numbered = (
        f"SELECT *, row_number() OVER ({partition}ORDER BY {order}, g, x, s, i) AS n, rank()"
        f" OVER ({partition}ORDER BY {order}) AS r FROM"
        " (SELECT *, row_number() OVER (PARTITION BY g, x, s) AS i FROM t)"
    )
    values = ", ".join(
        f"(SELECT {CALLS[call]} FROM n b WHERE {same}{FRAMES[frame]} AND {out})"
        for call in calls
    )
    return Case(
        tables=(
            Table("t", {"g": "INTEGER", "x": "INTEGER", "s": "VARCHAR"}, _updates(chance)),
        ),
        query=f"SELECT g, x, s, {', '.join(shown)} FROM t",
        pinned=f"WITH n AS MATERIALIZED ({numbered}) SELECT g, x, s, {values} FROM n a",
        last=LAST,
        cuts=chance.choice([(LAST + 1,), (1, 3, LAST + 1)]),
    )


def _updates(chance: random.Random) -> tuple[Update, ...]:
    live: list[tuple[str, ...]] = []
    updates = []
    for time in sorted(chance.choices(range(LAST + 1), k=24)):
        if live and chance.random() < 0.4:
            updates.append(Update(live.pop(chance.randrange(len(live))), time, -1))
            continue
        row = (
            chance.choice(["1", "2"]),
            str(chance.randrange(5)),
            chance.choice(["'a'", "'b'", "NULL"]),
        )
        count = chance.choice([1, 1, 2])
        live += [row] * count
        updates.append(Update(row, time, count))
    return tuple(updates)


@pytest.mark.parametrize(
    "call",
    ["sum(DISTINCT x::DOUBLE)", "arg_min(x, s)"],
)
def test_what_no_list_gives_is_refused_by_name(call: str) -> None:
    over = "OVER (ORDER BY x ROWS 1 PRECEDING EXCLUDE TIES)"
    table = Table("t", {"x": "INTEGER", "s": "VARCHAR"}, (Update(("1", "'a'"), 0, 1),))
    query = f"SELECT {call} {over} AS c FROM t"
    with pytest.raises(Refused, match="ROWS with EXCLUDE TIES") as refusal:
        Judge().judge(Case(tables=(table,), query=query, pinned=query, last=1))
    assert not refusal.value.unbound
