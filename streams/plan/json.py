"""Codec of dataflows as JSON text, the form of a plan on the command topic.

Each dataclass of `physical` is an object with its fields; a node also has `node`, its class.
Text is deterministic, so that equal dataflows have equal text: a fingerprint hashes it. An
unknown class or a missing field is an error, never a default: the plan may come from another
version.
"""

import json
from collections.abc import Callable
from dataclasses import asdict

from streams.errors import InvalidUsage
from streams.ids import CollectionId
from streams.plan.duckdb_plan import Record
from streams.plan.physical import (
    Aggregate,
    Arrange,
    Asof,
    Bound,
    Column,
    Constant,
    Dataflow,
    Distinct,
    EmitOnClose,
    Expression,
    Groupwise,
    Import,
    Join,
    Linear,
    Lookup,
    Loop,
    Negate,
    Node,
    Reduce,
    Rule,
    Source,
    Temporal,
    Threshold,
    TopK,
    Union,
    Unnest,
    Upsert,
)
from streams.plan.window_frames import Before, Reach, RunningExtreme, Span
from streams.trace.kernel.functions import Function


def dumps(dataflow: Dataflow) -> str:
    """The dataflow as JSON text."""
    return json.dumps(_fields(dataflow), sort_keys=True, separators=(",", ":"))


def _fields(dataflow: Dataflow) -> dict[str, object]:
    nodes = [{"node": type(node).__name__, **asdict(node)} for node in dataflow.nodes]
    for fields, node in zip(nodes, dataflow.nodes, strict=True):
        if isinstance(node, Loop):
            fields["body"] = _fields(node.body)
    return {**asdict(dataflow), "nodes": nodes}


def loads(text: str) -> Dataflow:
    """The dataflow of a JSON text.

    Errors: InvalidUsage for text that `dumps` of this version would not write.
    """
    try:
        return _dataflow(Record(json.loads(text)))
    except (
        ValueError,
        KeyError,
        AssertionError,
        TypeError,
        AttributeError,
        RecursionError,  # nested too deep
    ) as error:
        raise InvalidUsage(f"not a dataflow of this version: {error!r}") from error


def _dataflow(record: Record) -> Dataflow:
    types = record.items("types")
    return Dataflow(
        tuple(_import(part) for part in _records(record, "imports")),
        tuple(_NODES[_text(part, "node")](part) for part in _records(record, "nodes")),
        tuple(tuple(str(t) for t in row) for row in types if isinstance(row, list)),
        _integers(record, "levels"),
        _columns(record, "output"),
        tuple(_function(part) for part in _records(record, "functions")),
    )


def _text(record: Record, name: str) -> str:
    value = record.raw(name)
    assert isinstance(value, str), (name, value)
    return value


def _records(record: Record, name: str) -> tuple[Record, ...]:
    assert isinstance(record.raw(name), list), name
    return record.records(name)


def _columns(record: Record, name: str) -> tuple[Column, ...]:
    return tuple(Column(_text(c, "name"), _text(c, "type")) for c in _records(record, name))


def _integers(record: Record, name: str) -> tuple[int, ...]:
    items = record.raw(name)
    assert isinstance(items, list), (name, items)
    assert all(isinstance(item, int) for item in items), (name, items)
    return tuple(items)


def _import(record: Record) -> Import:
    return Import(CollectionId(_text(record, "collection")), _columns(record, "columns"))


def _function(record: Record) -> Function:
    return Function(
        _text(record, "name"),
        record.texts("parameters"),
        record.texts("types"),
        _text(record, "returns"),
        _text(record, "body"),
    )


def _expressions(record: Record, name: str) -> tuple[Expression, ...]:
    return tuple(_expression(expression) for expression in _records(record, name))


def _expression(record: Record) -> Expression:
    return Expression(_text(record, "sql"), _text(record, "type"), _text(record, "label"))


def _linear(record: Record) -> Node:
    return Linear(
        record.number("input"),
        _expressions(record, "predicates"),
        _expressions(record, "outputs"),
    )


def _temporal(record: Record) -> Node:
    bounds = tuple(
        Bound(_text(bound, "comparison"), _expression(bound.record("value")))
        for bound in _records(record, "bounds")
    )
    return Temporal(
        record.number("input"),
        _expressions(record, "predicates"),
        bounds,
        _expressions(record, "outputs"),
        None if record.raw("keys") is None else _integers(record, "keys"),
    )


def _emit_on_close(record: Record) -> Node:
    born = None if record.raw("born") is None else record.number("born")
    return EmitOnClose(record.number("input"), record.number("end"), born)


def _join(record: Record) -> Node:
    return Join(
        record.number("left"),
        record.number("right"),
        _integers(record, "left_keys"),
        _integers(record, "right_keys"),
        tuple(bool(item) for item in _integers(record, "null_equal")),
        _expressions(record, "residual"),
    )


def _asof(record: Record) -> Node:
    point, start, end = record.texts("sorts")
    left, right = record.texts("orders")
    return Asof(
        record.number("left"),
        record.number("right"),
        _integers(record, "left_keys"),
        _integers(record, "right_keys"),
        tuple(bool(item) for item in _integers(record, "null_equal")),
        record.number("point"),
        record.number("start"),
        record.number("end"),
        (point, start, end),
        (left, right),
        bool(record.raw("closed")),
    )


def _arrange(record: Record) -> Node:
    nulls = tuple(bool(item) for item in _integers(record, "null_equal"))
    return Arrange(record.number("input"), _integers(record, "keys"), nulls)


def _lookup(record: Record) -> Node:
    return Lookup(
        record.number("stream"),
        record.number("arranged"),
        _integers(record, "keys"),
        bool(record.raw("strict")),
    )


def _aggregate(record: Record) -> Aggregate:
    argument = None if record.raw("argument") is None else record.number("argument")
    distinct = bool(record.raw("distinct"))
    other = None if record.raw("other") is None else record.number("other")
    return Aggregate(
        _text(record, "function"),
        argument,
        _text(record, "type"),
        distinct,
        other,
        _text(record, "sql"),
        _integers(record, "reads"),
        _text(record, "share"),
    )


def _reduce(record: Record) -> Node:
    aggregates = tuple(_aggregate(part) for part in _records(record, "aggregates"))
    return Reduce(record.number("input"), _integers(record, "keys"), aggregates)


def _groupwise(record: Record) -> Node:
    condition = None if record.raw("condition") is None else record.record("condition")
    return Groupwise(
        record.number("input"),
        _integers(record, "keys"),
        _expressions(record, "outputs"),
        None if condition is None else _expression(condition),
        None if record.raw("reach") is None else _reach(record.record("reach")),
        _text(record, "why"),
    )


def _reach(record: Record) -> Reach:
    return Reach(
        _text(record, "order"),
        record.number("back"),
        record.number("ahead"),
        _text(record, "peers"),
        None if record.raw("span") is None else _span(record.record("span")),
        tuple(
            Before(_text(entry, "function"), entry.number("argument"), _text(entry, "type"))
            for entry in _records(record, "before")
        ),
        tuple(
            RunningExtreme(_text(entry, "function"), entry.number("argument"))
            for entry in _records(record, "extremes")
        ),
    )


def _span(record: Record) -> Span:
    sees, seen, needed = (_ends(record, name) for name in ("sees", "seen", "needed"))
    return Span(sees, seen, needed, _text(record, "fails"))


def _ends(record: Record, name: str) -> tuple[str, str]:
    low, high = record.texts(name)
    return low, high


def _top(record: Record) -> Node:
    return TopK(
        record.number("input"),
        _integers(record, "keys"),
        _text(record, "order"),
        record.number("offset"),
        record.number("upto"),
    )


def _loop(record: Record) -> Node:
    return Loop(
        _integers(record, "inputs"),
        _dataflow(record.record("body")),
        record.texts("names"),
        _integers(record, "values"),
        record.number("result"),
        record.number("limit"),
        bool(record.raw("fails")),
    )


_NODES: dict[str, Callable[[Record], Node]] = {
    "Source": lambda r: Source(r.number("index")),
    "Constant": lambda r: Constant(_text(r, "sql")),
    "Linear": _linear,
    "Temporal": _temporal,
    "EmitOnClose": _emit_on_close,
    "Join": _join,
    "Asof": _asof,
    "Arrange": _arrange,
    "Lookup": _lookup,
    "Reduce": _reduce,
    "Groupwise": _groupwise,
    "TopK": _top,
    "Distinct": lambda r: Distinct(r.number("input")),
    "Union": lambda r: Union(_integers(r, "inputs")),
    "Threshold": lambda r: Threshold(
        _integers(r, "inputs"), _integers(r, "keys"), Rule(_text(r, "rule"))
    ),
    "Unnest": lambda r: Unnest(r.number("input"), _integers(r, "lists")),
    "Negate": lambda r: Negate(r.number("input")),
    "Loop": _loop,
    "Upsert": lambda r: Upsert(
        r.number("input"), _integers(r, "keys"), dated=bool(r.raw("dated"))
    ),
}
