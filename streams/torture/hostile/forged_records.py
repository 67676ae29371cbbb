"""Records that their Avro schema allows and that make no sense. Pure.

A forged record is random from top to bottom; a bent one is a real record with one leaf
replaced, and so reaches code that looks at the other fields first. Names and numbers that mean
something in the environment under attack come from `Pool`, beside those at the edge of a type.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from schemas import codec
from streams.torture.hostile.mutations import INTEGERS, TEXTS, noise

Json = Any  # type: ignore[explicit-any]  # a schema, or a value of it

DEEPEST = 6
MOST_ITEMS = 4


@dataclass(slots=True)
class Pool:
    """Values for fields: texts by the field's name if it is `named`, else by type."""

    named: Mapping[str, Sequence[str]] = field(default_factory=dict)
    texts: Sequence[str] = ()
    integers: Sequence[int] = ()


def forged(rng: Random, schema_name: str, pool: Pool) -> bytes:
    """A message of the schema with random fields, or noise where Avro cannot write it."""
    schema = codec.registry().by_name[schema_name].raw
    return encoded(rng, schema_name, _value(rng, schema, pool, {}, "", 0))


def bent(rng: Random, message: bytes, pool: Pool) -> bytes:
    """The message with one field replaced by a random one of its type."""
    name, record = codec.decode(message)
    schema = codec.registry().by_name[name].raw
    changed = copy.deepcopy(record)
    types: dict[str, Json] = {}
    _define(schema, types)
    _bend(rng, changed, schema, pool, types)
    return encoded(rng, name, changed)


def encoded(rng: Random, schema_name: str, record: dict[str, Json]) -> bytes:
    """The record as a message; what Avro refuses becomes a header and noise."""
    try:
        return codec.encode(schema_name, record)
    except (ValueError, TypeError, OverflowError, KeyError, UnicodeEncodeError):
        return codec.registry().by_name[schema_name].header + noise(rng)


def _bend(
    rng: Random, record: dict[str, Json], schema: Json, pool: Pool, types: dict[str, Json]
) -> None:
    """Replace one field of the record, or of a record inside it."""
    chosen = rng.choice(schema["fields"])
    inside = _record_inside(record[chosen["name"]], chosen["type"], types)
    if inside is not None and rng.random() < 0.7:  # noqa: PLR2004  mostly further down
        _bend(rng, *inside, pool, types)
    else:
        record[chosen["name"]] = _value(rng, chosen["type"], pool, types, chosen["name"], 0)


def _record_inside(
    value: Json, schema: Json, types: dict[str, Json]
) -> tuple[dict[str, Json], Json] | None:
    """A record that the value is or begins with, and its schema."""
    for option in schema if isinstance(schema, list) else [schema]:
        definition = types.get(_short(option), option) if isinstance(option, str) else option
        if not isinstance(definition, dict):
            continue
        if definition["type"] == "record" and isinstance(value, dict):
            return value, definition
        if definition["type"] == "array" and isinstance(value, list) and value:
            return _record_inside(value[0], definition["items"], types)
    return None


def _define(schema: Json, types: dict[str, Json]) -> None:
    """Remember every named type of the schema."""
    if isinstance(schema, list):
        for option in schema:
            _define(option, types)
    elif isinstance(schema, dict):
        if "name" in schema and schema["type"] in {"record", "enum", "fixed"}:
            types[schema["name"]] = schema
        for field in schema.get("fields", ()):
            _define(field["type"], types)
        _define(schema.get("items"), types)


def _short(name: str) -> str:
    """A type's name without its namespace."""
    return name.rpartition(".")[2]


def _value(
    rng: Random, schema: Json, pool: Pool, types: dict[str, Json], name: str, depth: int
) -> Json:
    """A random value of the schema; the name is the field's."""
    if isinstance(schema, list):
        return _value(rng, rng.choice(schema), pool, types, name, depth)
    if isinstance(schema, str):
        definition = types.get(_short(schema))
        return (
            _leaf(rng, schema, pool, name)
            if definition is None
            else _composed(rng, definition, pool, types, name, depth)
        )
    return _composed(rng, schema, pool, types, name, depth)


def _composed(
    rng: Random, schema: Json, pool: Pool, types: dict[str, Json], name: str, depth: int
) -> Json:
    """A random value of a schema that is written out."""
    match schema["type"]:
        case "record":
            _define(schema, types)
            return {
                field["name"]: _value(rng, field["type"], pool, types, field["name"], depth + 1)
                for field in schema["fields"]
            }
        case "array":
            count = rng.choice((0, 1, 1, rng.randrange(MOST_ITEMS))) if depth < DEEPEST else 0
            items = schema["items"]
            return [_value(rng, items, pool, types, name, depth + 1) for _ in range(count)]
        case "enum":
            return rng.choice(schema["symbols"])
        case plain:
            return _leaf(rng, plain, pool, name)


def _leaf(rng: Random, type_: str, pool: Pool, name: str) -> Json:
    """A random value of a primitive type, for a field of this name."""
    numbers = (*INTEGERS, *pool.integers, rng.randrange(1_000))
    likely = pool.named.get(name, pool.texts) or TEXTS
    generators: Mapping[str, Callable[[], Json]] = {
        "null": lambda: None,
        "boolean": lambda: rng.random() < 0.5,  # noqa: PLR2004  either
        "int": lambda: max(-(1 << 31), min((1 << 31) - 1, rng.choice(numbers))),
        "long": lambda: rng.choice(numbers),
        "double": lambda: rng.choice((0.0, -0.0, 1e308, math.inf, math.nan, rng.random())),
        "bytes": lambda: noise(rng),
        "string": lambda: rng.choice(likely if rng.random() < 0.7 else TEXTS),  # noqa: PLR2004  mostly
    }
    return generators[type_]()
