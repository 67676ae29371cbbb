"""JSON pointers, and the key values of a document.

Source: RFC 6901.
"""

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal

from schemas import flow_tuple
from schemas.blobs import Blobs
from schemas.flow_columns import Elements, pack_columns
from schemas.flow_tuple import Element

INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
NOT_FINITE: Mapping[object, float] = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
"""Doubles that documents have as text."""


def read(document: bytes) -> object:
    """The value of a document, with all digits of its whole numbers: Python's have fewer.

    Errors: ValueError if it is no JSON, RecursionError.
    """
    try:
        return json.loads(document)
    except ValueError:
        return json.loads(document, parse_int=whole)


def whole(digits: str) -> int | Decimal:
    """A whole number of any length."""
    try:
        return int(digits)
    except ValueError:
        return Decimal(digits)


def keys_of(
    documents: Sequence[bytes], pointers: Sequence[str], numbers: Collection[str] = ()
) -> Blobs:
    """The packed keys of documents. Errors: as `key_of`, without saying of which."""
    objects = [value for value in map(read, documents) if isinstance(value, dict)]
    if len(objects) < len(documents):
        raise ValueError("expected objects")
    columns = [Elements.of(elements_at(objects, pointer, numbers)) for pointer in pointers]
    return pack_columns(columns, len(objects))


def elements_at(
    objects: Sequence[Mapping[str, object]], pointer: str, numbers: Collection[str]
) -> list[Element]:
    """The value of each document at a pointer."""
    name = pointer[1:]
    if pointer and not set(name) & {"/", "~"}:  # a member of the root, as keys mostly are
        members: Sequence[object] = [document.get(name) for document in objects]
    else:
        members = [at(document, pointer) for document in objects]
    if pointer in numbers:
        members = list(map(number, members))
    return list(map(flow_tuple.element, members))


def number(value: object) -> object:
    """A number of a document, where one that is not finite is text."""
    return NOT_FINITE.get(value, value) if isinstance(value, str) else value


def key_of(document: bytes, pointers: Sequence[str], numbers: Collection[str] = ()) -> bytes:
    """The packed key of a document; a location that is missing is null.

    `numbers` are the pointers of members that are numbers, so that text is one not finite.

    Errors: ValueError if it is no JSON object, MalformedTuple if its key cannot be packed.
    """
    value = read(document)
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, actual {type(value).__name__}")  # noqa: TRY004
    elements = [elements_at([value], pointer, numbers)[0] for pointer in pointers]
    return flow_tuple.pack(elements)


def at(value: object, pointer: str) -> object:
    """The value at a pointer; None if there is none."""
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        match value:
            case dict() if name in value:
                value = value[name]
            case list() if INDEX.fullmatch(name) and int(name) < len(value):
                value = value[int(name)]
            case _:
                return None
    return value
