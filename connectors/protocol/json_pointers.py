"""JSON pointers, and the key values of a document.

Source: RFC 6901.
"""

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

from schemas import flow_tuple
from schemas.blobs import Blobs
from schemas.flow_columns import Elements, pack_columns
from schemas.flow_tuple import Element

INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


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


def keys_of(documents: Sequence[bytes], pointers: Sequence[str]) -> Blobs:
    """The packed keys of documents. Errors: as `key_of`, without saying of which."""
    objects = [value for value in map(read, documents) if isinstance(value, dict)]
    if len(objects) < len(documents):
        raise ValueError("expected objects")
    columns = [Elements.of(elements_at(objects, pointer)) for pointer in pointers]
    return pack_columns(columns, len(objects))


def elements_at(objects: Sequence[Mapping[str, object]], pointer: str) -> list[Element]:
    """The value of each document at a pointer."""
    name = pointer[1:]
    if pointer and not set(name) & {"/", "~"}:  # a member of the root, as keys mostly are
        members: Sequence[object] = [document.get(name) for document in objects]
    else:
        members = [at(document, pointer) for document in objects]
    return list(map(flow_tuple.element, members))


def key_of(document: bytes, pointers: Sequence[str]) -> bytes:
    """The packed key of a document; a location that is missing is null.

    Errors: ValueError if it is no JSON object, MalformedTuple if its key cannot be packed.
    """
    value = read(document)
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, actual {type(value).__name__}")  # noqa: TRY004
    return flow_tuple.pack([flow_tuple.element(at(value, pointer)) for pointer in pointers])


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
