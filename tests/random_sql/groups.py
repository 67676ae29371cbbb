"""GROUP BY: keys, grouping sets, and every aggregate, with its ties broken."""

from tests.random_sql.scalars import failing, of_kind, predicate
from tests.random_sql.tables import ROUNDED, Term
from tests.random_sql.writer import Select, Writer, shown

_ORDERED = ("number", "text", "bool", "date", "stamp")
"""Kinds of which equal values print alike; a zero among floats may have a sign."""


def grouped(writer: Writer, text: str, terms: list[Term]) -> Select:
    """A query over groups of the rows of a FROM and WHERE."""
    chance = writer.chance
    keys = chance.several(terms, 0, 2)
    if writer.fails and not keys:
        keys = [chance.among(terms)]
    calls = [aggregate(writer, terms) for _ in range(chance.pick(1, 2, 3))]
    more: list[Term] = []
    if keys and chance.maybe(30):
        by, more = _sets(writer, keys)
    elif keys and chance.maybe(15):
        by = " GROUP BY ALL"
    else:
        by = f" GROUP BY {', '.join(key.sql for key in keys)}" if keys else ""
    having = _having(writer, terms) if chance.maybe(20) else ""
    listed, columns = shown(writer, [*keys, *more, *calls])
    return f"SELECT {listed}{text}{by}{having}", columns


def _sets(writer: Writer, keys: list[Term]) -> tuple[str, list[Term]]:
    chance = writer.chance
    listed = ", ".join(key.sql for key in keys)
    sets = [f"({listed})", "()", f"({keys[0].sql})", f"({keys[-1].sql})"]
    some = ", ".join(chance.several(sets, 1, 4))
    by = chance.pick(f"ROLLUP ({listed})", f"CUBE ({listed})", f"GROUPING SETS ({some})")
    more = [Term(f"grouping({listed})", "number")] if chance.maybe(40) else []
    return f" GROUP BY {by}", more


def _having(writer: Writer, terms: list[Term]) -> str:
    number = of_kind(writer, terms, "number").sql
    test = writer.chance.pick(
        "count(*) > 1",
        f"max({number}) > 0",
        f"sum({number}) IS NOT NULL",
        "count(*) < 4",
        f"min({number}) < 2",
    )
    return f" HAVING {test}"


def aggregate(writer: Writer, terms: list[Term]) -> Term:
    """A call of an aggregate function."""
    chance = writer.chance
    if writer.fails and not writer.inner and chance.maybe(30):
        term = failing(writer, terms, "number")
        if term:
            return Term(f"{chance.pick('sum', 'max', 'count')}({term.sql})", "number")
    often = (_plain, _numeric, _ordered)
    call = chance.among([*often, *often, _distinct, _extreme, _pairs])(writer, terms)
    is_wrapped = call.sql.startswith("to_json(")  # no aggregate itself, so it has no FILTER
    if not is_wrapped and chance.maybe(25):
        return Term(f"{call.sql} FILTER (WHERE {predicate(writer, terms)})", call.kind)
    return call


def _plain(writer: Writer, terms: list[Term]) -> Term:
    term = writer.chance.among(terms)
    calls = [
        Term("count(*)", "number"),
        Term(f"count({term.sql})", "number"),
        Term(f"min({term.sql})", term.kind),
        Term(f"max({term.sql})", term.kind),
        Term(f"max({term.sql}, 2)", "values"),
        Term(f"count_if({predicate(writer, terms)})", "number"),
        Term(f"bool_and({predicate(writer, terms)})", "bool"),
        Term(f"bool_or({predicate(writer, terms)})", "bool"),
        Term(f"approx_count_distinct({term.sql})", "number"),
    ]
    if term.kind in _ORDERED:
        calls += [Term(f"histogram({term.sql})", "counts")]
        calls += [Term(f"quantile_disc({term.sql}, 0.5)", term.kind)]
    return writer.chance.among(calls)


def _numeric(writer: Writer, terms: list[Term]) -> Term:
    number = of_kind(writer, terms, "number").sql
    float_ = of_kind(writer, terms, "float").sql
    kind, call = writer.chance.among([
        ("number", "sum({0})"), ("float", "avg({0})"), ("float", "sum({1})"),
        ("float", "avg({1})"), (ROUNDED, "stddev({0})"), (ROUNDED, "var_pop({0})"),
        (ROUNDED, "variance({0})"), (ROUNDED, "stddev_pop({0})"), ("float", "median({0})"),
        ("float", "quantile_cont({0}, 0.25)"), ("floats", "quantile_cont({0}, [0.1, 0.9])"),
        ("number", "bit_and({0}::INTEGER)"), ("number", "bit_or({0}::INTEGER)"),
        ("number", "bit_xor({0}::INTEGER)"), ("float", "mad({0}::DOUBLE)"),
        ("float", "product({0})"), (ROUNDED, "entropy({0})"), ("float", "avg({0} + 4)"),
    ])  # fmt: skip
    return Term(call.format(number, float_), kind)


def _pairs(writer: Writer, terms: list[Term]) -> Term:
    one, other = (of_kind(writer, terms, "number").sql for _ in range(2))
    call = writer.chance.pick(
        "covar_pop", "covar_samp", "regr_count", "regr_avgx", "regr_avgy", "regr_sxx",
        "regr_syy", "regr_sxy", "corr", "regr_slope", "regr_intercept", "regr_r2",
    )  # fmt: skip
    return Term(f"{call}({one}, {other})", "number" if call == "regr_count" else ROUNDED)


def _distinct(writer: Writer, terms: list[Term]) -> Term:
    term, number = writer.chance.among(terms), of_kind(writer, terms, "number").sql
    calls = [
        Term(f"count(DISTINCT {term.sql})", "number"),
        Term(f"sum(DISTINCT {number})", "number"),
        Term(f"avg(DISTINCT {number})", "float"),
        Term(f"max(DISTINCT {term.sql})", term.kind),
    ]
    if term.kind in _ORDERED:
        calls.append(Term(f"list(DISTINCT {term.sql} ORDER BY {term.sql} DESC)", "values"))
    if term.kind == "text":
        arguments = f"DISTINCT {term.sql}, '-' ORDER BY {term.sql}"
        calls.append(Term(f"string_agg({arguments})", "text"))
    return writer.chance.among(calls)


def _ordered(writer: Writer, terms: list[Term]) -> Term:
    """An aggregate that minds the order of its rows."""
    chance = writer.chance
    fit = [term for term in terms if term.kind in _ORDERED] or [Term("1", "number")]
    term, by = (
        chance.among(fit),
        chance.among(fit).sql + chance.pick("", " DESC", " NULLS FIRST"),
    )
    order = chance.pick(f" ORDER BY {by}⟦, {term.sql}⟧", f"⟦ ORDER BY {term.sql}⟧")
    if term.kind == "text" and chance.maybe(40):
        return Term(f"string_agg({term.sql}, '|'{order})", "text")
    calls = [
        ("values", "list"), ("values", "array_agg"), (term.kind, "first"), (term.kind, "last"),
        (term.kind, "mode"),
    ]  # fmt: skip
    if chance.maybe(12):
        return Term(f"to_json(list({term.sql}{order}))", "JSON")
    kind, call = chance.among(calls)
    return Term(f"{call}({term.sql}{order})", kind)


def _extreme(writer: Writer, terms: list[Term]) -> Term:
    fit = [term for term in terms if term.kind in _ORDERED] or [Term("1", "number")]
    one, by = writer.chance.among(fit), writer.chance.among(fit).sql
    name = writer.chance.pick("arg_min", "arg_max", "min_by", "max_by", "any_value")
    if name == "any_value":
        return Term(f"any_value({one.sql}⟦ ORDER BY {one.sql}⟧)", one.kind)
    return Term(f"{name}({one.sql}, {by}⟦ ORDER BY {one.sql}, {by}⟧)", one.kind)
