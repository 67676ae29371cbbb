"""The inputs that a hostile client may send, as values generated from a seed.

An input says where it goes, not how it got there, so a line of evidence holds all that is
needed to send it once more.
"""

import base64
import json
from dataclasses import asdict, dataclass
from enum import StrEnum

from streams.ids import Topic


class Ending(StrEnum):
    """The end of a record's transaction; PLAIN records are in none."""

    PLAIN = "plain"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record for a topic. `partition` is the producer's choice when it is None.

    With `wire_headers`, whose names may be any bytes, it is in no transaction.
    """

    surface: str
    topic: Topic
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    wire_headers: tuple[tuple[bytes, bytes | None], ...] = ()
    partition: int | None = None
    ending: Ending = Ending.PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Bytes for the coordinator's port, as they go over the connection."""

    surface: str
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Bytes for the coordinator's port that come at once, over a connection each."""

    surface: str
    payloads: tuple[bytes, ...]


Input = Record | Request | Burst


def evidence_line(round_: int, sent: Input) -> str:
    """The input as one line of JSON; bytes are in base64."""
    fields = {"round": round_, "kind": type(sent).__name__, **asdict(sent)}
    return json.dumps(fields, default=lambda value: base64.b64encode(value).decode())
