"""JSON pointers, and the key of a document.

Source: RFC 6901.
"""

import json
import re
from collections.abc import Sequence

from schemas import flow_tuple

INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


def key_of(document: bytes, pointers: Sequence[str]) -> bytes:
    """The packed key of a document; a location that is missing is null.

    Errors: ValueError if it is no JSON object, MalformedTuple if its key cannot be packed.
    """
    value = json.loads(document)
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, actual {type(value).__name__}")  # noqa: TRY004
    return flow_tuple.pack([flow_tuple.element(at(value, each)) for each in pointers])


def at(value: object, pointer: str) -> object:
    """What is at a pointer; None if nothing is."""
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
