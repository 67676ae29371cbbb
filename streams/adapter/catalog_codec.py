"""Codec of catalog events: `schemas/avro/catalog_*.avsc`, in single-object encoding."""

from dataclasses import replace
from typing import assert_never

from schemas import codec
from schemas.codec import Record
from streams.adapter.catalog import (
    Birth,
    Body,
    CatalogEvent,
    Create,
    Define,
    Drop,
    Forget,
    Item,
    Open,
    Resume,
    Retain,
    Undefine,
)
from streams.adapter.catalog_bad_messages import BadMessages
from streams.adapter.catalog_cluster_codec import cluster_event, cluster_fields
from streams.adapter.catalog_materializations import (
    Materialization,
    Materialize,
    Unbind,
    Unmaterialize,
)
from streams.compute.codec import (
    error_limit,
    ingestion,
    ingestion_fields,
    limit_fields,
    sink_description,
    sink_fields,
    start,
    start_fields,
)
from streams.errors import Corrupt
from streams.ids import DEFAULT_CLUSTER, CollectionId, EventId, Timestamp, Topic
from streams.plan.physical import Column
from streams.storage.policy import LagBehindUpper, RetainHistory, Retention
from streams.trace.kernel.functions import Function


def encode(event: CatalogEvent) -> bytes:
    """Encode an event."""
    name, fields = _fields(event.body)
    head = {"event": event.id, "epoch": event.epoch, "expected": event.expected}
    return codec.encode(name, head | fields)


def decode(value: bytes) -> CatalogEvent:
    """Decode an event. Errors: Corrupt if the record is none."""
    name, record = codec.decode(value)
    body = _body(name, record)
    return CatalogEvent(EventId(record["event"]), record["epoch"], record["expected"], body)


def _fields(  # noqa: C901, PLR0911, PLR0912 - one case an event
    body: Body,
) -> tuple[str, Record]:
    match body:
        case Open():
            return "catalog_open", {}
        case Create(item) if item.shared_group or (item.sink and item.sink.partitions > 1):
            shared = {"cluster": item.cluster, "shared_group": item.shared_group}
            return "catalog_create_3", {**_item_fields(item), **shared}
        case Create(item) if item.cluster != DEFAULT_CLUSTER:
            return "catalog_create_2", {**_item_fields(item), "cluster": item.cluster}
        case Create(item):
            return "catalog_create", _item_fields(item)
        case Birth(key, as_of):
            return "catalog_birth", {"id": key, "as_of": as_of}
        case Retain(key, policy):
            return "catalog_retain", {"id": key, "policy": _policy_fields(policy)}
        case Resume(key, topic, topic_id, start):
            return "catalog_resume", {
                "id": key,
                "topic": topic,
                "topic_id": topic_id,
                "start": start_fields(start),
            }
        case BadMessages(key, on_error, limit, revision):
            return "catalog_bad_messages", {
                "id": key,
                "on_error": on_error,
                "error_limit": limit_fields(limit),
                "revision": revision,
            }
        case Drop(key):
            return "catalog_drop", {"id": key}
        case Forget(key):
            return "catalog_forget", {"id": key}
        case Define(function):
            return "catalog_define", _function_fields(function)
        case Undefine(name):
            return "catalog_undefine", {"name": name}
        case Materialize(materialization):
            return "catalog_materialize", _materialization_fields(materialization)
        case Unmaterialize(id_):
            return "catalog_unmaterialize", {"id": id_}
        case Unbind(id_):
            return "catalog_unbind", {"id": id_}
        case _:  # events of clusters, by their type
            return cluster_fields(body)


def _body(  # noqa: C901, PLR0911, PLR0912 - one case an event
    name: str, record: Record
) -> Body:
    match name:
        case "catalog_open":
            return Open()
        case "catalog_create":
            return Create(_item(record))
        case "catalog_create_2":
            return Create(replace(_item(record), cluster=record["cluster"]))
        case "catalog_create_3":
            cluster, group = record["cluster"], record["shared_group"]
            return Create(replace(_item(record), cluster=cluster, shared_group=group))
        case "catalog_birth":
            return Birth(CollectionId(record["id"]), Timestamp(record["as_of"]))
        case "catalog_retain":
            return Retain(CollectionId(record["id"]), _policy(record["policy"]))
        case "catalog_resume":
            key, topic = CollectionId(record["id"]), Topic(record["topic"])
            return Resume(key, topic, record["topic_id"], start(record["start"]))
        case "catalog_bad_messages":
            key, limit = CollectionId(record["id"]), error_limit(record["error_limit"])
            return BadMessages(key, record["on_error"], limit, record["revision"])
        case "catalog_drop":
            return Drop(CollectionId(record["id"]))
        case "catalog_forget":
            return Forget(CollectionId(record["id"]))
        case "catalog_define":
            return Define(_function(record))
        case "catalog_undefine":
            return Undefine(record["name"])
        case "catalog_materialize":
            return Materialize(_materialization(record))
        case "catalog_unmaterialize":
            return Unmaterialize(record["id"])
        case "catalog_unbind":
            return Unbind(record["id"])
        case _:
            event = cluster_event(name, record)
            if event is None:
                raise Corrupt(f"expected a catalog event, actual a record of schema {name}")
            return event


def _item_fields(item: Item) -> Record:
    return {
        "id": item.id,
        "kind": item.kind,
        "name": item.name,
        "statement": item.statement,
        "query": item.query,
        "columns": [{"name": column.name, "type": column.type} for column in item.columns],
        "inputs": list(item.inputs),
        "source": None if item.source is None else ingestion_fields(item.source),
        "sink": None if item.sink is None else sink_fields(item.sink),
        "policy": _policy_fields(item.policy),
        "functions": list(item.functions),
        "keys": list(item.keys),
    }


def _item(record: Record) -> Item:
    source, sink = record["source"], record["sink"]
    return Item(
        id=CollectionId(record["id"]),
        kind=record["kind"],
        name=record["name"],
        statement=record["statement"],
        query=record["query"],
        columns=tuple(Column(column["name"], column["type"]) for column in record["columns"]),
        inputs=tuple(CollectionId(input_) for input_ in record["inputs"]),
        source=None if source is None else ingestion(source),
        sink=None if sink is None else sink_description(sink),
        policy=_policy(record["policy"]),
        functions=tuple(record["functions"]),
        keys=tuple(record["keys"]),
    )


def _function_fields(function: Function) -> Record:
    pairs = zip(function.parameters, function.types, strict=True)
    return {
        "name": function.name,
        "parameters": [{"name": name, "type": kind} for name, kind in pairs],
        "returns": function.returns,
        "body": function.body,
    }


def _function(record: Record) -> Function:
    parameters = record["parameters"]
    return Function(
        record["name"],
        tuple(parameter["name"] for parameter in parameters),
        tuple(parameter["type"] for parameter in parameters),
        record["returns"],
        record["body"],
    )


def _materialization_fields(materialization: Materialization) -> Record:
    return {
        "id": materialization.id,
        "name": materialization.name,
        "statement": materialization.statement,
        "task": materialization.task,
        "inputs": list(materialization.inputs),
        "unbound": list(materialization.unbound),
        "paused": materialization.is_paused,
    }


def _materialization(record: Record) -> Materialization:
    return Materialization(
        id=record["id"],
        name=record["name"],
        statement=record["statement"],
        task=record["task"],
        inputs=tuple(CollectionId(input_) for input_ in record["inputs"]),
        unbound=tuple(CollectionId(collection) for collection in record["unbound"]),
        is_paused=record["paused"],
    )


def _policy_fields(policy: Retention | None) -> Record | None:
    match policy:
        case None:
            return None
        case LagBehindUpper(lag_ms):
            return {"kind": "LAG", "ms": lag_ms}
        case RetainHistory(duration_ms):
            return {"kind": "HISTORY", "ms": duration_ms}
        case _:
            assert_never(policy)


def _policy(record: Record | None) -> Retention | None:
    if record is None:
        return None
    return (LagBehindUpper if record["kind"] == "LAG" else RetainHistory)(record["ms"])
