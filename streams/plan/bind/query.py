"""Translates DuckDB's bound plan to the logical plan.

The plan comes unoptimised, so its operators are the query's clauses in order of evaluation.
Common table expressions are put in where they are referred to: equal subtrees are computed
once whatever made them equal.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from streams.ids import CollectionId
from streams.plan.analyses.temporal import conjunct
from streams.plan.bind import joins as bind_join
from streams.plan.bind import recursion as bind_recursive
from streams.plan.bind import tables as bind_table
from streams.plan.bind.asof import asof
from streams.plan.bind.correlated import DELIM
from streams.plan.bind.groups import bind_distinct, bind_group, storable
from streams.plan.bind.orders import OrderedRows, bind_limit, bind_ordered
from streams.plan.bind.scalars import bind_scalar, row_scope
from streams.plan.bind.windows import bind_window
from streams.plan.duckdb_plan import Record
from streams.plan.ir import (
    Distinct,
    Filter,
    Get,
    JoinKind,
    Limit,
    Match,
    Product,
    Project,
    Relational,
    Threshold,
    Union,
    Values,
    Variable,
    columns,
    shared,
)
from streams.plan.passes.prune_columns import pick_columns
from streams.plan.physical import Column, Rule
from streams.plan.refusal import Refusal
from streams.plan.scalar import Ref, Scalar, conjuncts
from streams.plan.to_sql import label
from streams.plan.type_names import stored_type, type_name

_NUMBER = "limit_rownum"  # and how it numbers the rows there; over partitions it is a LIMIT
_SEVERAL = "More than one row returned by a subquery used as an expression"
_MUTUALLY = "write it as WITH MUTUALLY RECURSIVE"


Relations = Mapping[str, tuple[str, CollectionId]]
"""The catalog by lower-case name: the name as it is spelled there, and the collection."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """The scope of names: relations of the catalog, and CTEs by number."""

    relations: Relations
    limit: Limit
    ctes: dict[int, Relational] = field(default_factory=dict)


def bind(
    plan: Record, relations: Relations, limit: Limit = bind_recursive.DEFAULT_LIMIT
) -> OrderedRows:
    """The logical plan of a bound query, whose recursions have this limit, in no order.

    Errors: InvalidStatement for an operator that we do not maintain.
    """
    rows = _node(plan, _Scope(relations, limit))
    return OrderedRows(rows, len(columns(rows)))


def bind_shown(
    plan: Record, relations: Relations, limit: Limit = bind_recursive.DEFAULT_LIMIT
) -> OrderedRows:
    """Like `bind`, with the order in which the query shows its rows."""
    scope = _Scope(relations, limit)
    while plan.text("type") == "LOGICAL_MATERIALIZED_CTE":
        plan = _defined(plan, scope)
    return bind_ordered(plan, lambda child: _node(child, scope))


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
    """The input of a table function that is called once per row; None for constants."""
    return _input(record, scope) if record.records("children") else None


def _dummy(_: Record, __: _Scope) -> Relational:
    return bind_table.NOTHING


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
    scalar = _scalar_subquery(record, scope)
    if scalar is not None:
        return scalar
    _refuse_foreign(record)
    return _projected(record, _input(record, scope))


def _projected(record: Record, source: Relational) -> Relational:
    inside = row_scope(columns(source))
    bound = [(e.text("alias"), bind_scalar(e, inside)) for e in record.records("expressions")]
    outputs = tuple(storable(scalar) for _, scalar in bound)
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
    firsts = [calls[record.record("else_expr").number("index")] for record in shown]
    values = tuple(storable(bind_scalar(e.records("children")[0], inside)) for e in firsts)
    single_row = Project(source, values, tuple(map(label, values)))
    single = Match(bind_table.NOTHING, single_row, JoinKind.SINGLE, ())
    return pick_columns(single, range(1, 1 + len(values)))


def _raises(record: Record) -> bool:
    """Whether an expression is the CASE that DuckDB writes: its error, else a column."""
    if record.text("expression_class") != "BOUND_CASE":
        return False
    (check, *_), otherwise = record.records("case_checks"), record.record("else_expr")
    words = [str(node.fields.get("value")) for node in check.record("then_expr").walk()]
    own = any(word.startswith(_SEVERAL) for word in words)
    return own and otherwise.text("expression_class") == "BOUND_REF"


def _refuse_foreign(record: Record) -> None:
    """The arguments of a table function name columns of their one input, by its number."""
    (child,) = record.records("children")
    for node in (
        node for expression in record.records("expressions") for node in expression.walk()
    ):
        if node.fields.get("expression_class") == "BOUND_COLUMN_REF":
            table = node.record("binding").number("table_index")
            if not child.has("table_index") or child.number("table_index") != table:
                hint = "compute the argument in a subquery of its own"
                raise Refusal("a table function over several relations", hint).raised()


def _called(alias: str, scalar: Scalar) -> str:
    """The column's name; DuckDB calls the keys of a group by their numbers."""
    numbered = alias.isdigit() and isinstance(scalar, Ref)
    return label(scalar) if numbered or not alias else alias


def _filter(record: Record, scope: _Scope) -> Relational:
    return _filtered_rows(record, _input(record, scope))


def _filtered_rows(record: Record, source: Relational) -> Relational:
    inside = row_scope(columns(source))
    parts = [conjuncts(bind_scalar(e, inside)) for e in record.records("expressions")]
    filtered = Filter(source, tuple(conjunct(part) for group in parts for part in group))
    places = bind_join.projection(record, "projection_map")
    return filtered if places is None else pick_columns(filtered, places)


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


def _asof_join(record: Record, scope: _Scope) -> Relational:
    left, right = (_node(child, scope) for child in record.records("children"))
    return asof(record, left, right)


def _any_join(record: Record, scope: _Scope) -> Relational:
    left, right = (_node(child, scope) for child in record.records("children"))
    return bind_join.join_on_expression(record, left, right)


def _unnest(record: Record, scope: _Scope) -> Relational:
    return bind_table.unnest(record, _input(record, scope))


def _nothing(record: Record, _: _Scope) -> Relational:
    """No rows, of these types."""
    types = [stored_type(type_name(type_)) for type_ in record.records("return_types")]
    return Values((), tuple(Column(f"col{i}", type_) for i, type_ in enumerate(types)))


def _cte(record: Record, scope: _Scope) -> Relational:
    return _node(_defined(record, scope), scope)


def _defined(record: Record, scope: _Scope) -> Record:
    """Define a common table expression in the scope, and return the plan after it."""
    definition, body = record.records("children")
    number = record.number("table_index")
    source, kind = None, definition.text("type")
    if record.text("ctename").startswith(DELIM) and kind == "LOGICAL_PROJECTION":
        source = _numbered(definition.records("children")[0], scope)
    node = _node(definition, scope) if source is None else _projected(definition, source)
    readers = [n for n in body.walk() if _is_cte(n) and n.number("cte_index") == number]
    scope.ctes[number] = shared(node) if len(readers) > 1 else node
    return body


def _is_cte(record: Record) -> bool:
    return record.fields.get("type") == "LOGICAL_CTE_REF"


def _numbered(record: Record, scope: _Scope) -> Relational | None:
    """The rows on the left of a correlated join, if DuckDB numbers them, and their numbers.

    It does so where it cannot compare them, perhaps before it filters them. Any other
    row_number is a function of the query.
    """
    if record.text("type") == "LOGICAL_FILTER":
        source = _numbered(record.records("children")[0], scope)
        return None if source is None else _filtered_rows(record, source)
    if record.text("type") != "LOGICAL_WINDOW":
        return None
    (call, *others) = record.records("expressions")
    if others or call.text("alias") != _NUMBER or call.items("partitions"):
        return None
    return bind_join.with_row_identity(_input(record, scope))


def _cte_reference(record: Record, scope: _Scope) -> Relational:
    if record.flag("is_recurring"):
        raise Refusal("recurring, which sees all rows so far,", _MUTUALLY).raised()
    return scope.ctes[record.number("cte_index")]


def _recursive(record: Record, scope: _Scope) -> Relational:
    name, number = record.text("ctename"), record.number("table_index")
    if record.items("key_targets"):
        raise Refusal("WITH RECURSIVE ... USING KEY", _MUTUALLY).raised()
    first, term = record.records("children")
    base = _node(first, scope)
    scope.ctes[number] = Variable(str(number), 0, name, columns(base))
    return bind_recursive.recursion(
        str(number),
        name,
        base,
        _node(term, scope),
        scope.limit,
        keeps_all=record.flag("union_all"),
    )


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
    "INTERSECT": _set_operation,
    "EXCEPT": _set_operation,
    "UNNEST": _unnest,
    "EMPTY_RESULT": _nothing,
    "CROSS_PRODUCT": _cross,
    "COMPARISON_JOIN": _comparison_join,
    "ANY_JOIN": _any_join,
    "ASOF_JOIN": _asof_join,
    "MATERIALIZED_CTE": _cte,
    "CTE_REF": _cte_reference,
    "RECURSIVE_CTE": _recursive,
}
