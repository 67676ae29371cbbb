"""A logical plan back as one SQL query: what proves that the plan means the query.

Every node becomes a subquery whose columns are `c0 .. cn`, so that DuckDB can run the plan of
any pass and compare with its own answer.
"""

import itertools

from streams.plan import grouped, ir
from streams.plan.render import sql
from streams.plan.scalar import Ref
from streams.plan.typenames import quoted


def to_sql(node: ir.Relational) -> str:
    match node:
        case ir.Get():
            return _select(node, [quoted(c.name) for c in node.columns], quoted(node.relation))
        case ir.Values():
            rows = ", ".join("(" + ", ".join(map(sql, row)) + ")" for row in node.rows)
            return f"SELECT * FROM (VALUES {rows}) v({_names(len(node.columns))})"
        case ir.Project():
            return _select(node, [sql(output) for output in node.outputs], _of(node.input))
        case ir.Filter():
            where = " AND ".join(map(sql, node.predicates))
            return f"SELECT * FROM {_of(node.input)} WHERE {where}"
        case ir.Product():
            return _product(node)
        case ir.Join():
            return _join(node)
        case ir.Group():
            return _group(node)
        case ir.Window():
            row = _row(node.input)
            calls = [grouped.window(call, row) for call in node.calls]
            return _select(node, [*map(sql, row), *calls], _partitioned(node))
        case ir.TopK():
            row = _row(node.input)
            text = _select(node, list(map(sql, row)), _partitioned(node))
            return f"{text} QUALIFY {grouped.chosen(node, row)}"
        case ir.Distinct():
            return f"SELECT DISTINCT * FROM {_of(node.input)}"
        case ir.Union():
            return " UNION ALL ".join(f"({to_sql(part)})" for part in node.inputs)


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
        return grouped.aggregate(call)
    arguments = ", ".join(sql(a) for a in (call.argument, *call.more) if a is not None)
    inside = ("DISTINCT " if call.distinct else "") + (arguments or "*")
    return f"CAST({call.function}({inside}) AS {call.type})"


def _names(width: int) -> str:
    return ", ".join(f"c{i}" for i in range(width))


def _select(node: ir.Relational, expressions: list[str], source: str) -> str:
    shown = ", ".join(f"{e} AS c{i}" for i, e in enumerate(expressions))
    del node
    return f"SELECT {shown} FROM {source}"


def _product(node: ir.Product) -> str:
    places: list[str] = []
    parts = []
    for number, part in enumerate(node.inputs):
        places += [f"p{number}.c{i}" for i in range(len(ir.columns(part)))]
        parts.append(f"({to_sql(part)}) p{number}")
    where = " AND ".join(map(sql, node.predicates)) or "true"
    shown = ", ".join(f"{place} AS c{i}" for i, place in enumerate(places))
    return f"SELECT * FROM (SELECT {shown} FROM {', '.join(parts)}) WHERE {where}"


def _join(node: ir.Join) -> str:
    left, right = len(ir.columns(node.left)), len(ir.columns(node.right))
    places = [f"l.c{i}" for i in range(left)] + [f"r.c{i}" for i in range(right)]
    shown = ", ".join(f"{place} AS c{i}" for i, place in enumerate(places))
    on = " AND ".join(
        f"l.c{k.left} {'IS NOT DISTINCT FROM' if k.null_equal else '='} r.c{k.right}"
        for k in node.keys
    )
    return f"SELECT {shown} FROM ({to_sql(node.left)}) l JOIN ({to_sql(node.right)}) r ON {on}"


def _group(node: ir.Group) -> str:
    calls = list(map(_call, node.calls))
    keys = list(map(sql, node.keys))
    text = _select(node, keys + calls, _of(node.input))
    return f"{text} GROUP BY {', '.join(keys)}" if keys else text
