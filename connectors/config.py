"""Configurations: validated strictly, and described by a JSON Schema for forms.

A property has a title, a sentence and its place in a form; what is secret is marked.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
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
    """The errors in a configuration, without values, since some are secrets."""
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'all'}: {problem['msg']}"
        for problem in error.errors()
    )


def form(order: int, *, secret: bool = False, mark: str = "") -> dict[str, JsonValue]:
    """Form hints of a property. `mark` becomes the extension `x-...`, set to true."""
    hints: dict[str, JsonValue] = {"order": order}
    if secret:
        hints["secret"] = True
    if mark:
        hints[mark] = True
    return hints


def schema_text(model: type[BaseModel]) -> str:
    """The JSON Schema. Its root takes more properties: who encrypts it may add some."""
    schema: Mapping[str, object] = model.model_json_schema()
    root = {name: value for name, value in schema.items() if name != "additionalProperties"}
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **root})


REFERENCES = ("env:", "file:")


def secret(environment: Mapping[str, str], text: str) -> str:
    """A secret, or the one that it refers to. Errors: InvalidUsage for an unset reference."""
    kind, _, place = text.partition(":")
    if kind == "env":
        if place not in environment:
            raise InvalidUsage(f"expected the environment variable {place}, actual none")
        return environment[place]
    if kind == "file":
        try:
            return Path(place).read_text().strip()
        except UnicodeDecodeError:
            raise InvalidUsage(
                f"expected a secret as UTF-8 text in {place}, actual other bytes"
            ) from None
        except (OSError, ValueError) as error:
            raise InvalidUsage(f"expected a secret in {place}: {error}") from error
    return text


def resolved(environment: Mapping[str, str], value: JsonValue) -> JsonValue:
    """A configuration with what its references refer to. Errors: as `secret`."""
    match value:
        case dict():
            return {name: resolved(environment, member) for name, member in value.items()}
        case list():
            return [resolved(environment, element) for element in value]
        case str():
            return secret(environment, value)
        case _:
            return value


def variables(value: JsonValue) -> Iterator[str]:
    """The environment variables that a configuration refers to."""
    match value:
        case dict():
            for member in value.values():
                yield from variables(member)
        case list():
            for member in value:
                yield from variables(member)
        case str() if value.startswith("env:"):
            yield value.removeprefix("env:")
        case _:
            pass
