"""Builds our specifications, complete as connectors of 2021 validate them.

Such a connector also validates parts that describe how Gazette shuffles and stores documents,
of which we have none; they are given values that mean nothing and pass.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from google.protobuf.duration_pb2 import Duration

from schemas.consumer_pb2 import ShardSpec
from schemas.flow_pb2 import (
    FLOW_SINK,
    CollectionSpec,
    FieldSelection,
    Inference,
    MaterializationSpec,
    Projection,
    Shuffle,
)
from schemas.journal_pb2 import NONE, JournalSpec, LabelSelector, LabelSet

UUID_POINTER = "/_meta/uuid"
DOCUMENT = "flow_document"
"""The field of the whole document."""
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    """A field of a collection: types and format."""

    name: str
    types: Sequence[str] = ("string",)
    """null, boolean, object, array, integer, number, string."""
    required: bool = True
    format: str = ""
    """The JSON Schema format of text: date-time, uuid and so on."""
    base64: bool = False
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """A collection: a field is a member of its documents' root."""

    name: str
    keys: Sequence[str]
    columns: Sequence[FieldSpec]
    document: bool = True
    """Whether the collection has a field for the whole document."""

    def spec(self) -> CollectionSpec:
        """The specification that a connector is given."""
        projections = [projection(column, self.keys) for column in self.columns]
        if self.document:
            inference = Inference(types=["object"], must_exist=True)
            projections.append(Projection(ptr="", field=DOCUMENT, inference=inference))
        return CollectionSpec(
            collection=self.name,
            schema_uri=f"slackwater://collections/{self.name}",
            schema_json=json.dumps({"type": "object", "required": list(self.keys)}),
            key_ptrs=[pointer(name) for name in self.keys],
            uuid_ptr=UUID_POINTER,
            projections=projections,
            partition_template=journal(f"collections/{self.name}"),
            ack_json_template="{}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """A collection and the resource that it is kept in; all its fields are selected."""

    collection: Collection
    resource: Mapping[str, object]
    path: Sequence[str]
    delta: bool = False
    fields: Sequence[str] | None = None
    """The values that are selected; None: all. The key and the document always are."""
    field_config: Mapping[str, str] = field(default_factory=dict)

    def selection(self) -> FieldSelection:
        """The fields in the order of the protocol."""
        names = self.fields
        if names is None:
            names = [column.name for column in self.collection.columns]
        values = sorted(set(names) - set(self.collection.keys))
        return FieldSelection(
            keys=self.collection.keys,
            values=values,
            document=DOCUMENT if self.collection.document else "",
            field_config_json=self.field_config,
        )


def materialization(
    name: str, endpoint: Mapping[str, object], bindings: Sequence[Bind]
) -> MaterializationSpec:
    """A task. `endpoint` is the configuration of the connector itself."""
    return MaterializationSpec(
        materialization=name,
        endpoint_type=FLOW_SINK,
        endpoint_spec_json=json.dumps(endpoint),
        bindings=[binding(name, bind) for bind in bindings],
        shard_template=ShardSpec(
            id=f"materialize/{name}",
            recovery_log_prefix="recovery",
            hint_prefix="/hints",
            hint_backups=2,
            max_txn_duration=Duration(seconds=1),
            labels=LabelSet(),
        ),
        recovery_log_template=journal(f"recovery/materialize/{name}"),
    )


def binding(task: str, bind: Bind) -> MaterializationSpec.Binding:
    """One binding of a task."""
    spec = bind.collection.spec()
    return MaterializationSpec.Binding(
        resource_spec_json=json.dumps(bind.resource),
        resource_path=bind.path,
        collection=spec,
        field_selection=bind.selection(),
        delta_updates=bind.delta,
        shuffle=Shuffle(
            group_name=f"materialize/{task}/{'/'.join(bind.path)}",
            source_collection=spec.collection,
            source_partitions=LabelSelector(include=LabelSet(), exclude=LabelSet()),
            source_uuid_ptr=UUID_POINTER,
            shuffle_key_ptr=spec.key_ptrs,
            uses_source_key=True,
            source_schema_uri=spec.schema_uri,
            uses_source_schema=True,
        ),
    )


def projection(column: FieldSpec, keys: Sequence[str]) -> Projection:
    """A field at the root of the documents."""
    inference = Inference(
        types=column.types, must_exist=column.required, description=column.description
    )
    if "string" in column.types:
        text = Inference.String(format=column.format, is_base64=column.base64)
        inference.string.CopyFrom(text)
    return Projection(
        ptr=pointer(column.name),
        field=column.name,
        is_primary_key=column.name in keys,
        inference=inference,
    )


def pointer(name: str) -> str:
    """The JSON pointer of a member of the root."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def journal(name: str) -> JournalSpec:
    """A journal that is not written, within the limits that a connector checks."""
    return JournalSpec(
        name=name,
        replication=1,
        labels=LabelSet(),
        fragment=JournalSpec.Fragment(
            length=_MIB, compression_codec=NONE, refresh_interval=Duration(seconds=300)
        ),
    )
