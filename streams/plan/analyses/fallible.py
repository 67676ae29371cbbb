"""Decides which expressions cannot fail on any row.

A predicate that can fail must not be evaluated on rows that another predicate or a join would
have removed: the query itself would not raise that error. So only the expressions listed here
are moved. The list is short on purpose: a missing function costs some speed, a wrong one gives
wrong results.
"""

import re

from streams.plan.scalar import Call, Form, Literal, Scalar

_SAFE_FORMS = frozenset(
    {
        Form.AND,
        Form.OR,
        Form.NOT,
        Form.IS_NULL,
        Form.IS_NOT_NULL,
        Form.IN,
        Form.NOT_IN,
        Form.COALESCE,
        Form.CASE,
        Form.TRY_CAST,
        Form.TEMPORAL,
        Form.NEAREST,
        Form.LAMBDA,
        Form.AS_STRUCT,
        Form.AS_UNION,
        Form.AS_KEY,
    }
)
_SAFE_FUNCTIONS = frozenset({
    "=", "!=", "<", ">", "<=", ">=", "~~", "!~~", "~~*", "!~~*", "||", "lower", "upper",
    "length", "starts_with", "ends_with", "prefix", "suffix", "contains", "trim", "ltrim",
    "rtrim", "year", "month", "day", "hour", "minute", "second", "quarter", "dayofweek",
    "isodow", "week", "isnan", "isinf", "isfinite", "struct_extract", "array_extract",
    "list_contains", "row", "struct_pack", "list_value", "greatest", "least",
    "constant_or_null", "hash", "md5", "concat", "concat_ws", "len", "strlen", "reverse",
    "dayname", "monthname", "dayofyear", "list_transform", "normalized_interval",
    "struct_extract_at", "union_extract", "union_tag", "union_value",
}) | {"IS DISTINCT FROM", "IS NOT DISTINCT FROM"}  # fmt: skip

_SAFE_WITH_SMALL = frozenset({"substring", "substr", "left", "right"})
"""Functions that fail only for numbers of more than 32 bits after the first argument."""

_SAFE_BY_SMALL = frozenset({"//", "%"})
"""Functions that fail for integers only if the divisor is 0 or -1."""

_SIGNED = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_UNSIGNED = ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT")
_WIDER = (
    {name: (*_SIGNED[i:], "DOUBLE") for i, name in enumerate(_SIGNED)}
    | {n: (*_UNSIGNED[i:], *_SIGNED[i + 1 :], "DOUBLE") for i, n in enumerate(_UNSIGNED)}
    | {"FLOAT": ("DOUBLE",), "DECIMAL": ("DOUBLE",)}
)
"""The types that each type casts to without loss of range."""

_DIGITS = dict(zip(_SIGNED + _UNSIGNED, (3, 5, 10, 19, 39, 3, 5, 10, 20, 39), strict=True))
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_SMALL = re.compile(r"\d{1,9}")


def can_fail(scalar: Scalar) -> bool:
    """Tell whether some row could make the expression raise."""
    if not isinstance(scalar, Call) or scalar.form is Form.TRY:
        return False
    if not _safe(scalar):
        return True
    return any(can_fail(argument) for argument in scalar.arguments)


def _safe(call: Call) -> bool:
    if call.form is Form.CAST:
        return _widens(call.arguments[0].type, call.type)
    if call.form in {Form.FUNCTION, Form.INFIX, Form.PREFIX}:
        return call.name in _SAFE_FUNCTIONS or _safe_with_constants(call)
    return call.form in _SAFE_FORMS


def _safe_with_constants(call: Call) -> bool:
    others = call.arguments[1:]
    if call.name in _SAFE_BY_SMALL and call.type in _DIGITS:
        return all(_is_small(other) and not _is_zero(other) for other in others)
    return call.name in _SAFE_WITH_SMALL and all(map(_is_small, others))


def _is_small(scalar: Scalar) -> bool:
    """Tell whether this is a whole number of a few digits, which is not negative."""
    if not isinstance(scalar, Literal) or scalar.type not in _DIGITS:
        return False
    return bool(_SMALL.fullmatch(scalar.label))


def _is_zero(scalar: Scalar) -> bool:
    return isinstance(scalar, Literal) and not scalar.label.strip("0")


def _widens(source: str, target: str) -> bool:
    # A date may lie outside the range of a timestamp, so that cast is not here.
    if target in (source, "VARCHAR") or target in _WIDER.get(source.partition("(")[0], ()):
        return True
    wide, narrow = _DECIMAL.fullmatch(target), _DECIMAL.fullmatch(source)
    if not wide or not (narrow or source in _DIGITS):
        return False
    width, scale = (int(narrow[1]), int(narrow[2])) if narrow else (_DIGITS[source], 0)
    return int(wide[2]) >= scale and int(wide[1]) - int(wide[2]) >= width - scale
