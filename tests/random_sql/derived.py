"""Relations made of values: series, the elements of lists, the nodes of JSON, and pivots."""

from tests.random_sql.scalars import constant, of_kind
from tests.random_sql.tables import Table, Term
from tests.random_sql.writer import From, Writer, columns_of


def series(writer: Writer, left: From) -> From:
    """What a function makes of the row before it, beside that row."""
    text, terms = left
    chance, name = writer.chance, writer.alias("s")
    nodes = [term.sql for term in terms if term.kind == "json"]
    if nodes and chance.maybe(80):
        offered = [Term(f"{name}.key", "text"), Term(f"{name}.value", "json")]
        return f"{text}, json_each({chance.among(nodes)}) {name}", [*terms, *offered]
    number = of_kind(writer, terms, "number").sql
    calls = [
        "generate_series(1, 2)",
        f"generate_series(1, {number}::INTEGER)",
        f"range({number}::INTEGER)",
        f"unnest([{number}, 1, {number}])",
    ]
    lists = [f"unnest({term.sql})" for term in terms if term.kind == "list"]
    call = chance.among(lists if lists and chance.maybe(60) else calls)
    verb = chance.pick(", ", ", ", " CROSS JOIN ", " LEFT JOIN ")
    on = " ON true" if "LEFT" in verb else ""
    offered = [Term(f"{name}.x", "number")]
    if chance.maybe(25):
        offered.append(Term(f"{name}.o", "number"))
        return f"{text}{verb}{call} WITH ORDINALITY {name}(x, o){on}", [*terms, *offered]
    return f"{text}{verb}{call} {name}(x){on}", [*terms, *offered]


def values(writer: Writer, alias: str) -> From:
    """A list of rows."""
    listed = ", ".join(f"({constant(writer, 'number')}, 'x')" for _ in range(2))
    offered = [Term(f"{alias}.x", "number"), Term(f"{alias}.y", "text")]
    return f"(SELECT x, y FROM (VALUES {listed}) v(x, y)) {alias}", offered


def pivot(writer: Writer, alias: str) -> From:
    """A table with a column for some values of one of its columns."""
    chance, inner, terms = writer.chance, writer.alias("r"), list[Term]()
    table = chance.among(writer.tables)
    terms = columns_of(table, inner)
    fit = [term for term in terms if term.kind in {"number", "text", "bool"}]
    by, on = chance.among(terms), chance.among(fit)
    value = of_kind(writer, terms, "number").sql
    call = chance.pick("sum(v)", "count(*)", "max(v)")
    first, second = _two(on.kind)
    listed = f"{by.sql} AS k, {on.sql} AS n, {value} AS v"
    text = (
        f"(SELECT k, p, q FROM (SELECT {listed} FROM {table.name} {inner})"
        f" PIVOT ({call} FOR n IN ({first} AS p, {second} AS q) GROUP BY k)) {alias}"
    )
    offered = [Term(f"{alias}.p", "number"), Term(f"{alias}.q", "number")]
    return text, [Term(f"{alias}.k", by.kind), *offered]


def _two(kind: str) -> tuple[str, str]:
    return {"number": ("0", "1"), "text": ("'x'", "'xy'"), "bool": ("true", "false")}[kind]


def unpivot(writer: Writer, alias: str) -> From:
    """A table with a row for each of two columns."""
    chance, inner = writer.chance, writer.alias("r")
    table: Table = chance.among(writer.tables)
    terms = columns_of(table, inner)
    by = chance.among(terms)
    one, other = (of_kind(writer, terms, "number").sql for _ in range(2))
    nulls = chance.pick("", "INCLUDE NULLS ")
    text = (
        f"(SELECT k, n, v FROM (SELECT {by.sql} AS k, {one}::BIGINT AS x, ({other} + 1)::BIGINT"
        f" AS y FROM {table.name} {inner}) UNPIVOT {nulls}(v FOR n IN (x, y))) {alias}"
    )
    offered = [Term(f"{alias}.n", "text"), Term(f"{alias}.v", "number")]
    return text, [Term(f"{alias}.k", by.kind), *offered]
