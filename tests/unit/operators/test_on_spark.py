"""The queries that `make test` steps on Spark ask of it all that the whole corpora do."""

from collections.abc import Mapping
from typing import Any

from streams.bench.nexmark.queries import QUERIES as NEXMARK
from streams.bench.tpch.queries import QUERIES as TPCH
from streams.bench.tpch.queries import query
from streams.ids import CollectionId
from streams.plan.compile import Relation, compile_view
from streams.plan.physical import Column
from tests.support import nexmark, retail, tpch
from tests.support.on_spark import SHORT, asked
from tests.support.plan_tables import connect

TPCH_TABLES = {
    name: ", ".join(f"{column} {kind}" for column, kind in columns.items())
    for name, columns in tpch.COLUMNS.items()
}


def relations(definitions: Mapping[str, str]) -> dict[str, Relation]:
    connection = connect()
    results = {}
    for name, definition in definitions.items():
        connection.execute(f"CREATE OR REPLACE TABLE {name} ({definition})")
        columns = connection.execute(f"DESCRIBE {name}").fetchall()
        typed = tuple(Column(column, kind) for column, kind, *_ in columns)
        results[name] = Relation(CollectionId(name), typed)
    return results


def test_what_the_corpora_ask_of_spark_the_short_ones_ask() -> None:
    corpora: dict[str, tuple[dict[str, Relation], Mapping[Any, str]]] = {
        "tpch": (relations(TPCH_TABLES), {number: query(number, 0.01) for number in TPCH}),
        "nexmark": (relations(nexmark.DEFINITIONS), NEXMARK),
        "retail": (relations(retail.retail(10).definitions), retail.QUERIES),
    }
    every, short = set[str](), set[str]()
    for corpus, (tables, queries) in corpora.items():
        for name, text in queries.items():
            wants = asked(compile_view(text, tables).dataflow)
            every |= wants
            if name in SHORT[corpus]:
                short |= wants
    assert every - short == set()
    assert len(every) > 30
