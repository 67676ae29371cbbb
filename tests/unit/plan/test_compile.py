"""The planner's front door: names, columns, and what never fails."""

import pytest

from streams.errors import InvalidStatement, InvalidUsage
from streams.ids import CollectionId
from streams.plan import ir
from streams.plan.analyses.fallible import can_fail
from streams.plan.bind.binder import canonical_columns
from streams.plan.compile import Relation, compile_view
from streams.plan.physical import Column, Linear, Source
from tests.support.plan_tables import catalog, connect


def test_relations_and_columns_are_found_without_case() -> None:
    one = {"Flights": Relation(CollectionId("s7"), (Column("Dest", "varchar"),))}
    compiled = compile_view('SELECT dest FROM "FLIGHTS";', one)
    assert compiled.dataflow.imports[0].collection == "s7"
    assert compiled.dataflow.imports[0].columns == (Column("Dest", "VARCHAR"),)


def test_names_that_differ_in_case_alone_are_misuse() -> None:
    relation = Relation(CollectionId("s1"), (Column("a", "INTEGER"),))
    with pytest.raises(InvalidUsage, match="differ in case"):
        compile_view("SELECT 1", {"t": relation, "T": relation})


def test_result_columns_have_the_names_and_types_of_duckdb() -> None:
    compiled = compile_view("SELECT a + 1, count(*), NULL AS n FROM t GROUP BY 1", catalog())
    assert compiled.columns == (
        Column("(a + 1)", "INTEGER"), Column("count_star()", "BIGINT"), Column("n", "INTEGER"),
    )  # fmt: skip
    assert compiled.dataflow.output == compiled.columns


@pytest.mark.parametrize(
    "listed",
    [
        "a, b AS a, a AS A",
        "a, b AS a_1, a",
        "a, b AS a, a AS a_1, b AS a",
        "1, 1, 1",
        "count(*) OVER (), count(*) OVER ()",
        "*, t.*, a AS a_1_1",
    ],
)
def test_columns_of_one_name_get_those_that_create_table_as_gives(listed: str) -> None:
    connection, text = connect(), f"SELECT {listed} FROM t"
    connection.execute("CREATE TABLE t (a INTEGER, b VARCHAR)")
    connection.execute(f"CREATE TABLE made AS {text}")
    expected = [row[0] for row in connection.execute("DESCRIBE made").fetchall()]
    relation = Relation(CollectionId("s1"), (Column("a", "INTEGER"), Column("b", "VARCHAR")))
    compiled = compile_view(text, {"t": relation})
    assert [column.name for column in compiled.columns] == expected


def test_a_view_over_a_view_is_an_import() -> None:
    first = compile_view("SELECT b, count(*) AS n FROM t GROUP BY b", catalog())
    views = catalog() | {"v": Relation(CollectionId("u1"), first.columns)}
    second = compile_view("SELECT n, count(*) AS m FROM v GROUP BY n", views)
    assert [part.collection for part in second.dataflow.imports] == ["u1"]


def test_only_collections_that_are_read_are_imported() -> None:
    compiled = compile_view("SELECT U.a FROM t, U WHERE t.a = U.a", catalog())
    assert [part.collection for part in compiled.dataflow.imports] == ["s1", "s2"]


def test_equal_subqueries_are_computed_once() -> None:
    query = "SELECT b, count(*) AS n FROM t GROUP BY b"
    compiled = compile_view(
        f"SELECT x.n FROM ({query}) x JOIN ({query}) y USING (b)", catalog()
    )
    kinds = [type(node).__name__ for node in compiled.dataflow.nodes]
    assert kinds.count("Reduce") == 1
    assert kinds.count("Source") == 1


def test_a_whole_collection_is_its_source() -> None:
    assert compile_view("FROM t", catalog()).dataflow.nodes == (Source(0),)


def test_types_are_spelled_as_duckdb_prints_them() -> None:
    written = (Column("a", "int"), Column("B", "numeric(5, 1)"), Column("c", "text[]"))
    assert canonical_columns(written) == (
        Column("a", "INTEGER"), Column("B", "DECIMAL(5,1)"), Column("c", "VARCHAR[]"),
    )  # fmt: skip


@pytest.mark.parametrize("type_", ["intt", "int not", "", "ENUM()"])
def test_unknown_types_are_refused(type_: str) -> None:
    with pytest.raises(InvalidStatement, match="not valid"):
        canonical_columns((Column("a", type_),))


@pytest.mark.parametrize(
    ("expression", "fails"),
    [
        ("a > 1", False), ("a + 1 > 1", True), ("10 // a > 1", True), ("b::INTEGER = 1", True),
        ("try(10 // a) > 1", False), ("try_cast(b AS INTEGER) = 1", False),
        ("a::BIGINT > 1", False), ("n::INTEGER > 1", True), ("p::DOUBLE > 1", False),
        ("a::DECIMAL(5,1) > 1", True), ("b LIKE 'x%'", False), ("upper(b) = 'X'", False),
        ("b ~ 'x.y'", True), ("p > 1.5", False), ("b > '1'", False), ("v::INTEGER > 1", True),
        ("coalesce(a, 1) IN (1, 2)", False), ("CASE WHEN a > 1 THEN 1 // a END = 1", True),
        ("substring(b, 1, 2) = 'x'", False), ("substring(b, n, 2) = 'x'", True),
        ("left(b, -1) = 'x'", True), ("a % 7 = 1", False), ("a // 7 = 1", False),
        ("a % 0 = 1", True), ("7 % a = 1", True), ("a // -1 = 1", True), ("v % 7 = 1", True),
        ("a::DECIMAL(12,2) > 1", False), ("a::DECIMAL(11,2) > 1", True),
        ("p::DECIMAL(9,3) > 1", False), ("p::DECIMAL(8,3) > 1", True),
        ("p::DECIMAL(9,1) > 1", True), ("concat(b, a) = 'x1'", False),
    ],
)  # fmt: skip
def test_what_can_fail_is_known(expression: str, *, fails: bool) -> None:
    """Over a join, so that what cannot fail lies below it and what can lies above."""
    query = f"SELECT b FROM t JOIN (SELECT g FROM k) ON a = g WHERE {expression}"
    logical = compile_view(query, catalog()).logical
    assert isinstance(logical, ir.Project)
    assert isinstance(logical.input, ir.Filter) == fails


@pytest.mark.parametrize(
    ("predicate", "is_kept"),
    [
        ("dt < DATE '1994-01-01' + INTERVAL 1 YEAR", True),
        ("TIMESTAMP '1994-01-01' - INTERVAL 90 DAYS >= dt", True),
        ("dt BETWEEN DATE '1994-01-01' AND DATE '1994-01-01' + INTERVAL 60 DAYS", True),
        ("dt < TIMESTAMP '1994-01-01 00:00:00.000001'", False),
        ("dt < CAST(NULL AS TIMESTAMP)", False),
        ("dt < ts", False),
        ("dt < TIMESTAMPTZ '1994-01-01'", False),
    ],
)
def test_dates_before_a_midnight_are_compared_as_dates(
    predicate: str, *, is_kept: bool
) -> None:
    query = f"SELECT s FROM every JOIN (SELECT g FROM k) ON i = g WHERE {predicate}"
    logical = compile_view(query, catalog()).logical
    assert isinstance(logical, ir.Project)
    assert isinstance(logical.input, ir.Filter) != is_kept


def test_constants_that_have_a_value_cannot_fail() -> None:
    logical = compile_view("SELECT a FROM t WHERE b > ('a' || 'b')", catalog()).logical
    assert isinstance(logical, ir.Project)
    assert isinstance(logical.input, ir.Filter)
    assert not any(can_fail(predicate) for predicate in logical.input.predicates)


def test_a_constant_that_fails_stays_an_expression_and_fails_for_each_row() -> None:
    dataflow = compile_view("SELECT 'x'::INTEGER AS i FROM t", catalog()).dataflow
    assert isinstance(dataflow.nodes[-1], Linear)
    assert dataflow.nodes[-1].outputs[0].sql == "CAST('x' AS INTEGER)"
    assert dataflow.nodes[-1].outputs[0].label == "'x'"
