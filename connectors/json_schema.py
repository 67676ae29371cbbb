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

from connectors.config import REFERENCES
from connectors.protocol.json_pointers import at

Schema = dict[str, JsonValue]
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
    yield from _refused(root, root, value, what, {}, is_closed=is_closed)


def _refused(
    root: Schema,
    schema: Schema,
    value: JsonValue,
    what: str,
    judged: dict[int, list[str]],
    *,
    is_closed: bool,
) -> list[str]:
    """`judged`: the violations of this value against each schema that was asked already.

    A schema that leads to itself adds nothing to what it says.
    """
    schema = _meant(root, schema)
    if id(schema) not in judged:
        judged[id(schema)] = []
        listed = _listed(root, schema, value, what, judged, is_closed=is_closed)
        judged[id(schema)] = list(listed)
    return judged[id(schema)]


def _listed(
    root: Schema,
    schema: Schema,
    value: JsonValue,
    what: str,
    judged: dict[int, list[str]],
    *,
    is_closed: bool,
) -> Iterator[str]:
    options = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(options, list):
        by_option = [
            _refused(root, option, value, what, judged, is_closed=is_closed)
            for option in options
            if isinstance(option, dict)
        ]
        if by_option and all(by_option):
            yield min(by_option, key=len)[0]
        return
    kinds = schema.get("type")
    named = kinds if isinstance(kinds, list) else [kinds]
    wanted = [kind for kind in named if isinstance(kind, str) and kind in KINDS]
    if wanted and not any(KINDS[kind](value) for kind in wanted):
        yield f"{what}: expected {' or '.join(wanted)}, actual {NAMES[type(value)]}"
        return
    yield from _bounded(schema, value, what)
    if isinstance(value, dict):
        is_closed = is_closed or schema.get("additionalProperties") is False
        yield from _members(root, schema, value, what, is_closed=is_closed)
    items = schema.get("items")
    if isinstance(value, list) and isinstance(items, dict):
        for place, element in enumerate(value):
            yield from _refused(root, items, element, f"{what}[{place}]", {}, is_closed=False)


def _meant(root: Schema, schema: Schema) -> Schema:
    """Resolve references within the schema; one that leads nowhere says nothing."""
    passed = set[str]()
    while isinstance(reference := schema.get("$ref"), str):
        if reference != "#" and not reference.startswith("#/"):
            return schema
        if reference in passed:
            return {}
        passed.add(reference)
        target = at(root, reference.removeprefix("#"))
        schema = target if isinstance(target, dict) else {}
    return schema


def _members(
    root: Schema, schema: Schema, value: Mapping[str, JsonValue], what: str, *, is_closed: bool
) -> Iterator[str]:
    properties, required = schema.get("properties"), schema.get("required")
    properties = properties if isinstance(properties, dict) else {}
    for name, property_ in value.items():
        member = properties.get(name)
        if isinstance(member, dict):
            place = f"{what}.{name}"
            yield from _refused(root, member, property_, place, {}, is_closed=False)
        elif is_closed and name not in properties:
            yield f"{what}: option {name} is not known: {_instead(name, properties)}"
    for option in required if isinstance(required, list) else []:
        if isinstance(option, str) and option not in value:
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
        if isinstance(pattern, str) and not _matches(pattern, value):
            yield f"{what}: expected what matches {pattern}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        least, most = schema.get("minimum"), schema.get("maximum")
        if isinstance(least, int | float) and value < least:
            yield f"{what}: expected at least {least}"
        if isinstance(most, int | float) and value > most:
            yield f"{what}: expected at most {most}"


def _matches(pattern: str, value: str) -> bool:
    """Whether a text matches; any does where only the connector can read the pattern."""
    try:
        return re.search(pattern, value) is not None
    except re.error:  # it is of ECMA 262, which has what Python has not, as \\p{L}
        return True


def exposed(root: JsonValue, value: JsonValue, where: str) -> Iterator[str]:
    """The places where a configuration contains a secret itself, by the marks in its schema.

    What one of several options marks is secret.
    """
    if isinstance(root, dict):
        yield from dict.fromkeys(_exposed(root, root, value, where, set()))


def _exposed(
    root: Schema, schema: JsonValue, value: JsonValue, where: str, passed: set[int]
) -> Iterator[str]:
    """`passed`: the schemas that were asked of this value."""
    if not isinstance(schema, dict) or id(schema) in passed:
        return
    passed.add(id(schema))
    if schema.get("secret") is True:
        yield from _in_clear(value, where)
        return
    if "$ref" in schema:
        yield from _exposed(root, _meant(root, schema), value, where, passed)
    for name in ("allOf", "anyOf", "oneOf"):
        options = schema.get(name)
        for option in options if isinstance(options, list) else ():
            yield from _exposed(root, option, value, where, passed)
    properties, others = schema.get("properties"), schema.get("additionalProperties")
    for name, member in value.items() if isinstance(value, dict) else ():
        inner = properties.get(name, others) if isinstance(properties, dict) else others
        yield from _exposed(root, inner, member, f"{where}.{name}", set())
    for place, element in enumerate(value) if isinstance(value, list) else ():
        yield from _exposed(root, schema.get("items"), element, f"{where}[{place}]", set())


def _in_clear(value: JsonValue, where: str) -> Iterator[str]:
    """The places in a secret value that are no references."""
    match value:
        case dict():
            for name, member in value.items():
                yield from _in_clear(member, f"{where}.{name}")
        case list():
            for place, element in enumerate(value):
                yield from _in_clear(element, f"{where}[{place}]")
        case None | bool() | "":
            pass
        case str() if value.startswith(REFERENCES):
            pass
        case _:
            yield where


def marked(schema: Schema, mark: str) -> tuple[str, JsonValue] | None:
    """The property with a mark, as `x-delta-updates`, and its default; None without one."""
    properties = schema.get("properties")
    for name, member in properties.items() if isinstance(properties, dict) else ():
        if isinstance(member, dict) and member.get(mark) is True:
            return name, member.get("default")
    return None
