"""Replaces UNION columns by their carrier structs (`streams.trace.kernel.unions`).

After this pass, rows, keys, orders and aggregates use the structs. An expression that reads
such a column converts it to the union, and its result back to the struct if that is a union. So
DuckDB has unions only inside of expressions. A predicate `=` between two unions becomes one
between structs, which can be a join key.
"""

from collections.abc import Sequence
from dataclasses import replace

from streams.plan.ir import (
    AggregateCall,
    Filter,
    Get,
    Group,
    JoinKind,
    Match,
    Product,
    Project,
    Relational,
    TopK,
    Unnest,
    Values,
    Variable,
    Window,
    WindowCall,
    changed_orders,
    parts,
    with_parts,
)
from streams.plan.physical import Column
from streams.plan.refusal import Refusal
from streams.plan.scalar import Call, Form, Ref, Scalar, carrier, equality, rewrite, walk
from streams.trace.kernel.types import parts as parts_of
from streams.trace.kernel.unions import carrier_type, has_union

_KNOWN = frozenset({
    "any_value", "approx_count_distinct", "arbitrary", "arg_max", "arg_max_null",
    "arg_max_nulls_last", "arg_min", "arg_min_null", "arg_min_nulls_last", "argmax", "argmin",
    "array_agg", "count", "entropy", "first", "first_value", "histogram", "histogram_exact",
    "lag", "last", "last_value", "lead", "list", "max", "max_by", "median", "min", "min_by",
    "mode", "nth_value", "quantile", "quantile_disc",
})  # fmt: skip
"""Functions that ask of values no more than their order and what is equal."""

_BROKEN = frozenset({
    "array_select", "array_where", "array_zip", "is_histogram_other_bin", "list_select",
    "list_where", "list_zip",
})  # fmt: skip
"""Functions whose NULL is another member's value where DuckDB reads it as a union, and those
that say of a NULL what they say of the rows beside it."""

_WITH_BINS = frozenset({"histogram", "histogram_exact"})
"""Functions that have no key for unions in no bin."""


def lower_unions(  # noqa: C901, PLR0911, PLR0912 - one case a node
    node: Relational,
) -> Relational:
    """The plan with a struct for every union in a column; itself if there is none."""
    node = with_parts(node, tuple(map(lower_unions, parts(node))))
    match node:
        case Get() | Variable():
            return replace(node, columns=columns(node.columns))
        case Values():
            rows = tuple(map(_all, node.rows))
            return replace(node, rows=rows, columns=columns(node.columns))
        case Project():
            return replace(node, outputs=_all(node.outputs))
        case Match(kind=JoinKind.MARK):
            return replace(node, predicates=tuple(map(_judged, node.predicates)))
        case Filter() | Product() | Match():
            return replace(node, predicates=tuple(map(_passed, node.predicates)))
        case Group():
            return replace(node, keys=_all(node.keys), calls=tuple(map(_aggregate, node.calls)))
        case Window():
            return replace(node, keys=_all(node.keys), calls=tuple(map(_window, node.calls)))
        case TopK():
            orders = changed_orders(node.orders, _carrier)
            return replace(node, keys=_all(node.keys), orders=orders)
        case Unnest():
            return replace(node, elements=columns(node.elements))
        case _:
            return node


def columns(of: tuple[Column, ...]) -> tuple[Column, ...]:
    """The columns that carry the values of these."""
    return tuple(replace(column, type=carrier_type(column.type)) for column in of)


def _all(scalars: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    return tuple(map(_carrier, scalars))


def _carrier(scalar: Scalar) -> Scalar:
    """The expression over carried columns, and its value carried."""
    value = _value(scalar)
    return carrier(value) if has_union(value.type) else value


def _value(scalar: Scalar) -> Scalar:
    """The expression over carried columns. Errors: InvalidStatement, as `_refuse`."""
    for part in walk(scalar):
        if isinstance(part, Call) and part.form is Form.FUNCTION and part.name in _BROKEN:
            _refuse(part.name, [*part.arguments, part])
    return rewrite(scalar, _union)


def _union(ref: Ref) -> Scalar:
    if not has_union(ref.type):
        return ref
    own = replace(ref, type=carrier_type(ref.type))
    return Call(Form.AS_UNION, Form.AS_UNION.value, (own,), ref.type)


def _passed(predicate: Scalar) -> Scalar:
    """A predicate that says whether a row stays: NULL is as good as false."""
    if isinstance(predicate, Call) and predicate.form in {Form.AND, Form.OR}:
        return replace(predicate, arguments=tuple(map(_passed, predicate.arguments)))
    return _judged(predicate)


def _judged(predicate: Scalar) -> Scalar:
    """A predicate; if it equates two unions, then by structs.

    DuckDB's joins say of a union whose member is NULL that it equals none, where `=` says NULL:
    whether a MARK is NULL depends on NULLs alone.
    """
    if isinstance(predicate, Call) and predicate.form is Form.NEAREST:  # a matter of order
        return replace(predicate, arguments=_all(predicate.arguments))
    equated = equality(predicate)
    if equated is None or not has_union(equated.one.type):
        return _value(predicate)
    assert isinstance(predicate, Call)
    left_value, right = _value(equated.one), _value(equated.other)
    structure = parts_of(left_value.type)
    is_key = structure is not None and structure.kind == "UNION" and not equated.null_equal
    left = Call(Form.AS_KEY, Form.AS_KEY.value, (left_value,), carrier_type(left_value.type))
    return replace(
        predicate, arguments=(left if is_key else carrier(left_value), carrier(right))
    )


def _aggregate(call: AggregateCall) -> AggregateCall:
    """Errors: InvalidStatement, as `_refuse`."""
    arguments = [scalar for scalar in (call.argument, *call.more) if scalar is not None]
    if call.function in _WITH_BINS and len(arguments) > 1:
        _refuse(f"{call.function} with bins", arguments)
    _refuse(call.function, arguments)
    return replace(call.over(_carrier), type=carrier_type(call.type))


def _window(call: WindowCall) -> WindowCall:
    """Errors: InvalidStatement, as `_refuse`."""
    _refuse(call.function, call.arguments)
    return replace(call.over(_carrier), type=carrier_type(call.type))


def _refuse(function: str, arguments: Sequence[Scalar]) -> None:
    """Errors: InvalidStatement for a function whose value for structs may be another."""
    of = next((argument.type for argument in arguments if has_union(argument.type)), "")
    if of and function not in _KNOWN:
        raise Refusal(f"{function} of {of}", "take the members that you need").raised()
