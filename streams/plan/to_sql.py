"""Scalar expressions as text: exact SQL for the kernel, and labels for people.

SQL names columns `c0 .. cn` and is fully parenthesised. A label names columns as the query
did, without quotes, and leaves out what DuckDB added to literals; it is part of an error's
identity, so it depends only on the expression.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from streams.plan.physical import Expression
from streams.plan.scalar import Call, Form, Literal, Parameter, Ref, Scalar, carrier
from streams.plan.type_names import identifier, quoted
from streams.trace.kernel import unions
from streams.trace.kernel.functions import without_hash

_WORD = re.compile(r"[a-z_][a-z0-9_]*\Z")

# Names that DuckDB's grammar treats apart from other functions, so that they need quotes.
_GRAMMAR = frozenset({
    "coalesce", "columns", "exists", "extract", "grouping", "grouping_id", "interval",
    "list_comprehension", "map", "nullif", "operator", "overlay", "position", "row",
    "struct", "substring", "trim", "try", "try_cast", "unpack", "values", "year", "month",
    "day", "hour", "minute", "second", "cast",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Style:
    """The differences between the two renderings."""

    ref: Callable[[Ref], str]
    literal: Callable[[Literal], str]
    variable: Callable[[str], str]
    bare_literals: bool  # drop a cast that only types a literal


# The binder marks variables with their depth (`x@0`): two of one name never meet, and none can
# hide a column.
_SQL = Style(lambda ref: f"c{ref.index}", lambda x: x.sql, quoted, bare_literals=False)
_LABEL = Style(
    lambda ref: ref.name,
    lambda x: x.label,
    lambda name: identifier(name.rpartition("@")[0]),
    bare_literals=True,
)


def sql(scalar: Scalar) -> str:
    """DuckDB SQL over `c0 .. cn` that has the expression's value and type."""
    return _render(scalar, _SQL)


def label(scalar: Scalar) -> str:
    """The expression for people."""
    text = without_hash(_render(scalar, _LABEL))
    return text[1:-1] if _wrapped(text) else text


def expression(scalar: Scalar) -> Expression:
    """The expression as the physical plan holds it."""
    return Expression(sql(scalar), scalar.type, label(scalar))


def _wrapped(text: str) -> bool:
    """Tell whether one pair of parentheses encloses the whole text."""
    if not text.startswith("("):
        return False
    depth, quote = 0, ""
    for position, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        else:
            depth += (char == "(") - (char == ")")
            if depth == 0:
                return position == len(text) - 1
    return False


def _render(scalar: Scalar, style: Style) -> str:
    match scalar:
        case Ref():
            return style.ref(scalar)
        case Literal():
            return style.literal(scalar)
        case Parameter(name=name):
            return style.variable(name)
        case Call(form=Form.CHECKED, arguments=(whole, shown)):
            return _render(shown if style.bare_literals else whole, style)
        case Call(form=Form.AS_STRUCT | Form.AS_UNION | Form.AS_KEY):
            return _of_unions(scalar, style)
        case Call():
            is_field = not style.bare_literals and _is_member(scalar)
            return _member(scalar, style) if is_field else _call(scalar, style)


def _call(call: Call, style: Style) -> str:
    parts = [_render(argument, style) for argument in call.arguments]
    if call.form in {Form.CAST, Form.TRY_CAST}:
        if style.bare_literals and isinstance(call.arguments[0], Literal):
            return parts[0]
        return f"{call.form.name}({parts[0]} AS {call.type})"
    if call.form is Form.ROWS and style.bare_literals:
        return f"{call.name}({', '.join(parts)})"
    if (call.form, call.name) == (Form.INFIX, "/") and not style.bare_literals:
        return f'"/"({parts[0]}, {parts[1]})'  # of a macro: between operands it would be //
    if call.form is Form.LAMBDA:
        return f"lambda {', '.join(style.variable(name) for name in call.names)}: {parts[0]}"
    return _FORMS[call.form](call, parts)


def _of_unions(call: Call, style: Style) -> str:
    """A conversion of unions; people read what is converted."""
    (argument,) = call.arguments
    text = _render(argument, style)
    if style.bare_literals:
        return text
    if call.form is Form.AS_UNION:
        return unions.as_union(text, call.type)
    if call.form is Form.AS_STRUCT:
        return unions.as_struct(text, argument.type)
    return unions.as_key(_render(carrier(argument), style), argument.type)


def _is_member(call: Call) -> bool:
    """Whether this is a member of a union that is carried: a field of the struct."""
    if call.form is not Form.FUNCTION or call.name != "union_extract":
        return False
    value, name = call.arguments
    is_carried = isinstance(value, Call) and value.form is Form.AS_UNION
    return is_carried and isinstance(name, Literal)


def _member(call: Call, style: Style) -> str:
    value, name = call.arguments
    assert isinstance(value, Call)
    return unions.member(_render(value.arguments[0], style), value.type, _render(name, style))


def _function(call: Call, parts: list[str]) -> str:
    plain = _WORD.match(call.name) and call.name not in _GRAMMAR
    name = identifier(call.name) if plain else quoted(call.name)
    positional = len(parts) - len(call.names)
    named = zip(call.names, parts[positional:], strict=True)
    arguments = parts[:positional] + [f"{quoted(key)} := {value}" for key, value in named]
    return f"{name}({', '.join(arguments)})"


def _case(_: Call, parts: list[str]) -> str:
    pairs = zip(parts[:-1:2], parts[1::2], strict=True)
    whens = " ".join(f"WHEN {when} THEN {then}" for when, then in pairs)
    return f"CASE {whens} ELSE {parts[-1]} END"


def _nearest(name: str, value: str, start: str, end: str) -> str:
    """SQL for a value within the range from `start` to `end`; a NULL `end` is unbounded.

    `name` is the comparison of the value with `start`, `>=`, `>`, `<=` or `<`: by `<=` and `<`
    the range extends downwards from `start`.
    """
    return f"({value} {name} {start} AND ({end} IS NULL OR NOT {value} {name} {end}))"


_FORMS: dict[Form, Callable[[Call, list[str]], str]] = {
    Form.FUNCTION: _function,
    Form.INFIX: lambda call, parts: f"({parts[0]} {call.name} {parts[1]})",
    Form.PREFIX: lambda call, parts: f"({call.name} {parts[0]})",
    Form.AND: lambda _, parts: "(" + " AND ".join(parts) + ")",
    Form.OR: lambda _, parts: "(" + " OR ".join(parts) + ")",
    Form.NOT: lambda _, parts: f"(NOT {parts[0]})",
    Form.IS_NULL: lambda _, parts: f"({parts[0]} IS NULL)",
    Form.IS_NOT_NULL: lambda _, parts: f"({parts[0]} IS NOT NULL)",
    Form.IN: lambda _, parts: f"({parts[0]} IN ({', '.join(parts[1:])}))",
    Form.NOT_IN: lambda _, parts: f"({parts[0]} NOT IN ({', '.join(parts[1:])}))",
    Form.COALESCE: lambda _, parts: f"COALESCE({', '.join(parts)})",
    Form.CASE: _case,
    Form.TRY: lambda _, parts: f"TRY({parts[0]})",
    Form.ROWS: lambda call, parts: (
        f"(SELECT list(made) FROM {call.name}({', '.join(parts)}) AS made)"
    ),
    Form.NEAREST: lambda call, parts: _nearest(call.name, *parts),
    Form.TEMPORAL: lambda call, parts: f"(mz_now() {call.name} {parts[0]})",
}
