"""Ends a recursion below a LIMIT without ORDER BY once the LIMIT has its rows.

DuckDB takes the rows of such a LIMIT iteration by iteration and computes no further one once it
has enough, so a recursion without an end has an answer. With V(i) the bindings' values and N(i)
the number of rows that lie below the LIMIT in iteration i, the loop

    V(i) = body(V(i - 1))        while N(i - 1) < n, then V(i) = V(i - 1)

stops at the first iteration with n rows or more, of which the LIMIT takes the first ones. The
number never falls: WITH RECURSIVE only adds rows, and Project, Filter and Unnest work row by
row. From then on the body is given no rows, so that none fails in an iteration that DuckDB does
not compute.
"""

from dataclasses import replace

from streams.plan.ir import (
    AggregateCall,
    Filter,
    Group,
    Loop,
    Negate,
    Product,
    Project,
    Relational,
    Union,
    Unnest,
    Variable,
    columns,
    parts,
    shared,
    with_parts,
)
from streams.plan.passes.prune_columns import pick_columns
from streams.plan.scalar import Call, Form, Literal, Ref

MOST = 10_000
"""The rows of a LIMIT up to which it ends a recursion: each iteration costs more for it, which
a recursion that makes more rows does without."""

_TRUE = Literal("true", "BOOLEAN", "true")


def until_full(source: Relational, count: int) -> Relational:
    """The rows below a LIMIT, of which it needs `count`.

    They are as they were where no recursion lies below, where something other than row by row
    is between the two, or where too many rows are needed.
    """
    loop = _recursion(source)
    if loop is None or count > MOST:
        return source
    return _over(source, _ended(loop, source, count))


def _recursion(node: Relational) -> Loop | None:
    while isinstance(node, Project | Filter | Unnest):
        node = node.input
    return node if isinstance(node, Loop) else None


def _over(source: Relational, rows: Relational) -> Relational:
    """The operators above the recursion, over other rows."""
    if isinstance(source, Project | Filter | Unnest):
        return replace(source, input=_over(source.input, rows))
    return rows


def _ended(loop: Loop, source: Relational, count: int) -> Loop:
    """The loop that continues while fewer rows than these are below the LIMIT."""
    variables = [
        Variable(loop.loop, place, name, columns(value))
        for place, (name, value) in enumerate(zip(loop.names, loop.values, strict=True))
    ]
    rows = Project(_over(source, variables[loop.result]), (_TRUE,), ("row",))
    number = Group(rows, (), (AggregateCall("count_star", None, "BIGINT"),), ("count",))
    least = Literal(f"CAST('{count}' AS BIGINT)", "BIGINT", str(count))
    lacks = Call(Form.INFIX, "<", (Ref(0, "BIGINT", "count"), least), "BOOLEAN")
    lacking = Project(Filter(number, (lacks,)), (_TRUE,), ("row",))
    bodies = zip(variables, map(shared, loop.values), strict=True)
    return replace(loop, values=tuple(_while(lacking, name, body) for name, body in bodies))


def _while(condition: Relational, before: Variable, value: Relational) -> Relational:
    """The value while the condition has its row, afterwards the last value before."""
    changed = Union((_given(value, condition, before.loop), Negate(before)))
    return Union((before, _if(condition, changed)))


def _given(value: Relational, condition: Relational, loop: str) -> Relational:
    """The value of the loop's variables where the condition has its row, else of nothing."""
    if isinstance(value, Variable) and value.loop == loop:
        return _if(condition, value)
    return with_parts(value, tuple(_given(part, condition, loop) for part in parts(value)))


def _if(condition: Relational, rows: Relational) -> Relational:
    return pick_columns(Product((rows, condition), ()), range(len(columns(rows))))
