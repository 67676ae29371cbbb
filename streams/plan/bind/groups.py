"""GROUP BY and DISTINCT of a bound plan: keys, grouping sets, and calls of aggregates."""

from collections.abc import Collection
from dataclasses import replace
from decimal import Decimal
from typing import TypeGuard

from streams.plan.analyses.aggregates import (
    EXTREMES,
    REFUSED,
    is_accumulated,
    is_enum,
    is_interpolated,
    is_of_pairs,
    is_quantile,
    one_name,
)
from streams.plan.analyses.equality import least
from streams.plan.analyses.fallible import can_fail
from streams.plan.bind.scalars import Scope, bind_scalar, row_scope
from streams.plan.duckdb_plan import Record
from streams.plan.ir import (
    AggregateCall,
    Distinct,
    Group,
    Order,
    Project,
    Relational,
    Threshold,
    TopK,
    Union,
    Values,
    columns,
    shared,
)
from streams.plan.passes.prune_columns import pick_columns
from streams.plan.physical import Rule
from streams.plan.refusal import Refusal
from streams.plan.scalar import Call, Form, Literal, Ref, Scalar, refs, rewrite
from streams.plan.to_sql import label
from streams.plan.type_names import contains, stored_type, type_name

# Where equal keys may look different (intervals, collations) DuckDB groups by a normal form and
# shows the first key it met; the least one does not depend on the order (rule 23).
_REPRESENTATIVE = "__collated_group"
_NUMBER = "delim_index"  # DuckDB's number of a row on the left of a correlated join
_TRUE = Literal("true", "BOOLEAN", "true")
_LEAST = frozenset({"first", "any_value"})
_SEPARATED = frozenset({"string_agg", "group_concat", "listagg"})
_RANKING = frozenset({
    "arg_max", "arg_max_nulls_last", "arg_min", "arg_min_nulls_last", "argmax", "argmin",
    "max_by", "min_by",
})  # fmt: skip
_MOST_SCALE = 9
"""Digits of a quantile's share up to which it times a group's size is exact in 64 bits."""
_EITHER = frozenset({"bool_and", "bool_or"}) | EXTREMES  # a value counts once or not at all


def storable(scalar: Scalar) -> Scalar:
    """A column of the type of NULL becomes one of INTEGER, as in CREATE TABLE AS."""
    type_ = stored_type(scalar.type)
    return scalar if type_ == scalar.type else Call(Form.CAST, "cast", (scalar,), type_)


def bind_orders(records: tuple[Record, ...], source: Relational) -> tuple[Order, ...]:
    """The terms of an ORDER BY over the rows of `source`."""
    inside = row_scope(columns(source))
    return tuple(
        Order(
            bind_scalar(record.record("expression"), inside),
            record.text("type") == "DESCENDING",
            record.text("null_order") == "NULLS FIRST",
        )
        for record in records
    )


def bind_group(record: Record, source: Relational) -> Relational:
    """GROUP BY over the rows of `source`; of several grouping sets, the union."""
    inside = row_scope(columns(source))
    groups, expressions = record.records("groups"), record.records("expressions")
    keys = tuple(storable(bind_scalar(e, inside)) for e in groups)
    numbered = any(_is_number(*pair) for pair in zip(groups, keys, strict=True))
    firsts = _firsts(record, inside) if numbered else {}
    calls = tuple(_aggregate(e, source) for i, e in enumerate(expressions) if i not in firsts)
    node = _of_sets(record, source, (*keys, *firsts.values()), calls)
    return pick_columns(node, _as_written(record, firsts)) if numbered else node


def _of_sets(
    record: Record,
    source: Relational,
    keys: tuple[Scalar, ...],
    calls: tuple[AggregateCall, ...],
) -> Relational:
    """The groups of all grouping sets; keys beyond those that are written are in each set."""
    written = len(record.records("groups"))
    whole = tuple(range(len(keys)))
    written_sets = [tuple(sorted(_places(item))) for item in record.items("grouping_sets")]
    sets = [set_ + whole[written:] for set_ in written_sets] or [whole]
    functions = [_places(item) for item in record.items("grouping_functions")]
    if sets == [whole] and not functions:
        return _known(_grouped(source, keys, calls))
    source = shared(source) if len(sets) > 1 else source
    parts = tuple(_of_set(_grouped(source, keys, calls), s, functions) for s in sets)
    return parts[0] if len(parts) == 1 else Union(parts)


def _is_number(record: Record, key: Scalar) -> bool:
    """Whether DuckDB groups by the number of a row, for which `bind` has the row itself."""
    if record.text("alias") != _NUMBER or record.text("expression_class") != "BOUND_REF":
        return False
    return type_name(record.record("return_type")) == "BIGINT" != key.type


def _firsts(record: Record, inside: Scope) -> dict[int, Scalar]:
    """Columns of the row on the left of a correlated join, by the place of the call.

    DuckDB takes the first of each, behind the calls that the user wrote, its number foremost.
    The number is a key and decides them, so they are keys too.
    """
    scalars: dict[int, Scalar] = {}
    for i, call in enumerate(record.records("expressions")):
        argument = call.records("children")[0] if call.records("children") else None
        if argument and argument.text("alias") == _NUMBER:
            scalars.clear()
        if argument and (scalars or argument.text("alias") == _NUMBER):
            scalars[i] = bind_scalar(argument, inside)
    return scalars


def _as_written(record: Record, firsts: Collection[int]) -> list[int]:
    """The positions of DuckDB's columns: keys, calls, and results of GROUPING."""
    keys, called = len(record.records("groups")), len(record.records("expressions"))
    width = keys + len(firsts)
    places = list(range(keys))
    for i in range(called):
        before = sum(first < i for first in firsts)
        places.append(keys + before if i in firsts else width + i - before)
    functions = len(record.items("grouping_functions"))
    return places + list(range(keys + called, keys + called + functions))


def _places(item: object) -> tuple[int, ...]:
    assert isinstance(item, list)
    return tuple(item) if all(isinstance(place, int) for place in item) else ()


def _grouped(
    source: Relational, keys: tuple[Scalar, ...], calls: tuple[AggregateCall, ...]
) -> Group:
    if not keys and not calls:
        calls = (AggregateCall("count", None, "BIGINT"),)  # a row wants a column
    return Group(source, keys, calls, tuple(map(label, keys)) + tuple(map(_name, calls)))


def _known(group: Group) -> Relational:
    """The group; of no rows, as in correlated counts, its one row if accumulators give it."""
    calls, source = group.calls, group.input
    is_empty = isinstance(source, Values) and not source.rows
    if not is_empty or group.keys or any(call.general for call in calls):
        return group
    row = tuple(
        Literal(f"CAST('0' AS {call.type})", call.type, "0")
        if call.function == "count"
        else Literal(f"CAST(NULL AS {call.type})", call.type, "NULL")
        for call in calls
    )
    return Values((row,), columns(group))


def _of_set(
    whole: Group, chosen: tuple[int, ...], functions: list[tuple[int, ...]]
) -> Relational:
    """The groups of one grouping set, with NULL for the other keys, and what GROUPING says."""
    width = len(whole.keys)
    part = _grouped(whole.input, tuple(whole.keys[i] for i in chosen), whole.calls)
    own = columns(part)
    outputs: list[Scalar] = []
    for place, key in enumerate(whole.keys):
        if place in chosen:
            index = chosen.index(place)
            outputs.append(Ref(index, own[index].type, own[index].name))
        else:
            outputs.append(Literal(f"CAST(NULL AS {key.type})", key.type, "NULL"))
    start = len(chosen)  # one row for all has a column that the query does not select
    called = own[start : start + len(whole.calls)]
    for place, column in enumerate(called, start):
        outputs.append(Ref(place, column.type, column.name))
    names = list(whole.names[:width]) + [column.name for column in called]
    for function in functions:
        bits = sum(1 << i for i, place in enumerate(reversed(function)) if place not in chosen)
        outputs.append(Literal(f"CAST({bits} AS BIGINT)", "BIGINT", str(bits)))
        names.append("grouping")
    return Project(part, tuple(outputs), tuple(names))


def _name(call: AggregateCall) -> str:
    arguments = ", ".join(label(a) for a in (call.argument, *call.more) if a is not None)
    shown = f"DISTINCT {arguments}" if call.distinct else arguments
    return f"{call.function}({shown or '*'})"


def _aggregate(record: Record, source: Relational) -> AggregateCall:
    inside = row_scope(columns(source))
    written = record.record("qname").texts("path")[-1]
    function = refused_or_named(written)
    arguments = bind_arguments(record, source)
    if written == "first" and record.text("alias") == _REPRESENTATIVE:
        function = "min"
    condition = bind_scalar(record.record("filter"), inside) if record.has("filter") else None
    distinct = record.text("aggregate_type") == "DISTINCT"
    type_ = stored_type(type_name(record.record("return_type")))
    ordered = record.has("order_bys")
    orders = record.record("order_bys").records("orders") if ordered else ()
    call = AggregateCall(
        function,
        arguments[0] if arguments else None,
        type_,
        distinct,
        arguments[1:],
        bind_orders(orders, source),
        condition,
    )
    _refuse_texts(call)
    return _kind(replace(call, share=_share(call, record)), written)


def _refuse_texts(call: AggregateCall) -> None:
    """Errors: InvalidStatement for distinct texts in the order of what they cannot be read as.

    DuckDB orders by the value that it casts to the text; the text of lists of JSON is no list,
    and that of a union does not say of which member it is.
    """
    texts = [scalar for scalar in (call.argument, *call.more) if _is_text(scalar)]
    what = next(filter(None, map(_unreadable, texts)), "")
    if call.distinct and call.orders and what:
        hint = "order by the text: x::VARCHAR in a subquery"
        raise Refusal(f"{call.function} of DISTINCT {what}", hint).raised()


def _is_text(scalar: Scalar | None) -> TypeGuard[Call]:
    if not isinstance(scalar, Call) or scalar.form is not Form.CAST:
        return False
    return scalar.type == "VARCHAR"


def _unreadable(text: Call) -> str:
    """What cannot be read again of a text; nothing where the value can be."""
    source = text.arguments[0].type
    if contains(source, "UNION"):
        return "UNION"
    return "JSON in lists or structs" if source != "JSON" and contains(source, "JSON") else ""


def _share(call: AggregateCall, record: Record) -> str:
    """The share of a quantile that is found by search; nothing for any other call.

    DuckDB says it apart from the arguments, of which it makes a DOUBLE.
    """
    several = call.type.endswith("]")
    if call.argument is None or call.distinct or call.orders or several:
        return ""
    if not is_quantile(call.function, call.argument.type):
        return ""
    said = record.record("function_data")
    shares = said.records("quantiles")
    if said.flag("desc") or len(shares) != 1 or shares[0].flag("is_null"):
        return ""
    kind, value = type_name(shares[0].record("type")), shares[0].raw("value")
    if kind == "DOUBLE" and value in {0, 1}:
        return "1" if value else "0"
    if not kind.startswith("DECIMAL"):
        return ""
    scale = int(kind.rstrip(")").rsplit(",", 1)[1])
    share = Decimal(shares[0].number("value")).scaleb(-scale)
    return f"{share:f}" if scale <= _MOST_SCALE else ""


def bind_arguments(record: Record, source: Relational) -> tuple[Scalar, ...]:
    """The arguments of a call; a separator that DuckDB has put aside comes last.

    Errors: InvalidStatement for a call that DuckDB completes from a table's statistics, and
    for max(x, n) and its like where n is not a constant.
    """
    inside = row_scope(columns(source))
    scalars = tuple(bind_scalar(e, inside) for e in record.records("children"))
    name = record.record("qname").texts("path")[-1] if record.has("qname") else ""
    if name == "bitstring_agg" and len(scalars) == 1:
        hint = "write bitstring_agg(x, least, greatest)"
        raise Refusal("bitstring_agg without bounds", hint).raised()
    _refuse_varying_count(name, scalars)
    if name in _SEPARATED:
        separator = record.record("function_data").text("separator")
        text = "'" + separator.replace("'", "''") + "'"
        return (scalars[0], Literal(text, "VARCHAR", text))
    return scalars


def _refuse_varying_count(function: str, scalars: tuple[Scalar, ...]) -> None:
    """Errors: InvalidStatement for the n best where n is read from rows.

    DuckDB takes n of the row that it meets first, which is another one in each plan.
    """
    before_n = 1 if function in EXTREMES else 2 if function in _RANKING else len(scalars)
    if any(map(refs, scalars[before_n:])):
        arguments = ", ".join("xy"[:before_n])
        hint = f"write a constant n: {function}({arguments}, 3)"
        raise Refusal(f"{function}({arguments}, n) where n is not a constant", hint).raised()


def refused_or_named(function: str) -> str:
    """The one name of an aggregate function.

    Errors: InvalidStatement for a function whose answer no order of rows makes one.
    """
    if function in REFUSED:
        raise Refusal(f"aggregate {function}", REFUSED[function]).raised()
    return one_name(function)


def _kind(call: AggregateCall, written: str) -> AggregateCall:
    """The call as it is maintained: by accumulators where it can be."""
    function, first = call.function, call.argument
    if function in _LEAST and not call.orders and len(call.scalars) == 1:
        function = "min"
    if function in EXTREMES and first is not None:
        _refuse_enum(function, first)
    types = tuple(s.type for s in (first, *call.more) if s is not None)
    pairs = is_of_pairs(function)
    if call.share and first is not None:
        value = first if call.condition is None else _filtered(first, call.condition)
        kind = "quantile_cont" if is_interpolated(function, first.type) else "quantile_disc"
        return AggregateCall(kind, value, call.type, share=call.share)
    if not is_accumulated(function, types, call.type) or (pairs and call.distinct):
        return _general(call, written)
    if pairs:
        assert first is not None
        return _of_pairs(call, first, call.more[0])
    argument = first
    if call.condition is not None:
        argument = _filtered(first or _TRUE, call.condition)
    distinct = call.distinct and function not in _EITHER
    return AggregateCall(function, argument, call.type, distinct)


def _refuse_enum(function: str, argument: Scalar) -> None:
    """Refuse an ENUM inside of a value: it is stored as text, which has another order."""
    if contains(argument.type, "ENUM") and not is_enum(argument.type):
        hint = "cast it to VARCHAR; the order is then the alphabet's"
        raise Refusal(f"{function} of {argument.type}", hint).raised()


def _of_pairs(call: AggregateCall, left: Scalar, right: Scalar) -> AggregateCall:
    """A function of the pairs of which neither is NULL: both are NULL in all others."""
    both = [_not_null(left), _not_null(right)]
    met = _and(*([call.condition] if call.condition is not None else []), *both)
    if call.function == "regr_count":
        return AggregateCall("count", _filtered(_TRUE, met, left, right), call.type)
    return AggregateCall(
        call.function, _filtered(left, met), call.type, more=(_filtered(right, met),)
    )


def _not_null(scalar: Scalar) -> Scalar:
    return Call(Form.IS_NOT_NULL, "is not null", (scalar,), "BOOLEAN")


def _and(*parts: Scalar) -> Scalar:
    return parts[0] if len(parts) == 1 else Call(Form.AND, "and", parts, "BOOLEAN")


def _general(call: AggregateCall, written: str) -> AggregateCall:
    """A call that DuckDB computes."""
    return replace(call, function=written, share="", general=True)


def _filtered(value: Scalar, condition: Scalar, *others: Scalar) -> Scalar:
    """The value where the condition holds: no accumulator counts a NULL.

    As in DuckDB the arguments, which are it and perhaps `others`, are computed of each row, and
    may fail of those that FILTER drops (rule 38).
    """
    null = Literal(f"CAST(NULL AS {value.type})", value.type, "NULL")
    failing = [scalar for scalar in (value, *others) if can_fail(scalar)]
    computed = [part for scalar in failing for part in (_not_null(scalar), null)]
    return Call(Form.CASE, "case", (condition, value, *computed, null), value.type)


def bind_distinct(record: Record, source: Relational) -> Relational:
    """DISTINCT, or DISTINCT ON, over the rows of `source`."""
    shown = row_scope(columns(source))
    targets = tuple(bind_scalar(e, shown) for e in record.records("distinct_targets"))
    if record.text("distinct_type") != "DISTINCT":
        ordered = record.has("order_by")
        orders = record.record("order_by").records("orders") if ordered else ()
        return TopK(source, targets, bind_orders(orders, source), 0, 1)
    if isinstance(source, Threshold) and source.rule in {Rule.INTERSECT, Rule.EXCEPT}:
        # It has each row once already, so DuckDB's own references mean nothing to it.
        targets = tuple(map(_of_place, targets, shown.values))
    own = [refs(target) == {place} for place, target in enumerate(targets)]
    if len(targets) != len(columns(source)) or not all(own):
        # DISTINCT has the columns that are shown, and ORDER BY others: DuckDB takes any row.
        _refuse_members(source)
        return TopK(source, targets, (), 0, 1)
    if all(isinstance(target, Ref) for target in targets):
        return Distinct(source)
    return _distinct_by(source, targets)


def _refuse_members(source: Relational) -> None:
    """Errors: InvalidStatement for members of structs: DuckDB compares the first alone."""
    for output in source.outputs if isinstance(source, Project) else ():
        if isinstance(output, Call) and output.name.startswith("struct_extract"):
            hint = "unnest in a subquery, and take the distinct rows outside of it"
            raise Refusal("DISTINCT of some members of a struct", hint).raised()


def _of_place(target: Scalar, column: Scalar) -> Scalar:
    """The target over the column at its own place."""
    return rewrite(target, lambda _: column)


def _distinct_by(source: Relational, targets: tuple[Scalar, ...]) -> Relational:
    """One row for each combination of targets; a target is the normal form of its column.

    Of the columns' values that have one normal form the least is shown (rule 23).
    """
    own = columns(source)
    names = tuple(column.name for column in own)
    folded = [i for i, target in enumerate(targets) if not isinstance(target, Ref)]
    calls = tuple(least(Ref(i, own[i].type, own[i].name)) for i in folded)
    group = Group(source, targets, calls, names + tuple(names[i] for i in folded))
    places = [len(own) + folded.index(i) if i in folded else i for i, _ in enumerate(own)]
    outputs = tuple(Ref(p, c.type, c.name) for p, c in zip(places, own, strict=True))
    return Project(group, outputs, names)
