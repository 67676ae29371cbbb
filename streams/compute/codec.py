"""Codec of commands and responses: one Avro record each, in single-object encoding.

The schemas are `schemas/avro/compute_*.avsc`; one schema per kind of message, so that the
fingerprint before the record identifies the kind.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, assert_never

from schemas import codec
from streams.compute import activity_codec, peek_codec, subscribe_codec
from streams.compute.activity import DataflowActivity, ReplicaActivity, ReplicaMemory
from streams.compute.description import (
    DataflowDescription,
    ImportDescription,
    IngestionDescription,
    Kept,
    SinkDescription,
    Start,
    TopicStart,
)
from streams.compute.parameters import ParameterValues
from streams.compute.peeks import CancelPeek, CopyFiles, Peek, PeekResponse
from streams.compute.protocol import (
    Alive,
    AllowCompaction,
    AllowWrites,
    Command,
    CommandMessage,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Frontiers,
    Hydration,
    InitializationComplete,
    Reconciled,
    Response,
    ResponseMessage,
    Schedule,
    Status,
    UpdateConfiguration,
)
from streams.compute.subscribes import (
    AcknowledgeSubscribe,
    CancelSubscribe,
    Subscribe,
    SubscribeResponse,
)
from streams.errors import Corrupt
from streams.ids import CapabilityId, CollectionId, Timestamp, Topic
from streams.plan.metadata import ErrorLimit, Included, Located, Watermark
from streams.plan.physical import Column
from streams.progress import Antichain

MOST_BUCKETS = 4096
"""Maximum of buckets, more than any replica has tasks; each costs memory per micro-batch."""

Record = dict[str, Any]  # type: ignore[explicit-any]  # Avro's generic records


def encode_command(message: CommandMessage) -> bytes:
    """Encode a command."""
    name, fields = _command_fields(message.command)
    return codec.encode(name, {"nonce": message.nonce, "sequence": message.sequence} | fields)


def decode_command(value: bytes) -> CommandMessage:
    """Decode a command. Errors: Corrupt if it is none."""
    name, record = codec.decode(value)
    command = _command(name, record)  # first: other records have no nonce
    return CommandMessage(record["nonce"], record["sequence"], command)


def encode_response(message: ResponseMessage) -> bytes:
    """Encode a response."""
    name, fields = _response_fields(message.response)
    head = {
        "nonce": message.nonce,
        "replica": message.replica,
        "sequence": message.sequence,
    }
    return codec.encode(name, head | fields)


def decode_response(value: bytes) -> ResponseMessage:
    """Decode a response. Errors: Corrupt if it is none."""
    name, record = codec.decode(value)
    response = _response(name, record)  # first: other records have no nonce
    return ResponseMessage(record["nonce"], record["replica"], record["sequence"], response)


def _command_fields(  # noqa: C901, PLR0911, PLR0912  one arm per kind
    command: Command,
) -> tuple[str, Record]:
    match command:
        case CreateTimely(epoch=epoch, configuration=values):
            fields: Record = {"epoch": epoch, "configuration": parameter_records(values)}
            return "compute_create_timely", fields
        case UpdateConfiguration(values):
            fields = {"configuration": parameter_records(values)}
            return "compute_update_configuration", fields
        case CreateInstance(namespace, buckets):
            return "compute_create_instance", {"namespace": namespace, "buckets": buckets}
        case CreateDataflow(description):
            return "compute_create_dataflow", _description_fields(description)
        case Schedule(id):
            return "compute_schedule", {"id": id}
        case AllowCompaction(id, frontier):
            fields = {"id": id, "frontier": list(frontier.elements)}
            return "compute_allow_compaction", fields
        case InitializationComplete():
            return "compute_initialization_complete", {}
        case AllowWrites():
            return "compute_allow_writes", {}
        case Peek(files=CopyFiles() as files):
            return peek_codec.COPY, peek_codec.copy_fields(command, files)
        case Peek():
            return peek_codec.PEEK, peek_codec.peek_fields(command)
        case CancelPeek(uuid):
            return peek_codec.CANCEL, {"uuid": uuid}
        case Subscribe() | AcknowledgeSubscribe() | CancelSubscribe():
            return subscribe_codec.command_fields(command)
        case _:
            assert_never(command)


def _command(  # noqa: C901, PLR0911, PLR0912  one arm per kind
    name: str, record: Record
) -> Command:
    match name:
        case "compute_create_timely":
            values = parameter_values(record["configuration"])
            return CreateTimely(record["nonce"], record["epoch"], values)
        case "compute_update_configuration":
            return UpdateConfiguration(parameter_values(record["configuration"]))
        case "compute_create_instance":
            return _instance(record)
        case "compute_create_dataflow":
            return CreateDataflow(_description(record))
        case "compute_schedule":
            return Schedule(CollectionId(record["id"]))
        case "compute_allow_compaction":
            return AllowCompaction(CollectionId(record["id"]), _antichain(record["frontier"]))
        case "compute_initialization_complete":
            return InitializationComplete()
        case "compute_allow_writes":
            return AllowWrites()
        case peek_codec.COPY:
            return peek_codec.copy_of(record)
        case peek_codec.PEEK:
            return peek_codec.peek_of(record)
        case peek_codec.CANCEL:
            return peek_codec.cancel_of(record)
        case subscribe_codec.SUBSCRIBE:
            return subscribe_codec.subscribe_of(record)
        case subscribe_codec.ACKNOWLEDGE:
            return subscribe_codec.acknowledge_of(record)
        case subscribe_codec.CANCEL:
            return subscribe_codec.cancel_of(record)
        case _:
            raise Corrupt(f"expected a compute command, actual a record of schema {name}")


def parameter_records(values: ParameterValues) -> list[Record]:
    """Return inner records of values, in the order of their names."""
    return [{"name": name, "value": value} for name, value in sorted(values.items())]


def parameter_values(parameters: list[Record]) -> ParameterValues:
    """Return the values of inner records; the session judges them. Of two, the last counts."""
    return {parameter["name"]: parameter["value"] for parameter in parameters}


def _instance(record: Record) -> CreateInstance:
    buckets = record["buckets"]
    if not 1 <= buckets <= MOST_BUCKETS:
        raise Corrupt(f"buckets: expected 1 to {MOST_BUCKETS}, actual {buckets}")
    return CreateInstance(record["namespace"], buckets)


def _response_fields(  # noqa: C901, PLR0911, PLR0912  one arm per kind
    response: Response,
) -> tuple[str, Record]:
    match response:
        case Reconciled(retained, created, dropped):
            fields: Record = {"kept": retained, "created": created, "dropped": dropped}
            return "compute_reconciled", fields
        case Frontiers(id, write, output, input_):
            fields = {
                "id": id,
                "write": _elements(write),
                "output": _elements(output),
                "input": _elements(input_),
            }
            return "compute_frontiers", fields
        case Status(id, state, message, progress):
            fields = {"id": id, "state": state, "message": message, "progress": progress}
            return "compute_status", fields
        case Hydration(id, done, total, seconds_left):
            fields = {"id": id, "done": done, "total": total, "seconds_left": seconds_left}
            return "compute_hydration", fields
        case Alive():
            return "compute_alive", {}
        case PeekResponse(is_copy=True):
            return peek_codec.COPY_RESPONSE, peek_codec.copy_response_fields(response)
        case PeekResponse():
            return peek_codec.RESPONSE, peek_codec.response_fields(response)
        case SubscribeResponse():
            return subscribe_codec.response_fields(response)
        case DataflowActivity():
            return activity_codec.DATAFLOW, activity_codec.dataflow_fields(response)
        case ReplicaActivity():
            return activity_codec.REPLICA, activity_codec.replica_fields(response)
        case ReplicaMemory():
            return activity_codec.MEMORY, activity_codec.memory_fields(response)
        case _:
            assert_never(response)


def _response(  # noqa: C901, PLR0911, PLR0912  one arm per kind
    name: str, record: Record
) -> Response:
    match name:
        case "compute_reconciled":
            return Reconciled(record["kept"], record["created"], record["dropped"])
        case "compute_frontiers":
            return _frontiers(record)
        case "compute_status":
            return Status(
                CollectionId(record["id"]),
                record["state"],
                record["message"],
                record["progress"],
            )
        case "compute_hydration":
            return Hydration(
                CollectionId(record["id"]),
                record["done"],
                record["total"],
                record["seconds_left"],
            )
        case "compute_alive":
            return Alive()
        case peek_codec.COPY_RESPONSE:
            return peek_codec.copy_response_of(record)
        case peek_codec.RESPONSE:
            return peek_codec.response_of(record)
        case subscribe_codec.RESPONSE:
            return subscribe_codec.response_of(record)
        case subscribe_codec.INTERRUPTED:
            return subscribe_codec.interrupted_of(record)
        case activity_codec.DATAFLOW:
            return activity_codec.dataflow_of(record)
        case activity_codec.REPLICA:
            return activity_codec.replica_of(record)
        case activity_codec.MEMORY:
            return activity_codec.memory_of(record)
        case _:
            raise Corrupt(f"expected a compute response, actual a record of schema {name}")


def _description_fields(description: DataflowDescription) -> Record:
    source, sink = description.source, description.sink
    return {
        "export": description.export,
        "kind": description.kind,
        "name": description.name,
        "group": description.group,
        "plan": description.plan,
        "columns": [
            {"name": column.name, "type": column.type} for column in description.columns
        ],
        "imports": [
            {"collection": imported.collection, "group": imported.group, "hold": imported.hold}
            for imported in description.imports
        ],
        "as_of": description.as_of,
        "capability": description.capability,
        "source": None if source is None else ingestion_fields(source),
        "sink": None if sink is None else sink_fields(sink),
        "former": [_topic_start_fields(former) for former in description.former],
    }


def _topic_start_fields(of: TopicStart) -> Record:
    return {
        "topic": of.topic,
        "topic_id": of.topic_id,
        "start": start_fields(of.start),
    }


def ingestion_fields(source: IngestionDescription) -> Record:
    """Return the fields of an ingestion inside another record."""
    return {
        "topic": source.topic,
        "topic_id": source.topic_id,
        "format": source.format,
        "envelope": source.envelope,
        "keys": list(source.keys),
        "key_format": source.key_format,
        "start": start_fields(source.start),
        "included": [
            {"part": included.part, "column": included.column} for included in source.included
        ],
        "located": [
            {"column": located.column, "path": list(located.path)} for located in source.located
        ],
        "on_error": source.on_error,
        "dead_letters": source.dead_letters,
        "watermark": None if source.watermark is None else asdict(source.watermark),
        "error_limit": limit_fields(source.error_limit),
        "revision": source.revision,
    }


def limit_fields(limit: ErrorLimit | None) -> Record | None:
    """Return the fields of an ERROR LIMIT inside another record."""
    return None if limit is None else asdict(limit)


def error_limit(record: Record | None) -> ErrorLimit | None:
    """Return the ERROR LIMIT of an inner record."""
    return None if record is None else ErrorLimit(**record)


def start_fields(start: Start) -> Record:
    """Return the fields of where a source begins inside another record."""
    offsets = [
        {"partition": partition, "offset": offset} for partition, offset in start.offsets
    ]
    kept = start.kept
    return {
        "generation": start.generation,
        "offsets": offsets,
        "kept": None if kept is None else _kept_fields(kept),
    }


def _kept_fields(kept: Kept) -> Record:
    return {
        "since": kept.since,
        "returns": [
            {"partition": partition, "generation": generation, "offset": offset}
            for partition, generation, offset in kept.returns
        ],
        "gaps": [
            {"partition": partition, "first": first, "end": end}
            for partition, first, end in kept.gaps
        ],
    }


def sink_fields(sink: SinkDescription) -> Record:
    """Return the fields of a sink inside another record."""
    return {"topic": sink.topic, "keys": list(sink.keys), "partitions": sink.partitions}


def _description(record: Record) -> DataflowDescription:
    source, sink, kind = record["source"], record["sink"], record["kind"]
    ends = {
        "view": (False, False),
        "ingestion": (True, False),
        "rebase": (False, False),
        "sink": (False, True),
        "index": (False, False),
    }
    is_of_one = kind not in {"rebase", "index"} or len(record["imports"]) == 1
    if ends.get(kind) != (source is not None, sink is not None) or not is_of_one:
        raise Corrupt(
            f"dataflow {record['export']}: expected a view, an ingestion with its source, a "
            f"rebase or an index of one import or a sink with its topic, actual kind {kind!r}"
        )
    return DataflowDescription(
        export=CollectionId(record["export"]),
        kind=kind,
        name=record["name"],
        group=record["group"],
        plan=record["plan"],
        columns=tuple(Column(column["name"], column["type"]) for column in record["columns"]),
        imports=tuple(_import(imported) for imported in record["imports"]),
        as_of=Timestamp(record["as_of"]),
        capability=CapabilityId(record["capability"]),
        source=None if source is None else ingestion(source),
        sink=None if sink is None else sink_description(sink),
        former=tuple(_topic_start(former) for former in record["former"]),
    )


def _topic_start(record: Record) -> TopicStart:
    return TopicStart(Topic(record["topic"]), record["topic_id"], start(record["start"]))


def _import(record: Mapping[str, str]) -> ImportDescription:
    return ImportDescription(
        CollectionId(record["collection"]), record["group"], CapabilityId(record["hold"])
    )


def sink_description(record: Record) -> SinkDescription:
    """Return the sink of an inner record; older forms have no number of partitions.

    Errors: Corrupt if that is none.
    """
    partitions = record.get("partitions", 1)
    if partitions < 1:
        raise Corrupt(f"sink to {record['topic']}: expected partitions, actual {partitions}")
    return SinkDescription(Topic(record["topic"]), tuple(record["keys"]), partitions)


def ingestion(record: Record) -> IngestionDescription:
    """Return the ingestion of an inner record."""
    return IngestionDescription(
        topic=Topic(record["topic"]),
        topic_id=record["topic_id"],
        format=record["format"],
        envelope=record["envelope"],
        keys=tuple(record["keys"]),
        key_format=record["key_format"],
        start=start(record["start"]),
        included=tuple(
            Included(entry["part"], entry["column"]) for entry in record["included"]
        ),
        located=tuple(
            Located(entry["column"], tuple(entry["path"])) for entry in record["located"]
        ),
        on_error=record["on_error"],
        dead_letters=_collection(record["dead_letters"]),
        watermark=None if record["watermark"] is None else Watermark(**record["watermark"]),
        error_limit=error_limit(record["error_limit"]),
        revision=record["revision"],
    )


def _collection(text: str | None) -> CollectionId | None:
    return None if text is None else CollectionId(text)


def start(record: Record) -> Start:
    """Return where a source begins, of an inner record."""
    offsets = tuple((offset["partition"], offset["offset"]) for offset in record["offsets"])
    kept = record["kept"]
    return Start(record["generation"], offsets, None if kept is None else _kept(kept))


def _kept(record: Record) -> Kept:
    returns = tuple((r["partition"], r["generation"], r["offset"]) for r in record["returns"])
    gaps = tuple((gap["partition"], gap["first"], gap["end"]) for gap in record["gaps"])
    return Kept(record["since"], returns, gaps)


def _elements(frontier: Antichain | None) -> list[int] | None:
    return None if frontier is None else list(frontier.elements)


def _frontiers(record: Record) -> Frontiers:
    write, output, input_ = (
        None if record[kind] is None else _antichain(record[kind])
        for kind in ("write", "output", "input")
    )
    return Frontiers(CollectionId(record["id"]), write, output, input_)


def _antichain(elements: list[int]) -> Antichain:
    if len(elements) > 1:
        raise Corrupt(f"frontier: expected one time at most, actual {len(elements)}")
    return Antichain(tuple(Timestamp(element) for element in elements))
