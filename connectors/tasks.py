"""Reads a task from a file: literal collections and bindings, without placeholders."""

import json
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field, JsonValue

from connectors.config import STRICT, parsed
from connectors.driver import Driver
from connectors.protocol import spec_builder
from schemas.flow_pb2 import FLOW_SINK, MaterializationSpec
from schemas.materialize_pb2 import ValidateRequest, ValidateResponse

Type = Literal["null", "boolean", "object", "array", "integer", "number", "string"]


class FieldOf(BaseModel):  # type: ignore[explicit-any] # JSON is recursive
    """A member of a collection's documents."""

    model_config = STRICT

    name: str
    types: list[Type] = Field(default=["string"], min_length=1)
    required: bool = True
    format: str = ""
    base64: bool = False
    description: str = ""


class CollectionOf(BaseModel):  # type: ignore[explicit-any] # JSON is recursive
    """A collection."""

    model_config = STRICT

    name: str
    keys: list[str] = Field(min_length=1)
    fields: list[FieldOf]

    def built(self) -> spec_builder.Collection:
        """The column in protocol terms."""
        columns = [
            spec_builder.FieldSpec(
                name=column.name,
                types=column.types,
                required=column.required,
                format=column.format,
                base64=column.base64,
                description=column.description,
            )
            for column in self.fields
        ]
        return spec_builder.Collection(name=self.name, keys=self.keys, columns=columns)


class BindingOf(BaseModel):  # type: ignore[explicit-any] # JSON is recursive
    """A collection and its resource."""

    model_config = STRICT

    collection: CollectionOf
    resource: dict[str, JsonValue]
    select: list[str] | None = None
    """The values that are kept; all if it is left out."""


class Task(BaseModel):  # type: ignore[explicit-any] # JSON is recursive
    """A task; `config` is the connector's own."""

    model_config = STRICT

    task: str
    config: dict[str, JsonValue]
    bindings: list[BindingOf]

    def request(self) -> ValidateRequest:
        """The Validate request."""
        bindings = [
            ValidateRequest.Binding(
                resource_spec_json=json.dumps(binding.resource),
                collection=binding.collection.built().spec(),
            )
            for binding in self.bindings
        ]
        return ValidateRequest(
            materialization=self.task,
            endpoint_type=FLOW_SINK,
            endpoint_spec_json=json.dumps(self.config),
            bindings=bindings,
        )

    def specification(
        self, validated: Sequence[ValidateResponse.Binding]
    ) -> MaterializationSpec:
        """The specification for Apply and Open, once Validate has named the resource paths."""
        bindings = [
            spec_builder.Bind(
                collection=binding.collection.built(),
                resource=binding.resource,
                path=list(answer.resource_path),
                delta=answer.delta_updates,
                fields=binding.select,
            )
            for binding, answer in zip(self.bindings, validated, strict=True)
        ]
        return spec_builder.materialization(self.task, self.config, bindings)


def parse(text: str) -> Task:
    """Errors: InvalidUsage, which names each property that is wrong."""
    return parsed(Task, "task", text)


def validated(driver: Driver, task: Task) -> MaterializationSpec:
    """The specification of a task. Errors: Violation, ConnectorFailed."""
    return task.specification(driver.validate(task.request()).bindings)
