"""Which expressions can never fail, whatever row they meet.

A predicate that can fail must not meet rows that another predicate or a join would have
removed: the error would be ours, not the query's. So only what is listed here moves. The list
is short on purpose: leaving a function out costs a little speed, putting a wrong one in costs
a right answer.
"""

from streams.plan.scalar import Call, Form, Scalar

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
    }
)
_SAFE_FUNCTIONS = frozenset({
    "=", "!=", "<", ">", "<=", ">=", "~~", "!~~", "~~*", "!~~*", "||", "lower", "upper",
    "length", "starts_with", "ends_with", "prefix", "suffix", "contains", "trim", "ltrim",
    "rtrim", "year", "month", "day", "hour", "minute", "second", "quarter", "dayofweek",
    "isodow", "week", "isnan", "isinf", "isfinite", "struct_extract", "array_extract",
    "list_contains", "row", "struct_pack", "list_value", "greatest", "least",
    "constant_or_null", "hash", "md5",
}) | {"IS DISTINCT FROM", "IS NOT DISTINCT FROM"}  # fmt: skip

_SIGNED = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_UNSIGNED = ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT")
_WIDER = (
    {name: (*_SIGNED[i:], "DOUBLE") for i, name in enumerate(_SIGNED)}
    | {n: (*_UNSIGNED[i:], *_SIGNED[i + 1 :], "DOUBLE") for i, n in enumerate(_UNSIGNED)}
    | {"FLOAT": ("DOUBLE",), "DECIMAL": ("DOUBLE",)}
)
"""What each type casts to without loss of range."""


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
        return call.name in _SAFE_FUNCTIONS
    return call.form in _SAFE_FORMS


def _widens(source: str, target: str) -> bool:
    # A date may lie outside the range of a timestamp, so that cast is not here.
    return target in (source, "VARCHAR") or target in _WIDER.get(source.partition("(")[0], ())
