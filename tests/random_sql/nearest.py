"""ASOF joins: to the nearest row of the right side, which is made to be one row."""

from tests.random_sql.scalars import constant, predicate
from tests.random_sql.tables import Term
from tests.random_sql.writer import From, Writer

_KINDS = ("number", "number", "float", "text", "bool", "date", "stamp", "INTERVAL", "UUID",
          "TIMESTAMP WITH TIME ZONE", "BLOB", "TIMESTAMP_NS")  # fmt: skip


def asof(writer: Writer, left: From, right: From) -> From | None:
    """The join, if the sides have something to be near by.

    Of right's rows with equal values DuckDB takes any. So the right side has either no other
    columns, or one row of each value.
    """
    chance = writer.chance
    (text, terms), (other, offered) = left, right
    pairs = [(a, b) for a in terms for b in offered if a.kind == b.kind]
    by = [(a, b) for a, b in pairs if a.kind in _KINDS]
    if not by:
        return None
    point, start = chance.among(by)
    keys = [pair for pair in chance.several(pairs, 0, 2) if pair[1] != start]
    alone = list(dict.fromkeys([start, *(key for _, key in keys)]))
    alias = writer.alias("n")
    if chance.maybe(50):
        offered, inner = alone, f"SELECT {', '.join(term.sql for term in alone)} FROM {other}"
    else:
        by_value, listed = (", ".join(t.sql for t in some) for some in (alone, offered))
        order = ", ".join(f"{term.sql} NULLS LAST" for term in offered)
        inner = f"SELECT DISTINCT ON ({by_value}) {listed} FROM {other} ORDER BY {order}"
    conditions = [f"{a.sql} = {_under(alias, b).sql}" for a, b in keys]
    verb = chance.pick(">=", ">=", ">", "<", "<=")
    conditions.append(f"{point.sql} {verb} {_under(alias, start).sql}")
    if chance.maybe(15):
        conditions.append(predicate(writer, terms))
    if chance.maybe(10):
        conditions.append(f"{_under(alias, start).sql} <> {constant(writer, start.kind)}")
    kind = chance.pick("", "LEFT ")
    joined = f"{text} ASOF {kind}JOIN ({inner}) {alias} ON {' AND '.join(conditions)}"
    return joined, terms + [_under(alias, term) for term in offered]


def _under(alias: str, term: Term) -> Term:
    return Term(f"{alias}.{term.sql.rpartition('.')[2]}", term.kind)
