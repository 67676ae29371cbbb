"""Whole queries: SELECT over a FROM, set operations, common tables, recursion."""

from collections.abc import Callable
from functools import partial

from tests.random_sql import groups, recursion, relations, subqueries, windows
from tests.random_sql.chance import Chance
from tests.random_sql.scalars import failing, lenient, of_kind, output
from tests.random_sql.tables import RARE, Table, Term
from tests.random_sql.writer import Select, Writer, asked, pinned, shown, told_apart

_SETS = ("number", "number", "number", "text", "bool")
_UNORDERED = ("json_each", " RIGHT ")
"""Where the columns of a FROM do not stand as the terms do."""


def query(chance: Chance, tables: list[Table], functions: list[str]) -> tuple[str, str]:
    """A query as a user writes it, and with its ties broken."""
    writer = Writer(chance, tables, select, chance.maybe(20), functions)
    text, _ = _whole(writer, chance.pick(1, 1, 1, 2))
    return asked(text), pinned(text)


def _whole(writer: Writer, depth: int) -> Select:
    chance = writer.chance
    kinds = {kind for table in writer.tables for kind in table.columns.values()}
    if chance.maybe(6) and not any("TIMESTAMP" in kind for kind in kinds):
        return _temporal(writer)
    if chance.maybe(8):
        return chance.pick(recursion.recursive, recursion.recursive, recursion.mutual)(writer)
    if not chance.maybe(15):
        return select(writer, depth)
    text, columns = writer.nested(depth)
    name = writer.alias("c")
    writer.named[name] = columns
    body, shown_ = select(writer, depth)
    materialization = chance.pick("", "", " MATERIALIZED", " NOT MATERIALIZED")
    return f"WITH {name} AS{materialization} ({text}) {body}", shown_


def select(writer: Writer, depth: int) -> Select:
    """A SELECT of any form."""
    pick = writer.chance.below(100)
    if depth and 55 <= pick < 67:
        return _set(writer, depth - 1)
    if not writer.outer and 67 <= pick < 79:
        return windows.windowed(writer, depth)
    if not writer.outer and 79 <= pick < 91:
        return windows.first_rows(writer, depth)
    source, terms = relations.source(writer, depth)
    text = f" FROM {source}{_where(writer, terms, depth, source)}"
    if 38 <= pick < 55 or pick >= 95:
        return groups.grouped(writer, text, terms)
    outputs = [_output(writer, terms, depth) for _ in range(writer.chance.pick(1, 2, 2, 3))]
    outputs.sort(key=partial(_place, terms))
    distinct = "DISTINCT " if writer.chance.maybe(12) else ""
    if writer.chance.maybe(10) and not any(word in source for word in _UNORDERED):
        shown_as = told_apart([term.sql.rpartition(".")[2] for term in terms])
        if shown_as:
            pairs = zip(shown_as, terms, strict=True)
            return f"SELECT {distinct}*{text}", [Term(name, term.kind) for name, term in pairs]
    is_first = bool(writer.outer) and writer.chance.maybe(15)
    listed, columns = shown(writer, outputs, unique=is_first)
    if is_first:
        names = ", ".join(column.sql for column in columns)
        text += f" ORDER BY {names} LIMIT 1"
    return f"SELECT {distinct}{listed}{text}", columns


def _where(writer: Writer, terms: list[Term], depth: int, source: str) -> str:
    conditions = []
    if " FULL JOIN " in source and writer.chance.maybe(60):
        conditions.append(lenient(writer, terms))  # a stricter one makes another join of it
    if depth and writer.chance.maybe(20):
        conditions.append(subqueries.condition(writer, terms, depth - 1))
    if writer.fails and not writer.inner and writer.chance.maybe(20):
        term = failing(writer, terms, "number")
        return f" WHERE {term.sql} > 0" if term else ""
    return relations.where(writer, terms, conditions)


def _place(terms: list[Term], output: Term) -> int:
    """Where an output stands: as the relations have it, what is computed last, as ties go."""
    if output in terms:
        return terms.index(output)
    return len(terms) + (not output.sql.startswith("unnest("))


def _output(writer: Writer, terms: list[Term], depth: int) -> Term:
    chance = writer.chance
    if depth and chance.maybe(12):
        kind = chance.pick("number", "text")
        return Term(subqueries.scalar(writer, terms, kind), kind)
    if depth and chance.maybe(8):
        test = subqueries.condition(writer, terms, depth - 1)
        return Term(f"CASE WHEN {test} THEN 'yes' ELSE 'no' END", "text")
    if chance.maybe(8):
        lists = [term for term in terms if term.kind == "list"]
        listed = chance.among(lists).sql if lists else "[2, 1, 2]"
        return Term(f"unnest({listed})", "number")
    return output(writer, terms)


def _set(writer: Writer, depth: int) -> Select:
    """Two or three queries under set operations."""
    chance = writer.chance
    types = [column for table in writer.tables for column in table.columns.values()]
    mixed = [*_SETS, *(kind for kind in types if kind in RARE)]
    kinds = [chance.among(mixed) for _ in range(chance.pick(1, 2))]
    rows, where, columns = _of_kinds(writer, kinds, depth)
    text = rows + where()
    for _ in range(chance.pick(1, 1, 2)):
        verb = chance.pick("UNION", "INTERSECT", "EXCEPT") + chance.pick(" ALL", " ALL", "")
        if chance.maybe(50):  # else the same rows but for the condition, so that most meet
            rows, where, _ = _of_kinds(writer, kinds, depth)
        text = f"({text}) {verb} ({rows}{where()})"
    if chance.maybe(20):
        verb = chance.pick("UNION ALL BY NAME", "UNION BY NAME")
        rows, where, other = _of_kinds(writer, kinds, depth)
        text = f"({text}) {verb} ({rows}{where()})"
        columns = [*columns, *(term for term in other if term not in columns)]
    return text, columns


def _of_kinds(
    writer: Writer, kinds: list[str], depth: int
) -> tuple[str, Callable[[], str], list[Term]]:
    """A SELECT of these kinds, what writes a condition for it, and its columns."""
    source, terms = relations.source(writer, depth)
    listed, columns = shown(writer, [of_kind(writer, terms, kind) for kind in kinds], True)
    where = partial(_where, writer, terms, depth, source)
    return f"SELECT {listed} FROM {source}", where, columns


def _temporal(writer: Writer) -> Select:
    """Rows that come and go by themselves as time passes."""
    source, terms = relations.source(writer, 0)
    number = of_kind(writer, terms, "number").sql
    plain = relations.where(writer, terms, [])
    test = writer.chance.pick(
        f"mz_now() <= {number} + 2",
        f"mz_now() > {number} + 1",
        f"mz_now() BETWEEN {number} AND {number} + 2",
    )
    text = f" FROM {source}{plain or ' WHERE true'} AND {test}"
    if writer.chance.maybe(40):
        return groups.grouped(writer, text, terms)
    listed, columns = shown(writer, [output(writer, terms) for _ in range(2)])
    return f"SELECT {listed}{text}", columns
