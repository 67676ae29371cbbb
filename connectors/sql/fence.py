"""Who may write a key range, and from which checkpoint: decided over the rows of a table.

Each session of a task that opens a range raises the fence of every row that overlaps it, so
that none of the older sessions can commit again, and writes a row of its own range. A commit
changes the row only if fence and nonce are still the session's.

Where a new session begins follows from one fact: of all rows that cover a key, the one opened
last is the only one that can have moved. So each part of the range has one checkpoint that
counts, that of the row opened last among those that cover it. If all parts agree, it is where
the session begins; if they do not, no checkpoint is right for all keys, and the range is
refused. A session never begins behind what any row below it has.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from schemas.consumer_pb2 import Checkpoint
from streams.errors import InvalidUsage, SlackwaterError

ZERO = bytes.fromhex("f8ffffff0f01")
"""The checkpoint of a range that nothing was written of: begin at zero."""


class Fenced(SlackwaterError):
    """Another session of the task took the range over; this one can never commit again."""

    def __init__(self, task: str, key_begin: int, key_end: int) -> None:
        super().__init__(task, key_begin, key_end)
        self.task, self.key_begin, self.key_end = task, key_begin, key_end

    def __str__(self) -> str:
        return (
            f"task {self.task}: another session took the key range"
            f" {self.key_begin:08x} to {self.key_end:08x} over; this one must end"
        )


class DividedRange(InvalidUsage):
    """Parts of a range stand at different checkpoints; the text lists them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A row of the table: a range that a session opened."""

    key_begin: int
    key_end: int
    fence: int
    opened: int
    """Greater than of all sessions of the task before."""
    checkpoint: bytes

    def covers(self, key: int) -> bool:
        """Whether the range has this hash."""
        return self.key_begin <= key <= self.key_end


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """What the new session writes, beside raising the fences of all rows that overlap."""

    fence: int
    opened: int
    checkpoint: bytes
    replaces: bool
    """There is a row of exactly this range."""


def take_over(rows: Sequence[Held], key_begin: int, key_end: int) -> TakenOver:
    """A new session of a range. Errors: DividedRange."""
    exact = [row for row in rows if (row.key_begin, row.key_end) == (key_begin, key_end)]
    parts = parts_of(rows, key_begin, key_end)
    checkpoints = {canonical(checkpoint) for _, _, checkpoint in parts}
    if len(checkpoints) > 1:
        listed = ", ".join(
            f"{begin:08x} to {end:08x} at 0x{checkpoint.hex()}"
            for begin, end, checkpoint in parts
        )
        raise DividedRange(
            f"key range {key_begin:08x} to {key_end:08x}: expected one checkpoint of all its"
            f" parts, actual {listed}; bring the sessions of the parts to the same checkpoint"
            " first, or open the parts as they are"
        )
    return TakenOver(
        fence=exact[0].fence + 1 if exact else 1,
        opened=max((row.opened for row in rows), default=0) + 1,
        checkpoint=parts[0][2],
        replaces=bool(exact),
    )


def parts_of(
    rows: Sequence[Held], key_begin: int, key_end: int
) -> list[tuple[int, int, bytes]]:
    """The range cut where a row begins or ends; of each part the checkpoint that counts."""
    begins = {key_begin}
    for row in rows:
        begins |= {row.key_begin, row.key_end + 1}
    inside = sorted(begin for begin in begins if key_begin <= begin <= key_end)
    ends = [*(begin - 1 for begin in inside[1:]), key_end]
    return [(begin, end, counts(rows, begin)) for begin, end in zip(inside, ends, strict=True)]


def counts(rows: Sequence[Held], key: int) -> bytes:
    """The checkpoint of a key."""
    covering = [row for row in rows if row.covers(key)]
    return max(covering, key=lambda row: row.opened).checkpoint if covering else ZERO


def canonical(checkpoint: bytes) -> bytes:
    """The same for all bytes of one checkpoint, where they can be read."""
    try:
        return Checkpoint.FromString(checkpoint).SerializeToString(deterministic=True)
    except DecodeError:
        return checkpoint
