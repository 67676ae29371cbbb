"""Names of relations that have a dot: `orders.errors`.

DuckDB takes what is before the dot for a schema. A relation is one table here, of that name, so
each place where a query reads it is rewritten before anything is bound; without an alias of its
own it gets the one that it would have: `errors`.
"""

from collections.abc import Iterable, Sequence

from streams.plan.duckdb_plan import Record
from streams.plan.sql.tokens import tokenize
from streams.plan.type_names import quoted


def has_qualified(query: str, tables: Iterable[str]) -> bool:
    """Whether a query may read a table whose name has a dot."""
    text = query.casefold()
    return any("." in name and name.rpartition(".")[2].casefold() in text for name in tables)


def unqualified(query: str, statements: Sequence[Record], tables: Iterable[str]) -> str:
    """Return the query with single names for these. `statements` are DuckDB's of the query."""
    by_name = {name.casefold(): name for name in tables if "." in name}
    text = query.encode()
    tokens = tokenize(query)
    numbers = {token.start: number for number, token in enumerate(tokens)}
    places = [
        (len(text[: node.number("query_location")].decode()), name, node)
        for statement in statements
        for node in statement.walk()
        if node.fields.get("type") == "BASE_TABLE" and node.text("schema_name")
        for name in [f"{node.text('schema_name')}.{node.text('table_name')}".casefold()]
        if name in by_name
    ]
    for start, name, node in sorted(places, key=lambda place: -place[0]):
        end = tokens[numbers[start] + 2].end  # of the schema, the dot, and the name
        alias = "" if node.text("alias") else f" AS {quoted(node.text('table_name'))}"
        query = query[:start] + quoted(by_name[name]) + alias + query[end:]
    return query
