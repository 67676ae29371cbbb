"""What stands behind FROM: tables, subqueries, series, and joins of every kind."""

from tests.random_sql import derived
from tests.random_sql.nearest import asof
from tests.random_sql.scalars import link, predicate
from tests.random_sql.tables import KINDS, ROUNDED, Table, Term
from tests.random_sql.writer import From, Writer, columns_of, pinned

_JOINS = ("INNER", "LEFT", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI", "CROSS")


def source(writer: Writer, depth: int) -> From:
    """Relations, joined."""
    chance = writer.chance
    text, terms = relation(writer, depth)
    for _ in range(chance.pick(0, 0, 1, 1, 2) if depth else chance.pick(0, 0, 1)):
        pick = chance.below(100)
        if any(term.kind == "json" for term in terms) and chance.maybe(30):
            text, terms = derived.series(writer, (text, terms))
        elif pick < 68:
            text, terms = _joined(writer, (text, terms), depth)
        elif pick < 76:
            other, offered = relation(writer, 0)
            text, terms = f"{text}, {other}", terms + offered
        elif pick < 87:
            text, terms = derived.series(writer, (text, terms))
        else:
            text, terms = _lateral(writer, (text, terms), depth)
    return text, terms


def relation(writer: Writer, depth: int) -> From:
    """One relation with a name."""
    chance = writer.chance
    alias = writer.alias("r")
    pick = chance.below(100)
    if writer.named and 60 <= pick < 85:
        name = chance.among(list(writer.named))
        return f"{name} {alias}", _under(alias, writer.named[name])
    if depth and 70 <= pick < 90:
        # FROM does not see the outer query's columns unless it says LATERAL
        text, columns = writer.nested(depth - 1)
        return f"({text}) {alias}", _under(alias, columns)
    if pick >= 95:
        makers = (derived.values, derived.pivot, derived.unpivot)
        return chance.among(makers)(writer, alias)
    if pick >= 90:
        return _shared(writer, alias)
    table = chance.among(writer.tables)
    return f"{table.name} {alias}", columns_of(table, alias)


def _under(alias: str, columns: list[Term]) -> list[Term]:
    """The columns of a query by the name it has in another: those that can be told apart."""
    columns = [column for column in columns if column.kind != ROUNDED] or columns
    return [Term(f"{alias}.{column.sql}", column.kind) for column in columns]


def _shared(writer: Writer, alias: str) -> From:
    """Two tables joined by the names they share: NATURAL, or USING some of them."""
    chance = writer.chance
    left, right = chance.among(writer.tables), chance.among(writer.tables)
    one, other = writer.alias("r"), writer.alias("r")
    both = [name for name in left.columns if name in right.columns]
    kind = chance.pick("", "LEFT ", "RIGHT ", "FULL ")
    if chance.maybe(50):
        joined = f"{left.name} {one} NATURAL {kind}JOIN {right.name} {other}"
        names = both
    else:
        names = sorted(chance.several(both, 1, 2))  # as they stand in the tables, as ties are
        using = ", ".join(names)
        joined = f"{left.name} {one} {kind}JOIN {right.name} {other} USING ({using})"
    sides = [(left, one), (right, other)]
    first, second = (
        [
            (n, n, left) if n in names else (f"{side}.{n}", f"{side}_{n}", table)
            for n in table.columns
        ]
        for table, side in (reversed(sides) if kind == "RIGHT " else sides)
    )
    # Ties are broken by the columns as they stand in the tables, merged ones where the first
    # has them; those of a FULL join are computed, and come last.
    merged = [output for output in first if output[0] in names]
    alone, more = ([e for e in part if e[0] not in names] for part in (first, second))
    offered = [*alone, *more, *merged] if kind == "FULL " else [*first, *more]
    listed = ", ".join(f"{sql} AS {name}" for sql, name, _ in offered)
    terms = [Term(f"{alias}.{name}", _kind(table, sql)) for sql, name, table in offered]
    return f"(SELECT {listed} FROM {joined}) {alias}", terms


def _kind(table: Table, column: str) -> str:
    type_ = table.columns[column.rpartition(".")[2]]
    return KINDS.get(type_, type_)


def _joined(writer: Writer, left: From, depth: int) -> From:
    text, terms = left
    other, offered = relation(writer, depth)
    if writer.chance.maybe(12):
        nearest = asof(writer, left, (other, offered))
        if nearest:
            return nearest
    kind = writer.chance.among(_JOINS)
    if kind == "CROSS":
        return f"{text} CROSS JOIN {other}", terms + offered
    joined = f"{text} {kind} JOIN {other} ON {_condition(writer, terms, offered)}"
    if kind == "RIGHT":  # is LEFT turned round, and ties are broken by what then comes first
        return joined, offered + terms
    return joined, terms if kind in {"SEMI", "ANTI"} else terms + offered


def _condition(writer: Writer, left: list[Term], right: list[Term]) -> str:
    """Keys, what is left beside keys, or no key at all."""
    parts = [link(writer, left, right)]
    while writer.chance.maybe(25) and len(parts) < 4:
        side = writer.chance.pick(left, right)
        parts.append(link(writer, left, right))
        if writer.chance.maybe(50):
            parts[-1] = predicate(writer, side)
    return writer.chance.pick(" AND ", " AND ", " AND ", " OR ").join(parts)


def _lateral(writer: Writer, left: From, depth: int) -> From:
    """A subquery in FROM that sees what stands before it."""
    text, terms = left
    alias = writer.alias("l")
    with writer.within(terms):
        inner, columns = writer.write(writer, max(depth - 1, 0))
    verb = writer.chance.pick(", LATERAL", " CROSS JOIN LATERAL", " LEFT JOIN LATERAL")
    on = " ON true" if "LEFT" in verb else ""
    joined = f"{text}{verb} ({pinned(inner)}) {alias}{on}"
    return joined, terms + _under(alias, columns)


def where(writer: Writer, terms: list[Term], conditions: list[str]) -> str:
    """WHERE with these conditions and others, the first one to the outer query."""
    parts = list(conditions)
    if writer.outer and writer.chance.maybe(80):
        parts.append(link(writer, terms, writer.outer))
    for _ in range(writer.chance.pick(0, 0, 1)):
        parts.append(predicate(writer, terms))
    return f" WHERE {' AND '.join(parts)}" if parts else ""
