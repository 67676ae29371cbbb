"""Validates a configuration against its JSON Schema before anything is contacted.

The connector judges once more, and finally: this knows the words of JSON Schema that
configurations use (types, required properties, constants, bounds, patterns), and passes over
the others. No value is shown: it may be a secret.

Source: JSON Schema 2020-12, core and validation vocabularies.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping

from pydantic import JsonValue

Schema = Mapping[str, JsonValue]
Json = dict[str, JsonValue]

KINDS: Mapping[str, Callable[[JsonValue], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "null": lambda value: value is None,
}
NAMES: Mapping[type, str] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    dict: "an object",
    list: "a list",
    type(None): "null",
}


def refusals(root: Schema, value: JsonValue, what: str, *, is_closed: bool) -> Iterator[str]:
    """The violations of a configuration. If `is_closed`, other properties are refused."""
    yield from _refused(root, root, value, what, is_closed=is_closed)


def _refused(
    root: Schema, schema: Schema, value: JsonValue, what: str, *, is_closed: bool
) -> Iterator[str]:
    schema = _meant(root, schema)
    options = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(options, list):
        by_option = [
            list(_refused(root, option, value, what, is_closed=is_closed))
            for option in options
            if isinstance(option, dict)
        ]
        if by_option and all(by_option):
            yield min(by_option, key=len)[0]
        return
    kinds = schema.get("type")
    wanted = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind in KINDS]
    if wanted and not any(KINDS[str(kind)](value) for kind in wanted):
        names = " or ".join(map(str, wanted))
        yield f"{what}: expected {names}, found {NAMES[type(value)]}"
        return
    yield from _bounded(schema, value, what)
    if isinstance(value, dict):
        is_closed = is_closed or schema.get("additionalProperties") is False
        yield from _members(root, schema, value, what, is_closed=is_closed)
    items = schema.get("items")
    if isinstance(value, list) and isinstance(items, dict):
        for place, element in enumerate(value):
            yield from _refused(root, items, element, f"{what}[{place}]", is_closed=False)


def _meant(root: Schema, schema: Schema) -> Schema:
    """Resolve a reference within the schema."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return schema
    target: JsonValue = dict(root)
    for name in reference.removeprefix("#/").split("/"):
        target = target.get(name, {}) if isinstance(target, dict) else {}
    return target if isinstance(target, dict) else {}


def _members(
    root: Schema, schema: Schema, value: Mapping[str, JsonValue], what: str, *, is_closed: bool
) -> Iterator[str]:
    properties, required = schema.get("properties"), schema.get("required")
    properties = properties if isinstance(properties, dict) else {}
    for name, property_ in value.items():
        member = properties.get(name)
        if isinstance(member, dict):
            yield from _refused(root, member, property_, f"{what}.{name}", is_closed=False)
        elif is_closed and name not in properties:
            yield f"{what}: option {name} is not known: {_instead(name, properties)}"
    for option in required if isinstance(required, list) else []:
        if option not in value:
            yield f"{what}: option {option} is missing"


def _instead(name: str, properties: Mapping[str, JsonValue]) -> str:
    close = difflib.get_close_matches(name, properties, n=1)
    expected = f"expected {', '.join(properties) or 'none'}"
    return f"did you mean {close[0]}? {expected}" if close else expected


def _bounded(schema: Schema, value: JsonValue, what: str) -> Iterator[str]:
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(choices, list) and value not in choices:
        yield f"{what}: expected one of {', '.join(map(str, choices))}"
    if isinstance(value, str):
        shortest, pattern = schema.get("minLength"), schema.get("pattern")
        if isinstance(shortest, int) and len(value) < shortest:
            yield f"{what}: expected at least {shortest} characters"
        if isinstance(pattern, str) and re.search(pattern, value) is None:
            yield f"{what}: expected what matches {pattern}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        least, most = schema.get("minimum"), schema.get("maximum")
        if isinstance(least, int | float) and value < least:
            yield f"{what}: expected at least {least}"
        if isinstance(most, int | float) and value > most:
            yield f"{what}: expected at most {most}"


def marked(schema: Schema, mark: str) -> tuple[str, JsonValue] | None:
    """The property with a mark, as `x-delta-updates`, and its default; None without one."""
    properties = schema.get("properties")
    for name, member in properties.items() if isinstance(properties, dict) else ():
        if isinstance(member, dict) and member.get(mark) is True:
            return name, member.get("default")
    return None
