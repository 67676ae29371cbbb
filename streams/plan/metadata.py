"""What a source declares about its messages besides the fields of their values.

Columns from parts of messages and from nested members, what becomes of messages that cannot be
decoded and how many may be such, and the event time of rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

OnError = Literal["inline", "dead_letter", "fail", "skip"]
"""What becomes of a message that cannot be decoded.

- `inline`: an error of the source, or with ENVELOPE UPSERT of the message's key.
- `dead_letter`: a row of the source's collection of dead letters.
- `fail`: the source stops before it.
- `skip`: nothing.
"""

FEWEST_OF_SHARE = 1_000
"""The number of messages from which on a share of them is judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorLimit:
    """How many messages may be such that cannot be decoded: a number, or a share in millionths.

    Neither: there is no limit. The counts of the source's binding were `refused_before` and
    `messages_before` when the limit was declared.
    """

    number: int | None = None
    millionths: int | None = None
    refused_before: int = 0
    messages_before: int = 0

    def __str__(self) -> str:
        """Return it as the statement writes it."""
        if self.millionths is not None:
            whole, part = divmod(self.millionths, 10_000)
            return f"'{whole}.{part:04}".rstrip("0").rstrip(".") + " %'"
        return "NONE" if self.number is None else str(self.number)


Part = Literal["partition", "offset", "timestamp", "headers", "key"]

TYPES: Mapping[Part, str] = {
    "partition": "INTEGER",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "headers": 'STRUCT("key" VARCHAR, "value" BLOB)[]',
    "key": "BLOB",
}
"""The types of the parts of a message, as DuckDB prints them; a key of text is a VARCHAR."""


@dataclass(frozen=True, slots=True)
class Included:
    """A part of each message, and the name of the column that holds it."""

    part: Part
    column: str


@dataclass(frozen=True, slots=True)
class Located:
    """A column and the members' names on the way to its value: `PATH '$.a.b'`. At least one."""

    column: str
    path: tuple[str, ...]


LateRows = Literal["place", "dead_letter", "fail"]
"""What becomes of a row whose event time is below the source's upper when it is read.

- `place`: its update happens at upper.
- `dead_letter`: it is a row of the source's collection of dead letters.
- `fail`: the source stops before it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """The event time of a source's rows: `WATERMARK FOR column AS column - delay`.

    Updates happen at the event time that is in `column`, and upper is the watermark: the least
    over the partitions of the greatest event time, less `delay_ms`. A partition whose end has
    been read for `idle_ms` holds no other back. A row whose event time is more than `ahead_ms`
    beyond the timestamp of its record is a message that cannot be decoded (rule 29).
    """

    column: str
    delay_ms: int
    late_rows: LateRows
    idle_ms: int
    ahead_ms: int
