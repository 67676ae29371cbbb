"""Configurations: strict when they are read, described by a JSON Schema for forms.

A property has a title, a sentence and its place in a form; what is secret is marked.
"""

import json
from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from streams.errors import InvalidUsage

STRICT = ConfigDict(extra="forbid", strict=True)

Model = TypeVar("Model", bound=BaseModel)


def parsed(model: type[Model], what: str, text: str) -> Model:
    """Errors: InvalidUsage, which names each property that is wrong."""
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise InvalidUsage(f"{what}: {problems(error)}") from error


def problems(error: ValidationError) -> str:
    """What is wrong with a configuration; values are not shown, since some are secrets."""
    return "; ".join(
        f"{'.'.join(map(str, each['loc'])) or 'all'}: {each['msg']}" for each in error.errors()
    )


def form(order: int, *, secret: bool = False, mark: str = "") -> dict[str, JsonValue]:
    """What a form is told of a property, beside its type. `mark` is true, as `x-...`."""
    told: dict[str, JsonValue] = {"order": order}
    if secret:
        told["secret"] = True
    if mark:
        told[mark] = True
    return told


def schema_text(model: type[BaseModel]) -> str:
    """The JSON Schema. Its root takes more properties: who encrypts it may add some."""
    schema: Mapping[str, object] = model.model_json_schema()
    root = {name: value for name, value in schema.items() if name != "additionalProperties"}
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **root})
