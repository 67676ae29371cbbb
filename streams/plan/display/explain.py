"""Plans as trees for people: EXPLAIN, and the golden files of the tests."""

from collections.abc import Iterator, Mapping
from typing import assert_never

from streams.ids import CollectionId
from streams.plan import ir, physical
from streams.plan.analyses.keys import key
from streams.plan.analyses.monotone import is_monotone
from streams.plan.lowering.aggregate_sql import (
    label_of_aggregate,
    label_of_order,
    label_of_window,
)
from streams.plan.physical import Dataflow
from streams.plan.scalar import Scalar
from streams.plan.to_sql import label
from streams.plan.type_names import identifier

_SHOWN = 12  # columns of a relation before the line gets too long to read


def explain_logical(node: ir.Relational, depth: int = 0, *, with_facts: bool = False) -> str:
    """The logical plan, one operator a line, inputs indented below.

    With what is `with_facts` of the rows: a key, and whether they only ever become more.
    """
    line = "  " * depth + _logical(node) + (_known(node) if with_facts else "")
    parts = (explain_logical(part, depth + 1, with_facts=with_facts) for part in ir.parts(node))
    return "\n".join([line, *parts])


def _known(node: ir.Relational) -> str:
    notes = []
    if isinstance(node, ir.Get) and node.rebase_of:
        notes.append(f"rebase of {identifier(node.rebase_of)}: times of the clock")
    if (key_ := key(node)) is not None:
        own = ir.columns(node)
        names = ", ".join(identifier(own[place].name) for place in key_)
        notes.append(f"key {names}" if names else "at most one row")
    if ir.gets(node) and is_monotone(node):
        notes.append("append-only")
    return f"  -- {'; '.join(notes)}" if notes else ""


def _logical(node: ir.Relational) -> str:  # noqa: C901, PLR0911, PLR0912 - one case for each kind of node
    match node:
        case ir.Get():
            return f"Get {identifier(node.relation)} [{node.collection}] {_row(node)}"
        case ir.Values():
            return f"Values {len(node.rows)} rows {_row(node)}"
        case ir.Project():
            return f"Project {_outputs(node.outputs, node.names)}"
        case ir.Filter():
            return f"Filter {_all(node.predicates)}"
        case ir.Product():
            return f"Product {_all(node.predicates)}".rstrip()
        case ir.Join():
            return f"Join {_keys(node)}"
        case ir.DeltaJoin():
            return f"Delta join {_all(node.predicates)}"
        case ir.Match():
            return f"{node.kind} join {_all(node.predicates)}".rstrip()
        case ir.Threshold():
            return str(node.rule).capitalize()
        case ir.Unnest():
            own = ir.columns(node.input)
            return "Unnest " + ", ".join(identifier(own[place].name) for place in node.lists)
        case ir.Group():
            return f"Group {_group(node)}"
        case ir.Window():
            return f"Window {_calls(node)}"
        case ir.TopK():
            return f"TopK {_top(node)}"
        case ir.Distinct():
            return "Distinct"
        case ir.Union():
            return "Union"
        case ir.Negate():
            return "Negate"
        case ir.Variable():
            return f"{identifier(node.name)} of the iteration before {_row(node)}"
        case ir.Loop():
            names = ", ".join(map(identifier, node.names))
            end = _end(node.limit.iterations, fails=node.limit.fails)
            return f"Loop {names}, gives {identifier(node.names[node.result])}, {end}"
        case _:
            assert_never(node)


def _row(node: ir.Relational) -> str:
    own = ir.columns(node)
    shown = [f"{identifier(c.name)} {c.type}" for c in own[:_SHOWN]]
    rest = [f"and {len(own) - _SHOWN} more"] if len(own) > _SHOWN else []
    return "(" + ", ".join(shown + rest) + ")"


def _end(limit: int, *, fails: bool) -> str:
    return f"an error beyond iteration {limit}" if fails else f"ends with iteration {limit}"


def _outputs(outputs: tuple[Scalar, ...], names: tuple[str, ...]) -> str:
    pairs = [(label(output), name) for output, name in zip(outputs, names, strict=True)]
    return ", ".join(t if t == name else f"{t} AS {identifier(name)}" for t, name in pairs)


def _all(predicates: tuple[Scalar, ...]) -> str:
    return " AND ".join(label(predicate) for predicate in predicates)


def _keys(node: ir.Join) -> str:
    left, right = ir.columns(node.left), ir.columns(node.right)
    equal = " AND ".join(
        f"left.{identifier(left[key.left].name)}"
        f" {'IS NOT DISTINCT FROM' if key.null_equal else '='}"
        f" right.{identifier(right[key.right].name)}"
        for key in node.keys
    )
    return (equal or "of all pairs") + _where(_all(node.residual))


def _calls(node: ir.Window) -> str:
    calls = ", ".join(map(label_of_window, node.calls))
    keys = ", ".join(label(key) for key in node.keys)
    return f"by {keys}: {calls}" if keys else f"of all: {calls}"


def _top(node: ir.TopK) -> str:
    keys = f"by {', '.join(label(key) for key in node.keys)}: " if node.keys else ""
    share = "" if node.percent is None else f"{node.percent}% "
    rows = "all" if node.limit is None else str(node.limit)
    order = ", ".join(label_of_order(order) for order in node.orders)
    shown = f"{keys}{share or rows + ' '}rows from {node.offset}"
    return f"{shown} in order of {order}" if order else shown


def _group(node: ir.Group) -> str:
    calls = ", ".join(map(label_of_aggregate, node.calls))
    keys = ", ".join(label(key) for key in node.keys)
    return f"by {keys}: {calls}" if keys else f"all: {calls}"


def explain_physical(dataflow: Dataflow, names: Mapping[CollectionId, str]) -> str:
    """The physical plan: the output's tree, with levels; a shared node is shown once."""
    lines = [heading(dataflow), f"rounds {dataflow.depth}"]
    shown: set[int] = set()
    _walk(dataflow, names, len(dataflow.nodes) - 1, (0, None), lines, shown)
    return "\n".join(lines)


def tree(
    dataflow: Dataflow, names: Mapping[CollectionId, str]
) -> Iterator[tuple[physical.NodeId, str]]:
    """Yield the output's tree: each node's number and line, indented, shown once."""
    shown: set[int] = set()
    waiting = [(len(dataflow.nodes) - 1, 0)]
    while waiting:
        number, depth = waiting.pop()
        if number in shown:
            continue
        shown.add(number)
        yield number, f"{'  ' * depth}#{number} {operator(dataflow, names, number)}"
        children = physical.inputs(dataflow.nodes[number])
        waiting += [(child, depth + 1) for child in reversed(children)]


def heading(dataflow: Dataflow) -> str:
    """The columns that come out."""
    columns = ", ".join(f"{identifier(c.name)} {c.type}" for c in dataflow.output)
    return f"output ({columns})"


def _walk(
    dataflow: Dataflow,
    names: Mapping[CollectionId, str],
    number: int,
    place: tuple[int, int | None],
    lines: list[str],
    shown: set[int],
) -> None:
    depth, parent = place
    level = dataflow.levels[number]
    moved = parent is not None and dataflow.levels[parent] != level
    arrow = "exchange: " if moved else ""
    head = f"{'  ' * depth}{arrow}#{number} level {level}"
    if number in shown:
        lines.append(f"{head} (above)")
        return
    shown.add(number)
    types = ", ".join(dataflow.types[number])
    lines.append(f"{head} {operator(dataflow, names, number)} -> ({types})")
    node = dataflow.nodes[number]
    if isinstance(node, physical.Loop):
        lines += _body(node, depth + 1)
    for child in physical.inputs(node):
        _walk(dataflow, names, child, (depth + 1, number), lines, shown)


def _body(loop: physical.Loop, depth: int) -> list[str]:
    """The body of a loop: the tree of each binding's value."""
    lines: list[str] = []
    shown: set[int] = set()
    variables = loop.body.imports[len(loop.inputs) :]
    names = {variable.collection: n for variable, n in zip(variables, loop.names, strict=True)}
    for name, value in zip(loop.names, loop.values, strict=True):
        lines.append(f"{'  ' * depth}{identifier(name)} :=")
        _walk(loop.body, names, value, (depth + 1, None), lines, shown)
    return lines


def operator(  # noqa: C901, PLR0911, PLR0912 - one case for each kind of node
    dataflow: Dataflow, names: Mapping[CollectionId, str], number: int
) -> str:
    """A node of the plan in one line."""
    node = dataflow.nodes[number]
    match node:
        case physical.Source():
            collection = dataflow.imports[node.index].collection
            return f"Source {identifier(names.get(collection, collection))} [{collection}]"
        case physical.Constant():
            return f"Constant {node.sql}"
        case physical.Linear():
            return _linear(node)
        case physical.Temporal():
            return _temporal(node)
        case physical.EmitOnClose():
            born = "" if node.born is None else f", those before {node.born} at once"
            return f"EmitOnClose at c{node.end}{born}"
        case physical.Join():
            return f"Join {_equal(node)}" + _where(_sql(node.residual))
        case physical.Asof():
            return _asof(node)
        case physical.Arrange():
            nulls = " null equals null" if any(node.null_equal) else ""
            return f"Arrange by {_columns(node.keys)}{nulls}"
        case physical.Lookup():
            when = "before its time" if node.strict else "up to its time"
            return f"Lookup {_columns(node.keys)} in #{node.arranged} {when}"
        case physical.Reduce():
            calls = ", ".join(map(_aggregate, node.aggregates))
            return f"Reduce by {_columns(node.keys)}: {calls}"
        case physical.Groupwise():
            return f"Groupwise by {_columns(node.keys)} {_groupwise(node)}"
        case physical.TopK():
            rows = f"[{node.offset}, {node.upto})"
            return f"TopK by {_columns(node.keys)} rows {rows} in order of {node.order}"
        case physical.Distinct() | physical.Union() | physical.Negate():
            return type(node).__name__
        case physical.Loop():
            gives = identifier(node.names[node.result])
            return f"Loop in one bucket, gives {gives}, {_end(node.limit, fails=node.fails)}"
        case physical.Threshold():
            return f"Threshold {node.rule} by {_columns(node.keys)}"
        case physical.Unnest():
            return f"Unnest {_columns(node.lists)}"
        case physical.Upsert():
            order = " in order of event time" if node.dated else ""
            return f"Upsert by {_columns(node.keys)}{order}"
        case _:
            assert_never(node)


def _linear(node: physical.Linear) -> str:
    outputs = ", ".join(output.sql for output in node.outputs)
    return f"Linear {outputs}" + _where(_sql(node.predicates))


def _temporal(node: physical.Temporal) -> str:
    outputs = ", ".join(output.sql for output in node.outputs)
    bounds = " AND ".join(f"mz_now() {b.comparison} {b.value.sql}" for b in node.bounds)
    return f"Temporal {outputs} while {bounds}" + _where(_sql(node.predicates))


def _sql(predicates: tuple[physical.Expression, ...]) -> str:
    return " AND ".join(predicate.sql for predicate in predicates)


def _where(predicates: str) -> str:
    return f" where {predicates}" if predicates else ""


def _equal(node: physical.Join | physical.Asof) -> str:
    if not node.left_keys:
        return "of all pairs"
    equal = f"{_columns(node.left_keys)} = {_columns(node.right_keys)}"
    return equal + (" null equals null" if all(node.null_equal) else _null_equal(node))


def _asof(node: physical.Asof) -> str:
    ends = "[c{}, c{})" if node.closed else "(c{}, c{}]"
    within = ends.format(node.start, node.end)
    return f"Asof join {_equal(node)}: c{node.point} in the range {within} by search"


def _groupwise(node: physical.Groupwise) -> str:
    width = len(node.outputs)
    shown = [e.sql for i, e in enumerate(node.outputs) if e.sql != f"c{i}"]
    where = f" where {node.condition.sql}" if node.condition else ""
    note = f"{width - len(shown)} columns kept"
    return f"recomputes {_scope(node)}{', '.join([note, *shown])}{where}"


def _scope(node: physical.Groupwise) -> str:
    """The scope of recomputation after a change of one row."""
    if node.reach is None:
        return f"whole groups ({node.why}): "
    if node.reach.before:
        return "from the first changed row on: "
    if node.reach.span is not None:
        return "neighbours, those whose frames by value reach a change: "
    decided = ", and those behind it that it decides" if node.reach.extremes else ""
    if not node.reach.peers:
        some = f"{node.reach.ahead} rows before and {node.reach.back} behind each change"
        return f"neighbours, {some}{decided}: "
    some = f"{node.reach.ahead} groups of peers before and {node.reach.back} behind"
    return f"neighbours, the peers of each change and {some}{decided}: "


def _null_equal(node: physical.Join | physical.Asof) -> str:
    marked = [k for k, equal in zip(node.left_keys, node.null_equal, strict=True) if equal]
    return f" null equals null in {_columns(tuple(marked))}" if marked else ""


def _columns(positions: tuple[int, ...]) -> str:
    return "(" + ", ".join(f"c{position}" for position in positions) + ")"


def _aggregate(call: physical.Aggregate) -> str:
    if call.sql:
        return f"recomputes {call.sql}"
    if call.other is not None:
        return f"{call.function}(c{call.argument}, c{call.other})"
    argument = "*" if call.argument is None else f"c{call.argument}"
    if call.share:
        return f"{call.function}({argument}, {call.share})"
    return f"{call.function}({'DISTINCT ' if call.distinct else ''}{argument})"
