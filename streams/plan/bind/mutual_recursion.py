"""Splits WITH MUTUALLY RECURSIVE, which DuckDB does not know, into queries that it does.

    WITH MUTUALLY RECURSIVE [(RETURN AT RECURSION LIMIT n | ERROR AT RECURSION LIMIT n)]
      name (column type, ...) AS (query), ...
    query

The bindings are relations of the declared columns to every query in it, so each is bound for
itself, as if they were tables. What they mean is Materialize's: all are empty at first; an
iteration recomputes each in order, over what the ones before it hold now and it and the
ones behind it held before; the loop ends when an iteration changes none of them.
(https://materialize.com/docs/sql/select/recursive-ctes/)

The same parenthesis may stand behind WITH RECURSIVE.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from streams.errors import InvalidStatement
from streams.ids import CollectionId
from streams.plan.bind.recursion import DEFAULT_LIMIT, require_closed
from streams.plan.ir import (
    Get,
    Limit,
    Loop,
    Relational,
    Variable,
    parts,
    shared,
    with_parts,
)
from streams.plan.physical import Column
from streams.plan.sql.tokens import Cursor, tokenize

LOOP = "mutually"
_USAGE = (
    "WITH MUTUALLY RECURSIVE [(RETURN AT RECURSION LIMIT n | ERROR AT RECURSION LIMIT n)]"
    " name (column type, ...) AS (query), ... SELECT ..."
)
_PREFIX = "binding "  # of the collection that stands for one; no catalog hands out such an id


@dataclass(frozen=True, slots=True)
class Binding:
    """A relation that is defined by a query, which may name it."""

    name: str
    columns: tuple[Column, ...]
    query: str

    @property
    def cast(self) -> str:
        """The query with the declared names and types."""
        inner = [f"c{i}" for i in range(len(self.columns))]
        shown = ", ".join(
            f"CAST({place} AS {column.type}) AS {_quoted(column.name)}"
            for place, column in zip(inner, self.columns, strict=True)
        )
        return f"SELECT {shown} FROM (\n{self.query}\n) AS made({', '.join(inner)})"


@dataclass(frozen=True, slots=True)
class QueryBlock:
    """A query, the bindings around it, and the limit; without bindings a query as any other."""

    bindings: tuple[Binding, ...]
    query: str
    limit: Limit

    def collection(self, name: str) -> CollectionId:
        """The collection that stands for a binding."""
        return CollectionId(_PREFIX + name.lower())


def split(query: str) -> QueryBlock:
    """Cut a query into its bindings and the rest.

    Errors: InvalidStatement for a block that is not of the form above, and for one that is
    inside of a query.
    """
    tokens = tokenize(query)
    cursor = Cursor(query, tokens, _USAGE)
    mutually = cursor.accept("WITH", "MUTUALLY", "RECURSIVE")
    if not mutually and cursor.accept("WITH", "RECURSIVE") and cursor.at("("):
        opening = tokens[cursor.position].start
        limit = _limit(cursor)
        closing = tokens[cursor.position - 1].end
        return QueryBlock((), query[:opening] + query[closing:], limit)
    later = Cursor(query, tokens, position=3 if mutually else 0)
    while later.current:
        if later.at("MUTUALLY", "RECURSIVE"):
            raise InvalidStatement(
                "WITH MUTUALLY RECURSIVE inside of a query is not supported",
                hint="write it first, with the other CTEs as bindings, or make it a view",
            )
        later.take()
    if not mutually:
        return QueryBlock((), query, DEFAULT_LIMIT)
    limit = _limit(cursor) if cursor.at("(") else DEFAULT_LIMIT
    bindings = [_binding(cursor)]
    while cursor.accept(","):
        bindings.append(_binding(cursor))
    _refuse_twice([binding.name for binding in bindings], "binding")
    return QueryBlock(tuple(bindings), cursor.rest(), limit)


def _limit(cursor: Cursor) -> Limit:
    cursor.expect("(")
    fails = cursor.choose(("RETURN", "ERROR")) == "ERROR"
    cursor.expect("AT", "RECURSION", "LIMIT")
    iterations = cursor.integer("a number of iterations")
    if not iterations:
        raise InvalidStatement("expected a LIMIT of one iteration or more, actual 0")
    cursor.expect(")")
    return Limit(iterations, fails)


def _binding(cursor: Cursor) -> Binding:
    name = cursor.name("a name")
    cursor.expect("(")
    declared = [_column(cursor)]
    while cursor.accept(","):
        declared.append(_column(cursor))
    _refuse_twice([column.name for column in declared], f"column of {name}")
    cursor.expect(")", "AS", "(")
    query = cursor.until((")",))
    cursor.expect(")")
    return Binding(name, tuple(declared), query)


def _column(cursor: Cursor) -> Column:
    name = cursor.name("a column name")
    return Column(name, cursor.until((",", ")")))


def _refuse_twice(names: Sequence[str], what: str) -> None:
    lower = [name.lower() for name in names]
    for name in names:
        if lower.count(name.lower()) > 1:
            raise InvalidStatement(f"{what} {name} appears twice")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def loop_over(block: QueryBlock, values: Sequence[Relational], body: Relational) -> Relational:
    """The body over the loop of the bindings' values.

    Args:
        block: what the query was cut into.
        values: the plan of each binding, which reads the bindings' collections.
        body: the plan of the query, which does too.

    Errors: InvalidStatement for a recursion inside a binding that depends on the bindings.
    """
    places = {block.collection(binding.name): i for i, binding in enumerate(block.bindings)}
    names = tuple(binding.name for binding in block.bindings)
    tied: list[Relational] = []
    for number, value in enumerate(values):

        def seen(get: Get, number: int = number) -> Relational:
            place = places[get.collection]
            if place < number:
                return tied[place]
            return Variable(LOOP, place, names[place], get.columns)

        tied.append(shared(_replaced(value, places.keys(), seen)))

    def result(get: Get) -> Relational:
        return Loop(LOOP, names, tuple(tied), places[get.collection], block.limit)

    return _replaced(body, places.keys(), result)


def _replaced(
    node: Relational, collections: Collection[CollectionId], change: Callable[[Get], Relational]
) -> Relational:
    """The tree with something else for each Get of these collections."""
    if isinstance(node, Get):
        return change(node) if node.collection in collections else node
    nodes = tuple(_replaced(part, collections, change) for part in parts(node))
    node = with_parts(node, nodes)
    return require_closed(node) if isinstance(node, Loop) else node
