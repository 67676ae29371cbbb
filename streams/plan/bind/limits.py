"""Binds LIMIT and OFFSET whose values are computed.

DuckDB passes them to the LIMIT as columns of its input, equal in every row. So the rows are
numbered, and the rows whose number is within the bounds are kept. A change of a bound
recomputes all rows.
"""

from dataclasses import dataclass

from streams.plan.bind.literals import text_literal
from streams.plan.bind.scalars import bind_scalar, row_scope
from streams.plan.duckdb_plan import Record
from streams.plan.ir import Filter, Order, Relational, Window, WindowCall, columns
from streams.plan.passes.prune_columns import pick_columns
from streams.plan.refusal import Refusal
from streams.plan.scalar import Call, Form, Literal, Ref, Scalar

_MOST = 1 << 62
"""The greatest LIMIT or OFFSET that DuckDB takes."""

_CAST = ("DECIMAL", "FLOAT", "DOUBLE", "VARCHAR", "BOOLEAN", "HUGEINT", "UHUGEINT")
_TYPES = (*_CAST, "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT")
_NUMBERS = frozenset({*_TYPES, "UINTEGER", "UBIGINT"})
_COMPUTED = frozenset({"EXPRESSION_VALUE", "EXPRESSION_PERCENTAGE"})


@dataclass(frozen=True, slots=True)
class ComputedLimit:
    """Bounds over the row: how many rows to leave out, and how many or how much to take."""

    offset: Scalar
    limit: Scalar
    is_share: bool = False


def is_computed(record: Record) -> bool:
    """Whether a LIMIT of a bound plan has a bound that is no constant."""
    kinds = {record.record(name).text("type") for name in ("limit_val", "offset_val")}
    return bool(kinds & _COMPUTED)


def computed(record: Record, source: Relational) -> ComputedLimit:
    """The bounds of a LIMIT over these rows.

    Errors: InvalidStatement for values that are no numbers.
    """
    offset, limit = record.record("offset_val"), record.record("limit_val")
    if "PERCENTAGE" in limit.text("type"):
        return ComputedLimit(_count(offset, source, 0), _share(limit, source), is_share=True)
    return ComputedLimit(_count(offset, source, 0), _count(limit, source, _MOST))


def apply_limit(
    source: Relational, orders: tuple[Order, ...], bounds: ComputedLimit
) -> Relational:
    """The rows within the bounds, in this order."""
    width = len(columns(source))
    numbered = WindowCall("row_number", (), "BIGINT", orders, None)
    counted = WindowCall("count_star", (), "BIGINT", (), None)
    calls = (numbered, counted) if bounds.is_share else (numbered,)
    rows = Window(source, (), calls, tuple(call.function for call in calls))
    number = Ref(width, "BIGINT", "row_number")
    most = bounds.limit
    if bounds.is_share:
        every = Call(Form.CAST, "cast", (Ref(width + 1, "BIGINT", "count"),), "DOUBLE")
        share = Call(
            Form.FUNCTION, "floor", (_infix("*", bounds.limit, every, "DOUBLE"),), "DOUBLE"
        )
        most = Call(Form.CAST, "cast", (share,), "BIGINT")
    place = _infix("-", number, bounds.offset, "BIGINT")
    first = _infix(">", number, bounds.offset, "BOOLEAN")
    return pick_columns(
        Filter(rows, (first, _infix("<=", place, most, "BOOLEAN"))), range(width)
    )


def _count(record: Record, source: Relational, otherwise: int) -> Scalar:
    """A number of rows; `otherwise` if there is none, or if it is NULL."""
    if record.text("type") not in _COMPUTED:
        unset = record.text("type") == "UNSET"
        return _number(otherwise if unset else min(record.number("constant_integer"), _MOST))
    value = Call(Form.CAST, "cast", (_value(record, source),), "UBIGINT")
    most = Literal(f"CAST('{_MOST}' AS UBIGINT)", "UBIGINT", str(_MOST))
    beyond = _infix(">", value, most, "BOOLEAN")
    checked = _checked(beyond, value, f"Max value for LIMIT/OFFSET is {_MOST}")
    integer = Call(Form.CAST, "cast", (checked,), "BIGINT")
    return Call(Form.COALESCE, Form.COALESCE.value, (integer, _number(otherwise)), "BIGINT")


def _share(record: Record, source: Relational) -> Scalar:
    """A share of the rows; all of them if it is NULL."""
    if record.text("type") not in _COMPUTED:
        percent = float(str(record.raw("constant_percentage")))
        return _infix("/", _double(repr(percent)), _double("100"), "DOUBLE")
    value = Call(Form.CAST, "cast", (_value(record, source),), "DOUBLE")
    ends = (
        _infix("<", value, _double("0"), "BOOLEAN"),
        _infix(">", value, _double("100"), "BOOLEAN"),
    )
    outside = Call(Form.OR, Form.OR.value, ends, "BOOLEAN")
    checked = _checked(
        outside, value, "Limit percent out of range, should be between 0% and 100%"
    )
    percent_ = Call(Form.COALESCE, Form.COALESCE.value, (checked, _double("100")), "DOUBLE")
    return _infix("/", percent_, _double("100"), "DOUBLE")


def _value(record: Record, source: Relational) -> Scalar:
    value = bind_scalar(record.record("expression"), row_scope(columns(source)))
    if value.type.partition("(")[0] not in _NUMBERS:
        raise Refusal(f"LIMIT by a value of type {value.type}", "cast it to BIGINT").raised()
    return value


def _checked(fails: Scalar, value: Scalar, text: str) -> Scalar:
    words = Literal(text_literal(text), "VARCHAR", text)
    error = Call(Form.FUNCTION, "error", (words,), '"NULL"')
    typed = Call(Form.CAST, "cast", (error,), value.type)
    return Call(Form.CASE, Form.CASE.value, (fails, typed, value), value.type)


def _infix(name: str, left: Scalar, right: Scalar, kind: str) -> Scalar:
    return Call(Form.INFIX, name, (left, right), kind)


def _number(value: int) -> Literal:
    return Literal(f"CAST('{value}' AS BIGINT)", "BIGINT", str(value))


def _double(value: str) -> Literal:
    return Literal(f"CAST('{value}' AS DOUBLE)", "DOUBLE", value)
