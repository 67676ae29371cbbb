"""Expressions and conditions over terms in scope, without subqueries."""

from collections.abc import Sequence

from tests.random_sql import nested
from tests.random_sql.tables import RARE, SIMPLE, Term
from tests.random_sql.writer import Writer

_CONSTANTS = {
    "number": ["1", "0", "2", "3"],
    "float": ["0.0::DOUBLE", "1.5::DOUBLE", "'nan'::DOUBLE"],
    "text": ["'x'", "'xy'", "'z'", "''"],
    "bool": ["true", "false"],
    "date": ["DATE '2024-03-01'"],
    "stamp": ["TIMESTAMP '2024-03-01 00:00:00'"],
    "list": ["[1]", "[2, 1, 2]"],
    "json": ["""'{"a": 1}'::JSON""", "'[]'::JSON"],
}
_COMPUTED = {
    "number": [
        "{0} + 1", "{0} * 2", "-{0}", "{0} // 2", "{0} % 2", "abs({0})", "{0}::BIGINT",
        "coalesce({0}, {1})", "nullif({0}, 1)", "greatest({0}, {1})",
        "CASE WHEN {p} THEN {0} ELSE {1} END", "CASE {0} WHEN 1 THEN 10 WHEN 2 THEN {1} END",
        "TRY_CAST({0}::VARCHAR AS INTEGER)", "({0} - {1})",
    ],
    "float": [
        "-{0}", "{0} * 2", "{0} + 0.5", "abs({0})", "coalesce({0}, {1})",
        "CASE WHEN {p} THEN {0} ELSE {1} END",
    ],
    "text": [
        "{0} || 'z'", "upper({0})", "{0}[1]", "coalesce({0}, {1})", "reverse({0})",
        "CASE WHEN {p} THEN {0} ELSE {1} END", "substr({0}, 2)", "replace({0}, 'x', '')",
        "concat({0}, {1})", "concat_ws('-', {0}, {1})",
    ],
    "bool": ["NOT {0}", "{0} IS NOT TRUE", "coalesce({0}, {1})", "({0} OR {1})", "({p})"],
    "date": ["{0} + 1", "coalesce({0}, {1})", "CASE WHEN {p} THEN {0} END"],
    "stamp": ["{0} + INTERVAL '1 day'", "date_trunc('day', {0})", "coalesce({0}, {1})"],
    "list": ["list_sort({0})", "{0} || [7]", "coalesce({0}, {1})",
             "list_transform({0}, lambda e: e + 1)", "list_filter({0}, lambda e: e > 1)",
             "list_transform({0}, lambda e: e + len({1}))"],
    "json": ["json_merge_patch({0}, '{{\"b\": 1}}')", "{0}->'a'", "coalesce({0}, {1})",
             "json_array({0}, {1})"],
    "INTERVAL": ["{0} + INTERVAL '1 day'", "-{0}", "coalesce({0}, {1})"],
    "TIME": ["{0} + INTERVAL '1 hour'", "coalesce({0}, {1})"],
    "TIMESTAMP WITH TIME ZONE": ["date_trunc('day', {0})", "{0} + INTERVAL '1 day'"],
    "VARCHAR[]": ["list_sort({0})", "{0} || ['q']"],
    "BLOB": ["{0} || 'q'::BLOB"],
}  # fmt: skip
_CONVERTED = {
    "number": [
        ("text", "length({0})"), ("date", "year({0})"), ("list", "len({0})"),
        ("list", "{0}[1]"), ("stamp", "date_part('hour', {0})"), ("bool", "{0}::INTEGER"),
        ("list", "list_sum({0})"), ("list", "len(list_filter({0}, lambda e: e > 1))"),
        ("number", "list_sum(list_transform([{0}, 2], lambda e: e * {0}))"),
        ("json", "json_array_length({0})"), ("json", "TRY_CAST({0}->>'a' AS INTEGER)"),
        ("BLOB", "octet_length({0})"), ("BIT", "bit_count({0})"),
        ("INTERVAL", "date_part('day', {0})"),
    ],
    "text": [("number", "{0}::VARCHAR"), ("bool", "{0}::VARCHAR"), ("date", "{0}::VARCHAR"),
             ("list", "{0}::VARCHAR"), ("json", "{0}->>'a'"), ("json", "json_type({0})"),
             ("UUID", "{0}::VARCHAR"), ("TIME", "{0}::VARCHAR"), ("JSON[]", "{0}[1]->>'a'"),
             ("VARCHAR[]", "array_to_string({0}, ',')")],
    "json": [("number", "json_object('a', {0})"), ("text", "to_json({0})"),
             ("list", "to_json({0})")],
    "float": [("number", "{0}::DOUBLE")],
    "date": [("stamp", "{0}::DATE")],
    "stamp": [("date", "{0}::TIMESTAMP")],
    "list": [("number", "[{0}::INTEGER, 1]")],
}  # fmt: skip
_FAILING = {
    "number": [
        ("number", "10 // {0}"), ("text", "{0}::INTEGER"), ("number", "{0}::UTINYINT"),
        ("number", "{0}::BIGINT + 9223372036854775806"), ("number", "sqrt({0})::INTEGER"),
        ("number", "10 % {0}"), ("number", "({0}::DECIMAL(4,1) * 400)::DECIMAL(4,1)"),
    ],
    "date": [("text", "{0}::DATE"), ("number", "make_date(2024, {0}::INTEGER, 1)")],
    "bool": [("text", "{0}::BOOLEAN")],
    "stamp": [("text", "{0}::TIMESTAMP")],
    "json": [("text", "{0}::JSON")],
}  # fmt: skip
FUNCTIONS = {
    "tripled": (
        "number", "tripled({0})", "x BIGINT", "BIGINT",
        "def tripled(x): import pyarrow.compute as pc; return pc.multiply(x, 3)",
    ),
    "known": (
        "bool", "known({0})", "x BIGINT", "BOOLEAN",
        "def known(x): return x.is_valid()",
    ),
    "beside": (
        "text", "beside({0}, {1}::VARCHAR)", "x BIGINT, y VARCHAR", "VARCHAR",
        "def beside(x, y): import pyarrow.compute as pc;"
        " return pc.binary_join_element_wise(x.cast(\"string\"), y, \"/\")",
    ),
}  # fmt: skip
"""Functions in Python: the kind of their values, a call over numbers, and their declaration."""


def output(writer: Writer, terms: list[Term]) -> Term:
    """Something to show: mostly a column, sometimes computed of columns."""
    chance, term = writer.chance, writer.chance.among(terms)
    if chance.maybe(6):
        return nested.packed(writer, terms)
    if writer.fails and chance.maybe(50):
        return failing(writer, terms, chance.pick("number", *_FAILING)) or term
    if chance.maybe(45):
        return computed(writer, terms, term)
    return term


def computed(writer: Writer, terms: list[Term], term: Term) -> Term:
    """An expression of the term's kind."""
    chance = writer.chance
    patterns = [
        (source.sql, pattern)
        for kind, pattern in [*_CONVERTED.get(term.kind, []), *nested.patterns(term.kind)]
        for source in terms
        if source.kind == kind
    ]
    if writer.functions and chance.maybe(50):
        kind, pattern, *_ = FUNCTIONS[chance.among(writer.functions)]
        numbers = [of_kind(writer, terms, "number").sql for _ in range(2)]
        return Term(pattern.format(*numbers), kind)
    if patterns and chance.maybe(40):
        sql, pattern = chance.among(patterns)
        return Term(pattern.format(sql), term.kind)
    if term.kind.startswith("packed"):
        return term
    own = _COMPUTED.get(term.kind, [])
    pattern = chance.among(own if own and chance.maybe(90) else nested.same())
    other = of_kind(writer, terms, term.kind).sql
    test = predicate(writer, terms) if "{p}" in pattern else ""
    return Term(pattern.format(term.sql, other, p=test), term.kind)


def declared(names: Sequence[str]) -> tuple[str, ...]:
    """The CREATE FUNCTION statements of these functions."""
    terms_ = []
    for name in names:
        _, _, parameters, returns, body = FUNCTIONS[name]
        head = f"CREATE function {name}({parameters}) RETURNS {returns} LANGUAGE PYTHON"
        terms_.append(f"{head} AS '{body}'")
    return tuple(terms_)


def failing(writer: Writer, terms: list[Term], kind: str) -> Term | None:
    """An expression that fails for some rows, if there is a term to make it of."""
    patterns = [
        (term.sql, pattern)
        for source, pattern in _FAILING[kind]
        for term in terms
        if term.kind == source
    ]
    if not patterns:
        return None
    sql, pattern = writer.chance.among(patterns)
    text = pattern.format(sql)
    if writer.chance.maybe(30):
        text = f"CASE WHEN {predicate(writer, terms)} THEN {text} END"
    return Term(text, kind)


def of_kind(writer: Writer, terms: list[Term], kind: str) -> Term:
    """A term of the kind, or a constant."""
    candidates = [term for term in terms if term.kind == kind]
    if candidates and not writer.chance.maybe(10):
        return writer.chance.among(candidates)
    return Term(constant(writer, kind), kind)


def constant(writer: Writer, kind: str) -> str:
    if kind in _CONSTANTS:
        return writer.chance.among(_CONSTANTS[kind])
    values = RARE.get(kind) or SIMPLE.get(kind)
    if values is None:  # of a kind that has no constants
        return "NULL"
    return f"({writer.chance.among(values[1:])})::{kind}"


def predicate(writer: Writer, terms: list[Term]) -> str:
    """A condition that no row makes fail."""
    chance = writer.chance
    term = chance.among(terms)
    one, other = constant(writer, term.kind), constant(writer, term.kind)
    others = [other for other in terms if other.sql != term.sql]
    peer = of_kind(writer, others, term.kind).sql
    options = [
        f"{term.sql} IS NOT NULL",
        f"{term.sql} = {one}",
        f"{term.sql} >= {one}",
        f"{term.sql} <> {one}",
        f"{term.sql} <> {peer}",
        f"{term.sql} IS DISTINCT FROM {peer}",
        f"coalesce({term.sql}, {one}) <= {other}",
        f"{term.sql} BETWEEN least({one}, {other}) AND greatest({one}, {other})",
        f"{term.sql} IN ({one}, {other})",
        f"({term.sql} <= {one} OR {peer} IS NULL)",
        f"NOT ({term.sql} = {one} AND {peer} >= {other})",
        f"{term.sql} IS NULL",
        f"({term.sql} NOT IN ({one}, NULL) OR {term.sql} IS NULL)",
    ]
    if term.kind == "text":
        options += [f"{term.sql} LIKE 'x%'", f"regexp_matches({term.sql}, '[xz]')"]
    if term.kind == "bool":
        options += [term.sql, f"{term.sql} IS TRUE"]
    if term.kind == "list":
        options.append(f"list_contains({term.sql}, 1)")
    if term.kind == "number" and "known" in writer.functions:
        options += [f"known({term.sql})", f"NOT known({term.sql})"]
    if term.kind == "json":
        options += [f"json_contains({term.sql}, '1')", f"{term.sql}->>'a' = '1'"]
    return chance.among(options)


def lenient(writer: Writer, terms: list[Term]) -> str:
    """A condition that takes NULL too."""
    term = writer.chance.among(terms)
    one = constant(writer, term.kind)
    return writer.chance.pick(
        f"{term.sql} IS DISTINCT FROM {one}",
        f"({term.sql} >= {one} OR {term.sql} IS NULL)",
        f"coalesce({term.sql} <> {one}, true)",
        f"{term.sql} IS NULL",
    )


def link(writer: Writer, left: list[Term], right: list[Term]) -> str:
    """What connects two sides, mostly as a key."""
    pairs = [(one, other) for one in left for other in right if one.kind == other.kind]
    if not pairs:
        return predicate(writer, left)
    one, other = writer.chance.among(pairs)
    verb = writer.chance.pick("=", "=", "=", "=", "<", "<>", "IS NOT DISTINCT FROM", ">=")
    plus = " + 1" if one.kind == "number" and writer.chance.maybe(15) else ""
    return f"{one.sql}{plus} {verb} {other.sql}"
