"""From DuckDB's bound plan to our logical plan.

The plan comes unoptimised, so its operators are the query's clauses in order of evaluation.
Common table expressions are put in where they are referred to: equal subtrees are computed
once whatever made them equal.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from streams.errors import InvalidStatement
from streams.ids import CollectionId
from streams.plan import bind_join, bind_table
from streams.plan.bind_scalar import bind_scalar, row_scope
from streams.plan.ir import (
    AggregateCall,
    Distinct,
    Filter,
    Get,
    Group,
    Kind,
    Match,
    Product,
    Project,
    Relational,
    Threshold,
    Union,
    Values,
    columns,
)
from streams.plan.passes.prune import pick
from streams.plan.physical import Column, Rule
from streams.plan.record import Record
from streams.plan.refusals import AGGREGATES, SUPPORTED, Refusal
from streams.plan.render import label
from streams.plan.scalar import Call, Form, Literal, Ref, Scalar, conjuncts, refs
from streams.plan.typenames import contains, stored, type_name

_NUMBER = "delim_index"  # and a number that it gives to rows there
_DELIM = "__duckdb_delim"  # how DuckDB names the left side of a correlated join
_VAGUE = ("FLOAT", "DOUBLE", "INTERVAL")  # equal values may differ; their texts then do too
# Where equal keys may look different (intervals, collations) DuckDB groups by a normal form and
# shows the first key it met; the least one does not depend on the order (rule 23).
_REPRESENTATIVE = "__collated_group"
# What DuckDB makes of min and max where bytes do not compare as values; `refuse` has refused
# those that the user wrote.
_BY_ANOTHER = {"arg_min": "min", "arg_max": "max"}
_EXTREMES = frozenset({"min", "max"})
_SUMMED = ("HUGEINT", "DOUBLE", "DECIMAL")  # result types of sum that are order-blind


Relations = Mapping[str, tuple[str, CollectionId]]
"""The catalog by lower-case name: the name as it is spelled there, and the collection."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """What names mean: relations of the catalog, and CTEs by their number."""

    relations: Relations
    ctes: dict[int, Relational] = field(default_factory=dict)


def bind(plan: Record, relations: Relations) -> Relational:
    """The logical plan of a bound query.

    Errors: InvalidStatement for an operator that we do not maintain.
    """
    return _node(plan, _Scope(relations))


def _node(record: Record, scope: _Scope) -> Relational:
    kind = record.text("type").removeprefix("LOGICAL_")
    bound = _NODES.get(kind)
    if bound is None:
        raise Refusal(f"operator {kind}").raised()
    return bound(record, scope)


def _input(record: Record, scope: _Scope) -> Relational:
    (child,) = record.records("children")
    return _node(child, scope)


def _get(record: Record, scope: _Scope) -> Relational:
    function = record.record("qname").texts("path")[-1]
    if function != "seq_scan":
        return bind_table.function(function, record, _source(record, scope))
    name, collection = scope.relations[record.record("function_data").text("table").lower()]
    types = map(type_name, record.records("returned_types"))
    pairs = zip(record.texts("names"), types, strict=True)
    get = Get(name, collection, tuple(Column(*pair) for pair in pairs))
    positions = [index.number("index") for index in record.records("column_indexes")]
    if any(position >= len(get.columns) for position in positions):
        # count(*) reads no column: DuckDB then asks for the row id, and does not look at it.
        positions = [p if p < len(get.columns) else 0 for p in positions]
    picked = [get.columns[position] for position in positions]
    outputs = tuple(Ref(p, c.type, c.name) for p, c in zip(positions, picked, strict=True))
    return Project(get, outputs, tuple(column.name for column in picked))


def _source(record: Record, scope: _Scope) -> Relational | None:
    """What a table function reads, if it is called for each row of something."""
    return _input(record, scope) if record.records("children") else None


def _dummy(_: Record, __: _Scope) -> Relational:
    return bind_table.NOTHING


def _values(record: Record, scope: _Scope) -> Relational:
    empty = row_scope(())
    rows = []
    for row in record.items("expressions"):
        assert isinstance(row, list)
        rows.append(tuple(_storable(bind_scalar(Record(cell), empty)) for cell in row))
    names = tuple(f"col{i}" for i in range(len(rows[0])))
    del scope
    types = zip(names, rows[0], strict=True)
    return Values(tuple(rows), tuple(Column(name, cell.type) for name, cell in types))


def _project(record: Record, scope: _Scope) -> Relational:
    scalar = _scalar_subquery(record, scope)
    if scalar is not None:
        return scalar
    _refuse_foreign(record)
    return _projected(record, _input(record, scope))


def _projected(record: Record, source: Relational) -> Relational:
    inside = row_scope(columns(source))
    bound = [(e.text("alias"), bind_scalar(e, inside)) for e in record.records("expressions")]
    outputs = tuple(_storable(scalar) for _, scalar in bound)
    return Project(source, outputs, tuple(_called(*pair) for pair in bound))


def _scalar_subquery(record: Record, scope: _Scope) -> Relational | None:
    """The row of an uncorrelated scalar subquery, if that is what is projected (rule 41).

    It binds as `CASE WHEN count(*) > 1 THEN error(..) ELSE first(x) END`; we have a join for
    it, whose error comes and goes with the second row.
    """
    (child,) = record.records("children")
    if child.text("type") != "LOGICAL_AGGREGATE_AND_GROUP_BY" or child.items("groups"):
        return None
    calls = child.records("expressions")
    names = [call.record("qname").texts("path")[-1] for call in calls]
    shown = record.records("expressions")
    if set(names) != {"first", "count_star"} or not all(map(_raises, shown)):
        return None
    source = _input(child, scope)
    inside = row_scope(columns(source))
    firsts = [calls[each.record("else_expr").number("index")] for each in shown]
    values = tuple(_storable(bind_scalar(e.records("children")[0], inside)) for e in firsts)
    one = Project(source, values, tuple(map(label, values)))
    single = Match(bind_table.NOTHING, one, Kind.SINGLE, ())
    return pick(single, range(1, 1 + len(values)))


def _raises(record: Record) -> bool:
    """Whether an expression is a CASE with one WHEN, which raises, and a column for ELSE."""
    if record.text("expression_class") != "BOUND_CASE":
        return False
    checks, otherwise = record.records("case_checks"), record.record("else_expr")
    then = checks[0].record("then_expr")
    names = [
        node.record("qname").texts("path")[-1] for node in then.walk() if node.has("qname")
    ]
    return "error" in names and otherwise.text("expression_class") == "BOUND_REF"


def _refuse_foreign(record: Record) -> None:
    """The arguments of a table function name columns of their one input, by its number."""
    (child,) = record.records("children")
    for node in (node for each in record.records("expressions") for node in each.walk()):
        if node.fields.get("expression_class") == "BOUND_COLUMN_REF":
            table = node.record("binding").number("table_index")
            if not child.has("table_index") or child.number("table_index") != table:
                hint = "compute the argument in a subquery of its own"
                raise Refusal("a table function over several relations", hint).raised()


def _called(alias: str, scalar: Scalar) -> str:
    """The column's name; DuckDB calls the keys of a group by their numbers."""
    numbered = alias.isdigit() and isinstance(scalar, Ref)
    return label(scalar) if numbered or not alias else alias


def _storable(scalar: Scalar) -> Scalar:
    """A column of the type of NULL becomes one of INTEGER, as in CREATE TABLE AS."""
    type_ = stored(scalar.type)
    return scalar if type_ == scalar.type else Call(Form.CAST, "cast", (scalar,), type_)


def _filter(record: Record, scope: _Scope) -> Relational:
    return _filtered_rows(record, _input(record, scope))


def _filtered_rows(record: Record, source: Relational) -> Relational:
    inside = row_scope(columns(source))
    parts = [conjuncts(bind_scalar(e, inside)) for e in record.records("expressions")]
    kept = Filter(source, tuple(part for group in parts for part in group))
    places = bind_join.projection(record, "projection_map")
    return kept if places is None else pick(kept, places)


def _group(record: Record, scope: _Scope) -> Relational:
    if len(record.items("grouping_sets")) > 1:
        raise Refusal("grouping by several sets").raised()
    if record.items("grouping_functions"):
        raise Refusal("function grouping").raised()
    source = _group_input(record, scope)
    inside = row_scope(columns(source))
    keys = tuple(_storable(bind_scalar(e, inside)) for e in record.records("groups"))
    if any(e.text("alias") == _NUMBER for e in record.records("groups")):
        return _group_of_numbered(record, source, keys)
    calls = tuple(_aggregate(e, source) for e in record.records("expressions"))
    if not keys and not calls:
        calls = (AggregateCall("count", None, "BIGINT"),)  # a row wants a column
    names = tuple(map(label, keys)) + tuple(map(_name, calls))
    if isinstance(source, Values) and not source.rows and not keys:
        row = tuple(_over_nothing(call) for call in calls)
        types = zip(names, calls, strict=True)
        return Values((row,), tuple(Column(name, call.type) for name, call in types))
    return Group(source, keys, calls, names)


def _group_of_numbered(
    record: Record, source: Relational, keys: tuple[Scalar, ...]
) -> Relational:
    """A group for each row on the left of a correlated join, by its number.

    DuckDB takes the first of that row's other columns, which the number decides: keys too.
    """
    inside, expressions = row_scope(columns(source)), record.records("expressions")
    firsts = {
        i: bind_scalar(e.records("children")[0], inside)
        for i, e in enumerate(expressions)
        if e.record("qname").texts("path")[-1] == "first"
    }
    calls = tuple(_aggregate(e, source) for i, e in enumerate(expressions) if i not in firsts)
    every = (*keys, *firsts.values())
    names = tuple(map(label, every)) + tuple(map(_name, calls))
    width, places = len(every), list(range(len(keys)))
    for i in range(len(expressions)):
        before = sum(first < i for first in firsts)
        places.append(len(keys) + before if i in firsts else width + i - before)
    return pick(Group(source, every, calls, names), places)


def _over_nothing(call: AggregateCall) -> Scalar:
    """The aggregate's value over no rows."""
    if call.function == "count":
        return Literal(f"CAST('0' AS {call.type})", call.type, "0")
    return Literal(f"CAST(NULL AS {call.type})", call.type, "NULL")


def _group_input(record: Record, scope: _Scope) -> Relational:
    """What is grouped. An uncorrelated EXISTS counts the rows of a LIMIT 1: of one distinct."""
    (child,) = record.records("children")
    if child.text("type") != "LOGICAL_LIMIT" or record.items("groups"):
        return _node(child, scope)
    limit, offset = child.record("limit_val"), child.record("offset_val")
    first = limit.text("type") == "CONSTANT_VALUE" and limit.number("constant_integer") == 1
    names = [e.record("qname").texts("path")[-1] for e in record.records("expressions")]
    if not first or offset.text("type") != "UNSET" or names != ["count_star"]:
        return _node(child, scope)
    return Distinct(pick(_input(child, scope), ()))


def _name(call: AggregateCall) -> str:
    return f"{call.function}({'*' if call.argument is None else label(call.argument)})"


def _aggregate(record: Record, source: Relational) -> AggregateCall:
    name = record.record("qname").texts("path")[-1]
    arguments = record.records("children")
    if name == "first" and record.text("alias") == _REPRESENTATIVE:
        name = "min"
    if name in _BY_ANOTHER:
        raise _by_another(name, type_name(arguments[0].record("return_type"))).raised()
    if name not in AGGREGATES or len(arguments) > 1:
        shown = name if name not in AGGREGATES else f"{name} with {len(arguments)} arguments"
        raise Refusal(f"aggregate {shown}", SUPPORTED).raised()
    if record.text("aggregate_type") == "DISTINCT" and name not in {"min", "max"}:
        raise Refusal(f"{name}(DISTINCT ...)").raised()
    inside = row_scope(columns(source))
    argument = bind_scalar(arguments[0], inside) if arguments else None
    if name in _EXTREMES and record.text("alias") != _REPRESENTATIVE:
        _refuse_enum(name, argument)
    if record.has("filter"):
        argument = _filtered(argument, bind_scalar(record.record("filter"), inside))
    type_ = _result_type(name, argument, record)
    return AggregateCall("count" if name == "count_star" else name, argument, type_)


def _by_another(name: str, type_: str) -> Refusal:
    """A min or max whose order is that of something computed: what the user wrote of it."""
    if type_ == "VARCHAR":
        return Refusal(f"{_BY_ANOTHER[name]} under a collation", "leave COLLATE out")
    return Refusal(f"{_BY_ANOTHER[name]} of {type_}", "cast it to VARCHAR")


def _refuse_enum(name: str, argument: Scalar | None) -> None:
    """An ENUM travels as its text, whose order is another one than that of its values."""
    if argument and contains(argument.type, "ENUM"):
        hint = "cast it to VARCHAR; the order is then the alphabet's"
        raise Refusal(f"{name} of {argument.type}", hint).raised()


def _filtered(argument: Scalar | None, condition: Scalar) -> Scalar:
    """FILTER comes before the argument (rule 38), and no aggregate of ours counts a NULL."""
    value = argument or Literal("true", "BOOLEAN", "true")
    null = Literal(f"CAST(NULL AS {value.type})", value.type, "NULL")
    return Call(Form.CASE, "case", (condition, value, null), value.type)


def _result_type(name: str, argument: Scalar | None, record: Record) -> str:
    type_ = stored(type_name(record.record("return_type")))
    if name in {"sum", "avg"} and not type_.startswith(_SUMMED):
        assert argument is not None
        raise Refusal(f"{name} of {argument.type}").raised()
    return type_


def _distinct(record: Record, scope: _Scope) -> Relational:
    source = _input(record, scope)
    shown = row_scope(columns(source))
    targets = tuple(bind_scalar(e, shown) for e in record.records("distinct_targets"))
    own = [refs(target) == {place} for place, target in enumerate(targets)]
    if isinstance(source, Threshold) and source.rule in {Rule.INTERSECT, Rule.EXCEPT}:
        own = [isinstance(target, Ref) for target in targets]  # has each row once already
    whole = len(targets) == len(columns(source)) and all(own)
    if record.text("distinct_type") != "DISTINCT" or not whole:
        raise Refusal("DISTINCT ON").raised()
    if all(isinstance(target, Ref) for target in targets):
        return Distinct(source)
    return _distinct_by(source, targets)


def _distinct_by(source: Relational, targets: tuple[Scalar, ...]) -> Relational:
    """One row for each combination of targets; a target is the normal form of its column.

    Of the columns' values that have one normal form the least is shown (rule 23).
    """
    own = columns(source)
    names = tuple(column.name for column in own)
    folded = [i for i, target in enumerate(targets) if not isinstance(target, Ref)]
    calls = tuple(
        AggregateCall("min", Ref(i, own[i].type, own[i].name), own[i].type) for i in folded
    )
    group = Group(source, targets, calls, names + tuple(names[i] for i in folded))
    places = [len(own) + folded.index(i) if i in folded else i for i, _ in enumerate(own)]
    outputs = tuple(Ref(p, c.type, c.name) for p, c in zip(places, own, strict=True))
    return Project(group, outputs, names)


def _set_operation(record: Record, scope: _Scope) -> Relational:
    parts = tuple(_node(child, scope) for child in record.records("children"))
    kind = record.text("type").removeprefix("LOGICAL_")
    every = record.flag("setop_all")
    if kind == "INTERSECT":
        return Threshold(parts, Rule.INTERSECT_ALL if every else Rule.INTERSECT)
    return Threshold(parts, Rule.EXCEPT_ALL if every else Rule.EXCEPT)


def _union(record: Record, scope: _Scope) -> Relational:
    parts = tuple(_node(child, scope) for child in record.records("children"))
    return Union(parts) if record.flag("setop_all") else Distinct(Union(parts))


def _cross(record: Record, scope: _Scope) -> Relational:
    return Product(tuple(_node(child, scope) for child in record.records("children")), ())


def _comparison_join(record: Record, scope: _Scope) -> Relational:
    left, right = (_node(child, scope) for child in record.records("children"))
    return bind_join.comparison(record, left, right)


def _any_join(record: Record, scope: _Scope) -> Relational:
    left, right = (_node(child, scope) for child in record.records("children"))
    return bind_join.arbitrary(record, left, right)


def _unnest(record: Record, scope: _Scope) -> Relational:
    return bind_table.unnest(record, _input(record, scope))


def _nothing(record: Record, _: _Scope) -> Relational:
    """No rows, of these types."""
    types = [stored(type_name(type_)) for type_ in record.records("return_types")]
    return Values((), tuple(Column(f"col{i}", type_) for i, type_ in enumerate(types)))


def _cte(record: Record, scope: _Scope) -> Relational:
    definition, body = record.records("children")
    number = record.number("table_index")
    source, kind = None, definition.text("type")
    if record.text("ctename").startswith(_DELIM) and kind == "LOGICAL_PROJECTION":
        source = _numbered(definition.records("children")[0], scope)
    if source is None:
        scope.ctes[number] = _node(definition, scope)
    else:
        scope.ctes[number] = _projected(definition, source)
    return _node(body, scope)


def _numbered(record: Record, scope: _Scope) -> Relational | None:
    """The rows on the left of a correlated join, if DuckDB numbers them, and their numbers.

    It does so where it cannot compare them, perhaps before it filters them.
    """
    if record.text("type") == "LOGICAL_FILTER":
        source = _numbered(record.records("children")[0], scope)
        return None if source is None else _filtered_rows(record, source)
    kinds = [each.text("type") for each in record.records("expressions")]
    if record.text("type") != "LOGICAL_WINDOW" or kinds != ["WINDOW_ROW_NUMBER"]:
        return None
    return _identified(_input(record, scope))


def _identified(source: Relational) -> Relational:
    """The rows with themselves for a number: equal ones have equal partners."""
    own = columns(source)
    refs_ = tuple(Ref(i, c.type, c.name) for i, c in enumerate(own))
    parts = tuple(
        Call(Form.CAST, "cast", (ref,), "VARCHAR") if ref.type in _VAGUE else ref
        for ref in refs_
    )
    names = tuple(f"c{i}" for i in range(len(own)))
    members = ", ".join(f"{name} {part.type}" for name, part in zip(names, parts, strict=True))
    identity = Call(Form.FUNCTION, "struct_pack", parts, f"STRUCT({members})", names)
    called = tuple(column.name for column in own)
    return Project(source, (*refs_, identity), (*called, "row"))


def _cte_reference(record: Record, scope: _Scope) -> Relational:
    number = record.number("cte_index")
    if number not in scope.ctes:
        raise InvalidStatement("WITH RECURSIVE is not supported in a materialized view")
    return scope.ctes[number]


_NODES: dict[str, Callable[[Record, _Scope], Relational]] = {
    "GET": _get,
    "DUMMY_SCAN": _dummy,
    "EXPRESSION_GET": _values,
    "PROJECTION": _project,
    "FILTER": _filter,
    "AGGREGATE_AND_GROUP_BY": _group,
    "DISTINCT": _distinct,
    "UNION": _union,
    "INTERSECT": _set_operation,
    "EXCEPT": _set_operation,
    "UNNEST": _unnest,
    "EMPTY_RESULT": _nothing,
    "CROSS_PRODUCT": _cross,
    "COMPARISON_JOIN": _comparison_join,
    "ANY_JOIN": _any_join,
    "MATERIALIZED_CTE": _cte,
    "CTE_REF": _cte_reference,
}
