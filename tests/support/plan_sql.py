"""A logical plan back as one SQL query: what proves that the plan means the query.

Every node becomes a subquery whose columns are `c0 .. cn`, so that DuckDB can run the plan of
any pass and compare with its own answer.
"""

import itertools
from collections.abc import Sequence

from streams.operators.try_eval import with_lazy_operands
from streams.plan import ir
from streams.plan.analyses.fallible import can_fail
from streams.plan.lowering import aggregate_sql
from streams.plan.scalar import Ref, Scalar
from streams.plan.to_sql import sql
from streams.plan.type_names import quoted


def to_sql(node: ir.Relational) -> str:
    match node:
        case ir.Loop() | ir.Variable() | ir.Negate():
            raise AssertionError(f"one query says no recursion: {node}")
        case ir.Get():
            return _select(node, [quoted(c.name) for c in node.columns], quoted(node.relation))
        case ir.Values():
            if not node.rows:
                nulls = ", ".join(f"CAST(NULL AS {c.type})" for c in node.columns)
                return (
                    f"SELECT * FROM (SELECT {nulls}) v({_names(len(node.columns))}) WHERE false"
                )
            rows = ", ".join("(" + ", ".join(map(sql, row)) + ")" for row in node.rows)
            return f"SELECT * FROM (VALUES {rows}) v({_names(len(node.columns))})"
        case ir.Project():
            return _select(node, [sql(output) for output in node.outputs], _of(node.input))
        case ir.Filter():
            return f"SELECT * FROM {_of(node.input)} WHERE {_where(node.predicates)}"
        case ir.Product():
            return _product(node)
        case ir.DeltaJoin():
            every = f"({_product(node)}) d{next(_counter)}"
            return _select(node, [f"c{place}" for place in node.outputs], every)
        case ir.Join():
            return _join(node)
        case ir.Group():
            return _group(node)
        case ir.Window():
            row = _row(node.input)
            calls = [aggregate_sql.window(call, row) for call in node.calls]
            return _select(node, [*map(sql, row), *calls], _partitioned(node))
        case ir.TopK():
            row = _row(node.input)
            text = _select(node, list(map(sql, row)), _partitioned(node))
            return f"{text} QUALIFY {aggregate_sql.topk_condition(node, row)}"
        case ir.Distinct():
            return f"SELECT DISTINCT * FROM {_of(node.input)}"
        case ir.Match():
            return _match(node)
        case ir.Threshold():
            return f" {node.rule.upper()} ".join(f"({to_sql(part)})" for part in node.inputs)
        case ir.Unnest():
            width = len(ir.columns(node.input))
            lists = ", ".join(
                f"unnest(c{at}) AS c{width + i}" for i, at in enumerate(node.lists)
            )
            return f"SELECT *, {lists} FROM {_of(node.input)}"
        case ir.Union():
            return " UNION ALL ".join(f"({to_sql(part)})" for part in node.inputs)


def _where(predicates: Sequence[Scalar]) -> str:
    """All of them. One that fails does not count where another is not true (rule 38)."""
    texts = [sql(predicate) for predicate in predicates]
    if len(texts) == 1 or not any(map(can_fail, predicates)):
        return " AND ".join(texts)
    texts = [f"({with_lazy_operands(text)})" for text in texts]
    tries = [f"try({{'v': {text}}})" for text in texts]
    dropped = " OR ".join(
        f"({attempt} IS NOT NULL AND {attempt}.v IS NOT TRUE)" for attempt in tries
    )
    return f"CASE WHEN {dropped} THEN false ELSE {' AND '.join(texts)} END"


_counter = itertools.count()


def _of(node: ir.Relational) -> str:
    return f"({to_sql(node)}) s{next(_counter)}"


def _row(node: ir.Relational) -> list[Ref]:
    return [Ref(i, column.type, column.name) for i, column in enumerate(ir.columns(node))]


def _partitioned(node: ir.Window | ir.TopK) -> str:
    """The input with `p`, which numbers the partitions."""
    keys = ", ".join(map(sql, node.keys)) or "1"
    row = _names(len(ir.columns(node.input)))
    numbers = (
        f"dense_rank() OVER (ORDER BY {keys}) AS p, row_number() OVER (PARTITION BY {row}) AS i"
    )
    return f"(SELECT *, {numbers} FROM {_of(node.input)}) s{next(_counter)}"


def _call(call: ir.AggregateCall) -> str:
    if call.general:
        return aggregate_sql.aggregate(call)
    arguments = ", ".join(sql(a) for a in (call.argument, *call.more) if a is not None)
    inside = ("DISTINCT " if call.distinct else "") + (arguments or "*")
    inside += f", {call.share}" if call.share else ""
    return f"CAST({call.function}({inside}) AS {call.type})"


def _names(width: int) -> str:
    return ", ".join(f"c{i}" for i in range(width))


def _select(node: ir.Relational, expressions: list[str], source: str) -> str:
    shown = ", ".join(f"{e} AS c{i}" for i, e in enumerate(expressions))
    del node
    return f"SELECT {shown} FROM {source}"


def _product(node: ir.Product | ir.DeltaJoin) -> str:
    places: list[str] = []
    parts = []
    for number, part in enumerate(node.inputs):
        places += [f"p{number}.c{i}" for i in range(len(ir.columns(part)))]
        parts.append(f"({to_sql(part)}) p{number}")
    where = " AND ".join(map(sql, node.predicates)) or "true"
    shown = ", ".join(f"{place} AS c{i}" for i, place in enumerate(places))
    return f"SELECT * FROM (SELECT {shown} FROM {', '.join(parts)}) WHERE {where}"


def _join(node: ir.Join) -> str:
    left_width, right = len(ir.columns(node.left)), len(ir.columns(node.right))
    places = [f"l.c{i}" for i in range(left_width)] + [f"r.c{i}" for i in range(right)]
    shown = ", ".join(f"{place} AS c{i}" for i, place in enumerate(places))
    on = [
        f"l.c{k.left} {'IS NOT DISTINCT FROM' if k.null_equal else '='} r.c{k.right}"
        for k in node.keys
    ]
    sides = f"({to_sql(node.left)}) l JOIN ({to_sql(node.right)}) r"
    judged = " AND ".join(map(sql, node.residual)) or "true"
    joined = f"SELECT {shown} FROM {sides} ON {' AND '.join(on) or 'true'}"
    return f"SELECT * FROM ({joined}) WHERE {judged}"


def _match(node: ir.Match) -> str:
    left_width, right = len(ir.columns(node.left)), len(ir.columns(node.right))
    ours = f"({to_sql(node.left)}) l"
    names = ", ".join(f"c{left_width + i}" for i in range(right))
    theirs = f"({to_sql(node.right)}) r({names})"
    on = " AND ".join(map(sql, node.predicates)) or "true"
    match node.kind:
        case ir.JoinKind.LEFT | ir.JoinKind.FULL | ir.JoinKind.INNER | ir.JoinKind.RIGHT:
            return f"SELECT * FROM {ours} {node.kind} JOIN {theirs} ON {on}"
        case ir.JoinKind.SINGLE:
            return f"SELECT * FROM {ours} LEFT JOIN {theirs} ON {on}"
        case ir.JoinKind.SEMI:
            return f"SELECT * FROM {ours} WHERE EXISTS (FROM {theirs} WHERE {on})"
        case ir.JoinKind.ANTI:
            return f"SELECT * FROM {ours} WHERE NOT EXISTS (FROM {theirs} WHERE {on})"
        case ir.JoinKind.NULL_AWARE_ANTI:
            maybe = f"({on}) IS DISTINCT FROM false"
            return f"SELECT * FROM {ours} WHERE NOT EXISTS (FROM {theirs} WHERE {maybe})"
        case ir.JoinKind.MARK:
            exists = f"EXISTS (FROM {theirs} WHERE {on})"
            unknown = f"EXISTS (FROM {theirs} WHERE ({on}) IS NULL)"
            mark = f"CASE WHEN {exists} THEN true WHEN {unknown} THEN NULL ELSE false END"
            return f"SELECT *, {mark} AS c{left_width} FROM {ours}"


def _group(node: ir.Group) -> str:
    calls = list(map(_call, node.calls))
    keys = list(map(sql, node.keys))
    text = _select(node, keys + calls, _of(node.input))
    return f"{text} GROUP BY {', '.join(keys)}" if keys else text
