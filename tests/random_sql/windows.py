"""Window functions, DISTINCT ON, and ORDER BY with LIMIT: where the order of rows shows."""

import re

from tests.random_sql import relations
from tests.random_sql.scalars import of_kind, predicate
from tests.random_sql.tables import Term
from tests.random_sql.writer import Select, Writer, shown

_NUMBER = "i"
"""Tells equal rows apart in the pinned text, so that all calls see them in one order."""

_STEPS = ("2 PRECEDING", "1 PRECEDING", "CURRENT ROW", "1 FOLLOWING", "2 FOLLOWING")
_ORDERED = ("number", "text", "bool", "date", "stamp")


def windowed(writer: Writer, depth: int) -> Select:
    """All columns of a relation beside window functions; at the top several, in any order."""
    chance = writer.chance
    text, terms = relations.relation(writer, depth)
    row, most = ", ".join(f"{term.sql} NULLS LAST" for term in terms), 1
    if not writer.inner:
        row, most = f"{row}, {text.rpartition(' ')[2]}.{_NUMBER}", 3
        text = _numbered(text, terms)
    kinds = (_placed, _ranked, _rows, _peers, _values)
    by = _partition(writer, terms)
    calls = [chance.among(kinds)(writer, terms, by, row) for _ in range(1 + chance.below(most))]
    is_named = chance.maybe(15)
    where = relations.where(writer, terms, [])
    if is_named:
        over = f"{by}ORDER BY {_order(writer, terms)}"
        calls.append(Term("rank() OVER win", "number"))
        where += f" WINDOW win AS ({over})"
    listed, columns = shown(writer, [*terms, *calls], unique=True)
    last = columns[-1]
    qualify = chance.pick("", "", "", f" QUALIFY {predicate(writer, [last])}")
    return f"SELECT {listed} FROM {text}{where}{qualify}", columns


def _numbered(text: str, terms: list[Term]) -> str:
    """The relation, with its equal rows numbered in the pinned text."""
    relation, _, alias = text.rpartition(" ")
    names = ", ".join(term.sql.rpartition(".")[2] for term in terms)
    number = f"row_number() OVER (PARTITION BY {names}) AS {_NUMBER}"
    return f"⟦(SELECT *, {number} FROM ⟧{relation}⟦)⟧ {alias}"


def _partition(writer: Writer, terms: list[Term]) -> str:
    key = writer.chance.among(terms).sql
    return writer.chance.pick("", f"PARTITION BY {key} ", f"PARTITION BY {key} IS NULL ")


def _order(writer: Writer, terms: list[Term]) -> str:
    term = writer.chance.among(terms)
    computed = {"number": f"{term.sql} % 2", "text": f"length({term.sql})"}
    sql = writer.chance.pick(term.sql, term.sql, computed.get(term.kind, term.sql))
    return sql + writer.chance.pick("", "", " DESC", " NULLS FIRST", " DESC NULLS LAST")


def _any_order(writer: Writer, terms: list[Term]) -> str:
    return ", ".join(_order(writer, terms) for _ in range(writer.chance.pick(1, 1, 2)))


def _placed(writer: Writer, terms: list[Term], by: str, row: str) -> Term:
    """By the place of a row: ties are broken by the whole row."""
    term, number = writer.chance.among(terms), of_kind(writer, terms, "number").sql
    nulls = writer.chance.pick("", " IGNORE NULLS")
    call, kind = writer.chance.among([
        ("row_number()", "number"), ("ntile(3)", "number"),
        (f"lag({term.sql}{nulls})", term.kind),
        (f"lead({term.sql}, 2{nulls})", term.kind), (f"lag({number}, 1, 7{nulls})", "number"),
        (f"lead({term.sql}{nulls})", term.kind),
    ])  # fmt: skip
    return Term(f"{call} OVER ({by}ORDER BY {_any_order(writer, terms)}⟦, {row}⟧)", kind)


def _ranked(writer: Writer, terms: list[Term], by: str, row: str) -> Term:
    """By peers: no tie shows."""
    del row
    call, kind = writer.chance.pick(
        ("rank()", "number"), ("dense_rank()", "number"),
        ("percent_rank()", "float"), ("cume_dist()", "float"),
    )  # fmt: skip
    return Term(f"{call} OVER ({by}ORDER BY {_any_order(writer, terms)})", kind)


def _rows(writer: Writer, terms: list[Term], by: str, row: str) -> Term:
    """A frame of rows: which ones are in it depends on how ties are broken."""
    frame = f"ROWS BETWEEN {_bounds(writer)}"
    frame += writer.chance.pick("", "", " EXCLUDE CURRENT ROW")
    call = _framed(writer, terms)
    order = _any_order(writer, terms)
    if "EXCLUDE" not in frame and writer.chance.maybe(25):
        # Peers are those of the query's order: only where these are equal rows no tie shows.
        all_terms = ", ".join(term.sql for term in terms)
        frame += writer.chance.pick(" EXCLUDE TIES", " EXCLUDE GROUP")
        return Term(f"{call.sql} OVER ({by}ORDER BY {all_terms} {frame})", call.kind)
    return Term(f"{call.sql} OVER ({by}ORDER BY {order}⟦, {row}⟧ {frame})", call.kind)


def _bounds(writer: Writer) -> str:
    steps = ("UNBOUNDED PRECEDING", *_STEPS, "UNBOUNDED FOLLOWING")
    first = writer.chance.below(len(steps) - 1)
    last = first + writer.chance.below(len(steps) - first)
    return f"{steps[first]} AND {steps[max(last, 1)]}"


def _filter(writer: Writer, terms: list[Term]) -> str:
    return f" FILTER (WHERE {predicate(writer, terms)})" if writer.chance.maybe(25) else ""


def _framed(writer: Writer, terms: list[Term]) -> Term:
    """A function of a frame that minds the order in it, or not."""
    if writer.chance.maybe(30):
        term = writer.chance.among(terms)
        call = writer.chance.pick(
            f"first_value({term.sql})", f"last_value({term.sql} IGNORE NULLS)",
            f"nth_value({term.sql}, 2)", f"last_value({term.sql})",
        )  # fmt: skip
        return Term(call, term.kind)
    fit = [term for term in terms if term.kind in _ORDERED]
    if fit and writer.chance.maybe(20):
        term = writer.chance.among(fit)
        return Term(f"list({term.sql}){_filter(writer, terms)}", "values")
    return _blind(writer, terms)


def _blind(writer: Writer, terms: list[Term]) -> Term:
    """A function of a frame for which the order of its rows is nothing."""
    term, number = writer.chance.among(terms), of_kind(writer, terms, "number").sql
    call = writer.chance.among([
        Term("count(*)", "number"), Term(f"sum({number})", "number"),
        Term(f"min({term.sql})", term.kind), Term(f"max({term.sql})", term.kind),
        Term(f"avg({number})", "float"), Term(f"count(DISTINCT {term.sql})", "number"),
        Term(f"median({number})", "float"), Term(f"bool_or({term.sql} IS NULL)", "bool"),
        Term(f"count({term.sql})", "number"),
    ])  # fmt: skip
    return Term(call.sql + _filter(writer, terms), call.kind)


def _peers(writer: Writer, terms: list[Term], by: str, row: str) -> Term:
    """A frame of peers."""
    del row
    chance, call, order = writer.chance, _blind(writer, terms), _order(writer, terms)
    exclude = chance.pick("", "", " EXCLUDE TIES", " EXCLUDE GROUP", " EXCLUDE CURRENT ROW")
    frame = chance.pick(
        "",
        f"GROUPS BETWEEN {_bounds(writer)}{exclude}",
        f"GROUPS BETWEEN {_bounds(writer)}{exclude}",
        f"RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW{exclude}",
        f"RANGE BETWEEN {_bounds(writer)}{exclude}",
    )
    if "RANGE" in frame:
        order = of_kind(writer, terms, "number").sql + chance.pick("", " DESC")
        dates = [term.sql for term in terms if term.kind in {"date", "stamp"}]
        if dates and chance.maybe(40):
            order = chance.among(dates) + chance.pick("", " DESC")
            frame = re.sub(r"(\d) ([PF])", r"INTERVAL \1 DAYS \2", frame)
    return Term(f"{call.sql} OVER ({by}ORDER BY {order} {frame})", call.kind)


def _values(writer: Writer, terms: list[Term], by: str, row: str) -> Term:
    """A frame of peers; a function that minds the order inside it is given one."""
    term, order = writer.chance.among(terms), _order(writer, terms)
    name = writer.chance.pick("first_value", "last_value", "list")
    if name == "list" and term.kind not in _ORDERED:
        name = "first_value"
    kind = "values" if name == "list" else term.kind
    over = f"OVER ({by}ORDER BY {order})"
    return Term(f"{name}({term.sql}⟦ ORDER BY {order}, {row}⟧) {over}", kind)


def first_rows(writer: Writer, depth: int) -> Select:
    """DISTINCT ON, LIMIT and OFFSET, and the first rows of each partition."""
    chance = writer.chance
    text, terms = relations.relation(writer, depth)
    row = ", ".join(f"{term.sql} NULLS LAST" for term in terms)
    where, order = relations.where(writer, terms, []), _any_order(writer, terms)
    listed, columns = shown(writer, terms)
    count, key = chance.pick(1, 2, 3, 2, 1, 3, 5, 0), chance.among(terms).sql
    pick = chance.below(6)
    if pick <= 1:
        offset = chance.pick("", f" OFFSET {chance.below(3)}")
        end = chance.pick(
            f" LIMIT {count}{offset}", f" LIMIT {count}", offset, f" LIMIT {count}0%{offset}"
        )
        return f"SELECT {listed} FROM {text}{where} ORDER BY {order}⟦, {row}⟧{end}", columns
    if pick == 2:
        on = f"DISTINCT ON ({key}) {listed} FROM {text}{where}"
        return f"SELECT {on} ORDER BY {key}, {order}⟦, {row}⟧", columns
    by = chance.pick(f"PARTITION BY {key} ", "")
    place = f"row_number() OVER ({by}ORDER BY {order}⟦, {row}⟧)"
    condition = chance.pick(
        f"{{}} <= {count}",
        "{} < 2",
        "{} < 3",
        "2 > {}",
        "{} = 1",
        "{} BETWEEN 2 AND 3",
        "{} > 1",
    )
    if chance.maybe(60):
        return f"SELECT {listed} FROM {text}{where} QUALIFY {condition.format(place)}", columns
    numbered = f"SELECT {listed}, {place} AS place FROM {text}{where}"
    names = ", ".join(column.sql for column in columns)
    alias = writer.alias("f")
    return (
        f"SELECT {names} FROM ({numbered}) {alias} WHERE {condition.format('place')}",
        columns,
    )
