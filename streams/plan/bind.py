"""From DuckDB's bound plan to our logical plan.

The plan comes unoptimised, so its operators are the query's clauses in order of evaluation.
Common table expressions are put in where they are referred to: equal subtrees are computed
once whatever made them equal.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from streams.errors import InvalidStatement
from streams.ids import CollectionId
from streams.plan.bind_group import bind_distinct, bind_group, storable
from streams.plan.bind_scalar import bind_scalar, row_scope
from streams.plan.bind_window import bind_limit, bind_window
from streams.plan.ir import (
    Distinct,
    Filter,
    Get,
    Product,
    Project,
    Relational,
    Union,
    Values,
    columns,
)
from streams.plan.physical import Column
from streams.plan.record import Record
from streams.plan.refusals import Refusal
from streams.plan.render import label
from streams.plan.scalar import Call, Form, Literal, Ref, Scalar, conjuncts, shift
from streams.plan.typenames import type_name

_INNER = "INNER"


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
        raise Refusal(f"table function {function}").raised()
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


def _dummy(_: Record, __: _Scope) -> Relational:
    """One row without columns; it has one that nobody reads, because SQL wants one."""
    return Values(((Literal("true", "BOOLEAN", "true"),),), (Column("row", "BOOLEAN"),))


def _values(record: Record, scope: _Scope) -> Relational:
    empty = row_scope(())
    rows = []
    for row in record.items("expressions"):
        assert isinstance(row, list)
        rows.append(tuple(storable(bind_scalar(Record(cell), empty)) for cell in row))
    names = tuple(f"col{i}" for i in range(len(rows[0])))
    del scope
    types = zip(names, rows[0], strict=True)
    return Values(tuple(rows), tuple(Column(name, cell.type) for name, cell in types))


def _project(record: Record, scope: _Scope) -> Relational:
    source = _input(record, scope)
    inside = row_scope(columns(source))
    bound = [(e.text("alias"), bind_scalar(e, inside)) for e in record.records("expressions")]
    outputs = tuple(storable(scalar) for _, scalar in bound)
    return Project(source, outputs, tuple(_called(*pair) for pair in bound))


def _called(alias: str, scalar: Scalar) -> str:
    """The column's name; DuckDB calls the keys of a group by their numbers."""
    numbered = alias.isdigit() and isinstance(scalar, Ref)
    return label(scalar) if numbered or not alias else alias


def _filter(record: Record, scope: _Scope) -> Relational:
    source = _input(record, scope)
    if record.items("projection_map"):
        raise Refusal("a filter that drops columns").raised()
    inside = row_scope(columns(source))
    parts = [conjuncts(bind_scalar(e, inside)) for e in record.records("expressions")]
    return Filter(source, tuple(part for group in parts for part in group))


def _group(record: Record, scope: _Scope) -> Relational:
    return bind_group(record, _input(record, scope))


def _distinct(record: Record, scope: _Scope) -> Relational:
    return bind_distinct(record, _input(record, scope))


def _window(record: Record, scope: _Scope) -> Relational:
    return bind_window(record, _input(record, scope))


def _limit(record: Record, scope: _Scope) -> Relational:
    return bind_limit(record, lambda child: _node(child, scope))


def _order(record: Record, scope: _Scope) -> Relational:
    """An order that no LIMIT sees: a view has none."""
    return _input(record, scope)


def _union(record: Record, scope: _Scope) -> Relational:
    parts = tuple(_node(child, scope) for child in record.records("children"))
    return Union(parts) if record.flag("setop_all") else Distinct(Union(parts))


def _cross(record: Record, scope: _Scope) -> Relational:
    return Product(tuple(_node(child, scope) for child in record.records("children")), ())


def _comparison_join(record: Record, scope: _Scope) -> Relational:
    kind = record.text("join_type")
    if kind != _INNER or record.items("left_projection_map"):
        raise Refusal(f"{kind} JOIN").raised()
    left, right = (_node(child, scope) for child in record.records("children"))
    width = len(columns(left))
    pairs = [
        _condition(condition, left, right, width) for condition in record.records("conditions")
    ]
    return Product((left, right), tuple(pairs))


def _condition(record: Record, left: Relational, right: Relational, width: int) -> Scalar:
    if not record.has("left"):
        both = row_scope(columns(left) + columns(right))
        return bind_scalar(record.record("expression"), both)
    one = bind_scalar(record.record("left"), row_scope(columns(left)))
    other = shift(bind_scalar(record.record("right"), row_scope(columns(right))), width)
    return Call(Form.INFIX, _COMPARISONS[record.text("comparison")], (one, other), "BOOLEAN")


_COMPARISONS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "!=",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_NOT_DISTINCT_FROM": "IS NOT DISTINCT FROM",
    "COMPARE_DISTINCT_FROM": "IS DISTINCT FROM",
}


def _any_join(record: Record, scope: _Scope) -> Relational:
    kind = record.text("join_type")
    if kind != _INNER:
        raise Refusal(f"{kind} JOIN").raised()
    parts = tuple(_node(child, scope) for child in record.records("children"))
    both = row_scope(tuple(column for part in parts for column in columns(part)))
    return Product(parts, conjuncts(bind_scalar(record.record("condition"), both)))


def _cte(record: Record, scope: _Scope) -> Relational:
    if record.text("ctename").startswith("__duckdb_delim"):
        raise Refusal("LATERAL or a correlated subquery", "join on equal columns").raised()
    definition, body = record.records("children")
    scope.ctes[record.number("table_index")] = _node(definition, scope)
    return _node(body, scope)


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
    "WINDOW": _window,
    "LIMIT": _limit,
    "ORDER_BY": _order,
    "UNION": _union,
    "CROSS_PRODUCT": _cross,
    "COMPARISON_JOIN": _comparison_join,
    "ANY_JOIN": _any_join,
    "MATERIALIZED_CTE": _cte,
    "CTE_REF": _cte_reference,
}
