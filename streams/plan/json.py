"""Dataflows as JSON text, and back: how a plan travels on the command topic.

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
from streams.plan.physical import (
    Aggregate,
    Column,
    Constant,
    Dataflow,
    Distinct,
    Expression,
    Import,
    Join,
    Linear,
    Node,
    Reduce,
    Source,
    Union,
    Upsert,
)
from streams.plan.record import Record


def dumps(dataflow: Dataflow) -> str:
    """The dataflow as JSON text."""
    fields = asdict(dataflow)
    kinds = [type(node).__name__ for node in dataflow.nodes]
    fields["nodes"] = [
        {"node": kind, **node} for kind, node in zip(kinds, fields["nodes"], strict=True)
    ]
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def loads(text: str) -> Dataflow:
    """The dataflow of a JSON text.

    Errors: InvalidUsage for text that `dumps` of this version would not write.
    """
    try:
        return _dataflow(Record(json.loads(text)))
    except (ValueError, KeyError, AssertionError, TypeError, AttributeError) as error:
        raise InvalidUsage(f"not a dataflow of this version: {error!r}") from error


def _dataflow(record: Record) -> Dataflow:
    types = record.items("types")
    return Dataflow(
        tuple(_import(part) for part in record.records("imports")),
        tuple(_NODES[part.text("node")](part) for part in record.records("nodes")),
        tuple(tuple(str(t) for t in row) for row in types if isinstance(row, list)),
        _integers(record, "levels"),
        _columns(record, "output"),
    )


def _columns(record: Record, name: str) -> tuple[Column, ...]:
    return tuple(Column(c.text("name"), c.text("type")) for c in record.records(name))


def _integers(record: Record, name: str) -> tuple[int, ...]:
    items = record.raw(name)
    assert isinstance(items, list), (name, items)
    assert all(isinstance(item, int) for item in items), (name, items)
    return tuple(items)


def _import(record: Record) -> Import:
    return Import(CollectionId(record.text("collection")), _columns(record, "columns"))


def _expressions(record: Record, name: str) -> tuple[Expression, ...]:
    return tuple(
        Expression(e.text("sql"), e.text("type"), e.text("label")) for e in record.records(name)
    )


def _linear(record: Record) -> Node:
    return Linear(
        record.number("input"),
        _expressions(record, "predicates"),
        _expressions(record, "outputs"),
    )


def _join(record: Record) -> Node:
    return Join(
        record.number("left"),
        record.number("right"),
        _integers(record, "left_keys"),
        _integers(record, "right_keys"),
        tuple(bool(item) for item in record.items("null_equal")),
    )


def _aggregate(record: Record) -> Aggregate:
    argument = record.number("argument") if record.has("argument") else None
    return Aggregate(
        record.text("function"), argument, record.text("type"), record.flag("distinct")
    )


def _reduce(record: Record) -> Node:
    aggregates = tuple(_aggregate(part) for part in record.records("aggregates"))
    return Reduce(record.number("input"), _integers(record, "keys"), aggregates)


_NODES: dict[str, Callable[[Record], Node]] = {
    "Source": lambda r: Source(r.number("index")),
    "Constant": lambda r: Constant(r.text("sql")),
    "Linear": _linear,
    "Join": _join,
    "Reduce": _reduce,
    "Distinct": lambda r: Distinct(r.number("input")),
    "Union": lambda r: Union(_integers(r, "inputs")),
    "Upsert": lambda r: Upsert(r.number("input"), _integers(r, "keys")),
}
