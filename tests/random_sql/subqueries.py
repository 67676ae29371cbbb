"""Conditions and values with a subquery in them; outer columns are in scope, at any depth."""

from contextlib import AbstractContextManager

from tests.random_sql import relations
from tests.random_sql.scalars import of_kind, predicate
from tests.random_sql.tables import Term
from tests.random_sql.writer import Writer, pinned

_COMPARISONS = ("=", "=", "<", ">=", "<>")
_NO_PAIRS = "TUPLE"
"""`<>` of tuples with a NULL inside is NULL in DuckDB's nested loops, and false elsewhere."""
_COMPARED = ("number", "text", "float", "bool", "date", "stamp")


def condition(writer: Writer, terms: list[Term], depth: int) -> str:
    """A condition with a subquery, perhaps negated or beside a plain one."""
    test = _tested(writer, terms, depth)
    plain = predicate(writer, terms)
    return writer.chance.pick(
        test, test, test, f"NOT ({test})", f"({test} OR {plain})", f"({test}) IS NULL"
    )


def _tested(writer: Writer, terms: list[Term], depth: int) -> str:
    chance, term = writer.chance, writer.chance.among(terms)
    pick = chance.below(6)
    if pick == 0:
        with _scope(writer, terms):
            return f"EXISTS ({pinned(writer.write(writer, depth)[0])})"
    if pick == 1 and term.kind in _COMPARED:
        return f"{term.sql} {chance.among(_COMPARISONS)} {scalar(writer, terms, term.kind)}"
    column = _column(writer, terms, term.kind, depth)
    if pick in {2, 3} and not term.kind.startswith(_NO_PAIRS):
        return f"{term.sql} {chance.among(_COMPARISONS)} {chance.pick('ANY', 'ALL')} ({column})"
    if pick == 4 and term.kind == "number":
        second = of_kind(writer, terms, "number").sql
        with _scope(writer, terms):
            source, inner = relations.source(writer, 0)
            pair = ", ".join(of_kind(writer, inner, "number").sql for _ in range(2))
            row = f"SELECT {pair} FROM {source}{relations.where(writer, inner, [])}"
        return f"({term.sql}, {second}) {chance.pick('IN', 'NOT IN')} ({row})"
    return f"{term.sql} {chance.pick('IN', 'NOT IN')} ({column})"


def scalar(writer: Writer, terms: list[Term], kind: str) -> str:
    """A scalar subquery: mostly an aggregate, sometimes whatever rows there are."""
    chance = writer.chance
    with _scope(writer, terms):
        source, inner = relations.source(writer, 0)
        term = of_kind(writer, inner, kind)
        calls = [f"min({term.sql})", f"max({term.sql})"]
        if kind == "number":
            calls += ["count(*)", f"count({term.sql})", f"sum({term.sql})"]
        call = chance.among(calls)
        if chance.maybe(50 if writer.fails else 18):
            call = term.sql
        return f"(SELECT {call} FROM {source}{relations.where(writer, inner, [])})"


def _column(writer: Writer, terms: list[Term], kind: str, depth: int) -> str:
    """A subquery of one column of this kind."""
    with _scope(writer, terms):
        source, inner = relations.source(writer, depth)
        conditions = []
        if depth and writer.chance.maybe(30):
            conditions.append(condition(writer, inner, depth - 1))
        column = of_kind(writer, inner, kind).sql
        return f"SELECT {column} FROM {source}{relations.where(writer, inner, conditions)}"


def _scope(writer: Writer, terms: list[Term]) -> AbstractContextManager[None]:
    """An inner query that mostly sees these terms and what they see."""
    correlated = writer.chance.maybe(70)
    return writer.within([*writer.outer, *terms] if correlated else [])
