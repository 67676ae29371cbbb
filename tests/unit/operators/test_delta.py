"""Delta joins against DuckDB at every time: every path, at every cut, with rows that cancel."""

import random

import numpy as np
import pyarrow as pa
import pytest

from streams.ids import CollectionId
from streams.plan.compile import Relation, compile_view
from streams.plan.physical import Arrange, Column, Lookup
from streams.testing import maintain
from streams.trace.kernel.kernel import Kernel
from tests.support import tpch
from tests.support.maintained import compare
from tests.support.many_to_many import COLUMNS, HOPS, tables

NULLS = HOPS.replace("=", "IS NOT DISTINCT FROM")
QUERIES = {
    "paths": (f"SELECT x.src, z.dst FROM {HOPS}", 2),
    "four hops": (f"SELECT x.src, u.dst FROM {HOPS} JOIN e u ON z.dst = u.src", 2),
    "paths that go on": (f"SELECT x.src, z.dst FROM {HOPS} WHERE x.src <> z.dst", 2),
    "judged half way": (f"SELECT x.src, z.dst FROM {HOPS} WHERE x.src <= y.dst", 2),
    "triangles": (f"SELECT x.src, y.src AS m, z.src AS n FROM {HOPS} AND z.dst = x.src", 2),
    "counted paths": (f"SELECT x.src, count(*) AS n FROM {HOPS} GROUP BY x.src", 2),
    "how many": (f"SELECT count(*) AS n FROM {HOPS}", 2),
    "siblings": (
        "SELECT x.dst, y.dst AS o, z.dst AS n FROM e x JOIN e y USING (src)"
        " JOIN e z USING (src)",
        1,
    ),
    "many to many": (
        "SELECT a.id, b.id AS other, c.s FROM a JOIN b ON a.k = b.k JOIN c ON b.l = c.l",
        4,
    ),
    "floats as keys": (
        "SELECT a.id, a.v, b.v AS w, x.v AS z FROM a JOIN b ON a.v = b.v JOIN a x ON b.v = x.v",
        2,
    ),
    "nulls that match": (f"SELECT x.src, z.dst FROM {NULLS}", 2),
    "nulls of either kind": (
        "SELECT a.id, c.s FROM a JOIN b ON a.k IS NOT DISTINCT FROM b.k JOIN c ON b.l = c.l",
        4,
    ),
    "computed keys": (
        "SELECT x.src, z.dst FROM e x JOIN e y ON x.dst // 2 = y.src // 2"
        " JOIN e z ON y.src // 2 = z.src // 2",
        2,
    ),
    "a filtered start": (f"SELECT z.dst FROM {HOPS} WHERE x.src = 1", 3),
    "of groups": (
        "WITH e AS (SELECT src, dst, count(*) AS n FROM e GROUP BY src, dst)"
        f" SELECT x.src, x.n + y.n + z.n AS n FROM {HOPS}",
        2,
    ),
    "beside an outer join": (
        f"SELECT q.*, a.id FROM (SELECT x.src, z.dst FROM {HOPS}) q LEFT JOIN a ON a.k = q.dst",
        2,
    ),
}
"""Views, and how many arrangements their delta joins have."""


def test_joins_that_follow_keys_stay_joins() -> None:
    """No query of TPC-H has an intermediate result that no key bounds, by a guess."""
    catalog = relations(tpch.COLUMNS)
    for query in tpch.QUERIES.values():
        nodes = compile_view(query, catalog).dataflow.nodes
        assert not any(isinstance(node, Lookup) for node in nodes), query


def relations(columns: dict[str, dict[str, str]]) -> dict[str, Relation]:
    return {
        name: Relation(CollectionId(name), tuple(Column(*pair) for pair in of.items()))
        for name, of in columns.items()
    }


def kept(query: str) -> int:
    """The arrangements of a view's delta join."""
    nodes = compile_view(query, relations(COLUMNS)).dataflow.nodes
    assert any(isinstance(node, Lookup) for node in nodes)
    return sum(isinstance(node, Arrange) for node in nodes)


@pytest.mark.parametrize("name", QUERIES)
def test_a_delta_join_agrees_with_duckdb_at_every_time(name: str) -> None:
    query, arrangements = QUERIES[name]
    assert kept(query) == arrangements
    rows = 0
    for seed in range(3):
        chance = random.Random(seed)
        changing = tables(query, chance)
        view = changing.maintain(query, chance)
        compare(changing, view, query)
        rows += view.updates.num_rows
    assert rows > 8


TERMS = f"""SELECT * FROM (SELECT x.src, z.dst, greatest(x._time, y._time, z._time) AS _time,
    sum(x._diff * y._diff * z._diff)::BIGINT AS _diff FROM {HOPS} GROUP BY ALL)
    WHERE _diff <> 0"""


@pytest.mark.parametrize("frontiers", [[300], [7, 8, 150, 300], None])
def test_many_times_of_an_interval_are_told_apart(frontiers: list[int] | None) -> None:
    """Each combination of changes counts once, at the latest of its times."""
    rng = np.random.default_rng(5)
    src, dst = rng.integers(0, 12, (2, 90))
    times = np.sort(rng.integers(0, 20 if frontiers is None else 299, 90))
    later = times + rng.integers(0, 200, 90)
    is_deleted = later < 299
    rows = {
        "src": [*src, *src[is_deleted]],
        "dst": [*dst, *dst[is_deleted]],
        "_time": [*times, *later[is_deleted]],
        "_diff": [1] * 90 + [-1] * int(is_deleted.sum()),
    }
    edges = pa.table({name: np.array(of, np.int64) for name, of in rows.items()})
    view = maintain(
        f"SELECT x.src, z.dst FROM {HOPS}",
        {"e": "src BIGINT, dst BIGINT"},
        {"e": edges},
        frontiers,
    )
    want = Kernel().query(TERMS, e=edges)
    assert want.num_rows > 20
    assert sorted(map(str, view.updates.to_pylist())) == sorted(map(str, want.to_pylist()))


def test_what_fails_is_an_error_while_its_rows_are_there() -> None:
    rows = [(2, 0, 1, 1), (0, 1, 1, 1), (1, 4, 1, 1), (1, -2, 1, 1), (1, -2, 3, -1)]
    names = ("src", "dst", "_time", "_diff")
    edges = pa.table(dict(zip(names, zip(*rows, strict=True), strict=True)))
    view = maintain(
        f"SELECT x.src, z.dst FROM {HOPS} WHERE 6 // (x.src + z.dst) = 1",
        {"e": "src BIGINT, dst BIGINT"},
        {"e": edges},
    )
    assert len(view.errors_at(1)) == 1
    assert view.at(2).to_pylist() == view.at(3).to_pylist() == [{"src": 2, "dst": 4}]
    assert not view.errors_at(3)
