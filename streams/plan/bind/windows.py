"""Window functions of a bound plan."""

from streams.plan.bind.groups import bind_arguments, bind_orders, refused_or_named, storable
from streams.plan.bind.scalars import bind_scalar, row_scope
from streams.plan.duckdb_plan import Record
from streams.plan.ir import (
    Frame,
    Project,
    Relational,
    Window,
    WindowCall,
    columns,
)
from streams.plan.lowering.excluded_frames import checked
from streams.plan.refusal import Refusal
from streams.plan.scalar import Ref, Scalar
from streams.plan.type_names import stored_type, type_name

_FUNCTIONS = {
    "WINDOW_ROW_NUMBER": "row_number",
    "WINDOW_RANK": "rank",
    "WINDOW_RANK_DENSE": "dense_rank",
    "WINDOW_PERCENT_RANK": "percent_rank",
    "WINDOW_CUME_DIST": "cume_dist",
    "WINDOW_NTILE": "ntile",
    "WINDOW_LAG": "lag",
    "WINDOW_LEAD": "lead",
    "WINDOW_FIRST_VALUE": "first_value",
    "WINDOW_LAST_VALUE": "last_value",
    "WINDOW_NTH_VALUE": "nth_value",
}
_KEPT = frozenset({"arbitrary"})
"""Aliases of `first`, which DuckDB reads as `first_value` in a window, without FILTER."""

_PLACED = frozenset({"row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile",
                     "lag", "lead"})  # fmt: skip
_INSTEAD = {"fill": "of rows of one order nothing says which is next: join the two neighbours"}
_UNBOUNDED = {"UNBOUNDED_PRECEDING", "UNBOUNDED_FOLLOWING"}
_EXCLUDED = {"NO_OTHER": "", "CURRENT_ROW": "CURRENT ROW", "GROUP": "GROUP", "TIES": "TIES"}


def bind_window(record: Record, source: Relational) -> Relational:
    """The input's columns, then one for each call: a Window for each way to partition."""
    inside = row_scope(columns(source))
    partitions: dict[tuple[Scalar, ...], list[int]] = {}
    calls = []
    for place, expression in enumerate(record.records("expressions")):
        keys = tuple(storable(bind_scalar(e, inside)) for e in expression.records("partitions"))
        partitions.setdefault(keys, []).append(place)
        calls.append(_call(expression, source))
    node, order = source, []
    for keys, places in partitions.items():
        some = tuple(calls[place] for place in places)
        node = Window(node, keys, some, tuple(call.function for call in some))
        order += places
    width, own = len(columns(source)), columns(node)
    back = [*range(width), *(width + order.index(place) for place in range(len(calls)))]
    if back == list(range(len(own))):
        return node
    outputs = tuple(Ref(i, own[i].type, own[i].name) for i in back)
    return Project(node, outputs, tuple(own[i].name for i in back))


def _call(record: Record, source: Relational) -> WindowCall:
    inside = row_scope(columns(source))
    function = _FUNCTIONS.get(record.text("type"), "")
    if record.text("type") == "WINDOW_AGGREGATE":
        written = record.record("qname").texts("path")[-1]
        function = written if written in _KEPT else refused_or_named(written)
    if not function:
        name = record.text("type").removeprefix("WINDOW_").lower()
        raise Refusal(f"window function {name}", _INSTEAD.get(name, "")).raised()
    inner = bind_orders(record.records("arg_orders"), source)
    placed = function in _PLACED and not inner  # in the partition, whatever the frame
    call = WindowCall(
        function,
        bind_arguments(record, source),
        stored_type(type_name(record.record("return_type"))),
        bind_orders(record.records("orders"), source),
        None if placed else _frame(record, source),
        inner,
        bind_scalar(record.record("filters"), inside) if record.has("filters") else None,
        record.flag("distinct"),
        record.flag("ignore_nulls"),
    )
    return checked(call)


def _frame(record: Record, source: Relational) -> Frame | None:
    """The frame; None for the one that SQL supplies."""
    start, end = record.text("start"), record.text("end")
    exclude = _EXCLUDED[record.text("exclude_clause")]
    if (start, end, exclude) == ("UNBOUNDED_PRECEDING", "CURRENT_ROW_RANGE", ""):
        return None
    kinds = {bound.rpartition("_")[2] for bound in (start, end) if bound not in _UNBOUNDED}
    by_peers = exclude in {"GROUP", "TIES"}
    # The whole partition is one frame in ROWS and in RANGE, where peers are those of the query.
    kind = kinds.pop() if kinds else "RANGE" if by_peers else "ROWS"
    begin_offset, end_offset = (
        _offset(record, name, source, kind) for name in ("start_expr", "end_expr")
    )
    return Frame(kind, _bound(start), begin_offset, _bound(end), end_offset, exclude)


def _bound(name: str) -> str:
    if name in _UNBOUNDED:
        return name.replace("_", " ")
    return "CURRENT ROW" if name.startswith("CURRENT") else name.split("_")[1]


def _offset(record: Record, name: str, source: Relational, kind: str) -> Scalar | None:
    """The offset of a bound from the row. For RANGE DuckDB adds it to the order's value."""
    if not record.has(name):
        return None
    expression = record.record(name)
    while kind == "RANGE" and expression.text("type") == "OPERATOR_CAST":
        (expression,) = expression.records("children")
    if kind == "RANGE":
        expression = expression.records("children")[1]
    return bind_scalar(expression, row_scope(columns(source)))
