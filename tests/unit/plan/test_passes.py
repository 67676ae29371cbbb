"""No pass alone changes what a plan means, and what is said to be a key is one (by DuckDB)."""

import random
from collections.abc import Iterator, Mapping
from functools import cache

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.errors import InvalidStatement
from streams.plan import ir, passes
from streams.plan.analyses.keys import is_unique, key
from streams.plan.compile import Relation, bound_plan, compile_view
from streams.trace.kernel.kernel import Kernel
from tests.random_sql import case
from tests.random_sql.chance import Chance
from tests.random_sql.judge import Judge
from tests.support.examples import examples
from tests.support.keyed_queries import Keyed
from tests.support.plan_sql import to_sql
from tests.support.plan_tables import answer, catalog, connect, fill

WORLDS = 3


@cache
def world(number: int) -> duckdb.DuckDBPyConnection:
    """A database with random rows in the relations; there are few, since they take long."""
    connection = connect()
    fill(connection, random.Random(number), rows=9)
    return connection


def steps(query: str, relations: Mapping[str, Relation]) -> Iterator[tuple[str, ir.Relational]]:
    """The plan as it is bound, and as each pass leaves it."""
    node = bound_plan(query, relations)
    yield "bind", node
    for step in passes.PASSES:
        node = step(node)
        yield step.__name__, node


@given(st.integers(0, 2**32))
@examples(12)
def test_no_pass_changes_what_a_plan_over_keys_means(seed: int) -> None:
    query, connection = Keyed(random.Random(seed)).query(), world(seed % WORLDS)
    try:
        expected = answer(connection, query)[1]
    except duckdb.Error:
        return  # it fails for one of the rows: which errors a plan has, tests of errors say
    for name, node in steps(query, catalog()):
        assert answer(connection, to_sql(node))[1] == expected, (name, query)


@pytest.mark.parametrize("first", range(100, 130, 10))
def test_no_pass_changes_what_a_plan_means(first: int) -> None:
    judge, kernel = Judge(), Kernel()
    for seed in range(first, first + 10):
        drawn = case.case(Chance(random.Random(seed).randrange))
        if case.spans_times(drawn) or case.has_unions(drawn):
            continue
        judge.load(drawn)
        try:
            plans = list(steps(drawn.query, case.catalog(drawn, kernel)))
        except InvalidStatement:
            continue
        types = [column.type for column in ir.columns(plans[0][1])]
        expected = judge.answer(drawn.pinned, types, drawn.last)
        for name, node in plans if expected is not None else ():
            assert judge.answer(to_sql(node), types, drawn.last) == expected, (name, seed)


@given(st.integers(0, 2**32))
@examples(12)
def test_a_key_is_one_in_every_part_of_a_plan(seed: int) -> None:
    query, connection = Keyed(random.Random(seed)).query(), world(seed % WORLDS)
    *_, (_, node) = steps(query, catalog())
    for part in subtrees(node):
        if (part_key := key(part)) is not None:
            assert not duplicates(connection, part, part_key), (query, part, part_key)


def subtrees(node: ir.Relational) -> Iterator[ir.Relational]:
    yield node
    for part in ir.parts(node):
        yield from subtrees(part)


def duplicates(
    connection: duckdb.DuckDBPyConnection, part: ir.Relational, key: tuple[int, ...]
) -> int:
    """How many values of the key several rows have."""
    own = ir.columns(part)
    names = ", ".join(f"c{place}" for place in range(len(own)))
    by = ", ".join(f"c{place}" for place in key) or "true"
    several = f"SELECT 1 FROM ({to_sql(part)}) AS q({names}) GROUP BY {by} HAVING count(*) > 1"
    text = f"SELECT count(*) FROM ({several})"
    (count,) = connection.execute(text).fetchone() or (0,)
    return int(count)


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("FROM facts", "id"),
        ("SELECT id::BIGINT AS n, v FROM customers JOIN facts USING (id)", "n"),
        ("SELECT f.id, c.name FROM facts f JOIN customers c ON f.customer = c.id", "id"),
        ("SELECT f.id AS f, l.line FROM facts f JOIN lines l ON l.fact = f.id", "f line"),
        ("SELECT f.id, n.name FROM facts f, customers c, nations n"
         " WHERE f.customer = c.id AND c.nation = n.id", "id"),
        ("SELECT f.id, c.name FROM facts f LEFT JOIN customers c ON f.customer = c.id", "id"),
        ("SELECT customer, count(*) AS n FROM facts GROUP BY customer", "customer"),
        ("SELECT id, customer, count(*) AS n FROM facts GROUP BY ALL", "id"),
        ("SELECT line, v FROM lines WHERE fact = 1", "line"),
        ("SELECT DISTINCT v, supplier FROM facts", "v supplier"),
        ("SELECT id, v FROM facts WHERE v IN (SELECT v FROM lines)", "id"),
        ("SELECT id, row_number() OVER (ORDER BY v) AS n FROM facts", "id"),
        ("SELECT DISTINCT ON (v) v, id FROM facts ORDER BY v, id", "v"),
        ("SELECT id FROM facts EXCEPT ALL SELECT id FROM customers", "id"),
        ("SELECT max(v) AS m FROM facts", ""),
        ("SELECT f.id, x.n FROM facts f LEFT JOIN"
         " (SELECT v, count(*) AS n FROM lines GROUP BY v) x ON x.v = f.v::DOUBLE + 0.5", "id"),
    ],
)  # fmt: skip
def test_keys_are_found(query: str, columns: str) -> None:
    *_, (_, node) = steps(query, catalog())
    names = [column.name for column in ir.columns(node)]
    actual = key(node)
    assert actual is not None
    assert [names[place] for place in actual] == columns.split()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT v FROM facts",
        "SELECT f.id FROM facts f JOIN lines l ON l.fact = f.id",
        "SELECT c.id FROM facts f JOIN customers c ON f.customer = c.id",
        "SELECT f.id FROM facts f LEFT JOIN lines l ON l.fact = f.id",
        "SELECT f.id, c.id AS c FROM facts f FULL JOIN customers c ON f.customer = c.id",
        "SELECT id FROM facts UNION ALL SELECT id FROM customers",
        "SELECT abs(id) AS n FROM facts",
        "SELECT fact FROM lines WHERE line > 1",
        "SELECT fact FROM lines WHERE line = 1 OR line = 2",
        "SELECT a FROM t",
        "SELECT id, unnest([1, 1]) AS n FROM facts",
    ],
)
def test_keys_are_not_invented(query: str) -> None:
    *_, (_, node) = steps(query, catalog())
    assert not is_unique(node, frozenset(range(len(ir.columns(node)))))


def test_a_wide_union_is_hashed_as_often_as_a_narrow_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hash costs as much as the tree below: one for each branch made planning quadratic."""
    hashed, original = [0], ir.Union.__hash__

    def counted(union: ir.Union) -> int:
        hashed[0] += 1
        return original(union)

    monkeypatch.setattr(ir.Union, "__hash__", counted)
    counts = []
    for branches in (4, 40):
        query = " UNION ALL ".join(f"SELECT id + {i} FROM facts" for i in range(branches))
        before = hashed[0]
        compile_view(query, catalog())
        counts.append(hashed[0] - before)
    assert counts[0] == counts[1]
