"""Decides who may write a key range, and from which checkpoint, over the rows of a table.

Each session of a task that opens a range raises the fence of every row that overlaps it, so
that none of the older sessions can commit again, and writes a row of its own range. A commit
changes the row only if fence and nonce are still the session's.

Where a new session begins follows from one fact: of all rows that cover a key, the one opened
last is the only one that can have moved. So each part of the range has one checkpoint that
counts, that of the row opened last among those that cover it. If all parts agree, it is where
the session begins. If they stand apart, no checkpoint is right for all keys: the session is
told the checkpoint of each, where its driver can go on from several, and else the range is
refused. A session never begins behind what any row below it has.

While parts stand apart, each has a row of its own, and the row of the session has no checkpoint
and does not count; its first commit makes it count, for all keys of the range, and deletes the
rows of the parts. A row that counts for no key any more, and that was fenced, is deleted.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace

from google.protobuf.message import DecodeError

from connectors.protocol.messages import Subrange
from schemas.consumer_pb2 import Checkpoint
from streams.errors import InvalidUsage, SlackwaterError

ZERO = bytes.fromhex("f8ffffff0f01")
"""The checkpoint of a range that nothing was written of: begin at zero."""
NONE = b""
"""The checkpoint of a row that does not count, since its session has not committed."""


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
class FencedRange:
    """A row of the table: a range that a session opened."""

    key_begin: int
    key_end: int
    fence: int
    opened: int
    """Greater than of all sessions of the task before."""
    checkpoint: bytes

    @classmethod
    def of_text(
        cls, key_range: tuple[int, int], fence: int, opened: int, checkpoint: str
    ) -> "FencedRange":
        """Return the row of a range whose checkpoint is stored in base64."""
        begin, end = key_range
        return cls(
            key_begin=begin,
            key_end=end,
            fence=fence,
            opened=opened,
            checkpoint=base64.b64decode(checkpoint),
        )

    @property
    def range(self) -> tuple[int, int]:
        """Both ends inclusive."""
        return self.key_begin, self.key_end

    def covers(self, key: int) -> bool:
        """Whether the range contains the hash."""
        return self.key_begin <= key <= self.key_end

    def overlaps(self, key_begin: int, key_end: int) -> bool:
        """Whether the ranges overlap."""
        return self.key_begin <= key_end and self.key_end >= key_begin


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """The actions of a new session, besides raising the fences of all overlapping rows.

    First the ranges of `deletes` go, then the rows of `parts` and `row` come.
    """

    row: FencedRange
    """The session's own."""
    parts: tuple[FencedRange, ...]
    """A row for each part of the range, if they stand apart; no session can commit to it."""
    deletes: tuple[tuple[int, int], ...]

    @property
    def checkpoint(self) -> bytes:
        """The checkpoint at which the session begins; empty if its parts differ."""
        return self.row.checkpoint

    @property
    def subranges(self) -> tuple[Subrange, ...]:
        """The checkpoint of each part of the range, if they differ."""
        return tuple(
            Subrange(part.key_begin, part.key_end, part.checkpoint) for part in self.parts
        )


def take_over(
    rows: Sequence[FencedRange], key_begin: int, key_end: int, *, may_be_apart: bool = False
) -> TakenOver:
    """A new session of a range, from all rows of its task.

    `may_be_apart`: its driver can go on from several checkpoints. Errors: DividedRange if it
    cannot, and would have to.
    """
    fences = {row.range: row.fence + 1 for row in rows}
    last = max((row.opened for row in rows), default=0)
    parts = parts_of(rows, key_begin, key_end)
    is_apart = len(parts) > 1
    if is_apart and not may_be_apart:
        raise DividedRange(refusal(parts, key_begin, key_end))
    own = FencedRange(
        key_begin=key_begin,
        key_end=key_end,
        fence=fences.get((key_begin, key_end), 1),
        opened=last + 2 if is_apart else last + 1,
        checkpoint=NONE if is_apart else parts[0].checkpoint,
    )
    written = tuple(
        replace(part, fence=fences.get(part.range, 1), opened=last + 1)
        for part in (parts if is_apart else ())
    )
    new = {row.range for row in (own, *written)}
    after = [*(row for row in rows if row.range not in new), *written, own]
    fenced = [row for row in rows if row.overlaps(key_begin, key_end)]
    deletes = [row.range for row in fenced if row.range in new or not counts(after, row)]
    return TakenOver(row=own, parts=written, deletes=tuple(deletes))


def refusal(parts: Sequence[FencedRange], key_begin: int, key_end: int) -> str:
    """Why a range cannot be opened at one checkpoint."""
    listed = ", ".join(
        f"{part.key_begin:08x} to {part.key_end:08x} at 0x{part.checkpoint.hex()}"
        for part in parts
    )
    return (
        f"key range {key_begin:08x} to {key_end:08x}: expected one checkpoint of all its"
        f" parts, actual {listed}; bring the sessions of the parts to the same checkpoint"
        " first, or open the parts as they are"
    )


def parts_of(rows: Sequence[FencedRange], key_begin: int, key_end: int) -> list[FencedRange]:
    """The range cut where the checkpoint that counts changes, with these checkpoints."""
    parts: list[FencedRange] = []
    for begin, end in pieces(rows, key_begin, key_end):
        covering = counting(rows, begin)
        checkpoint = covering.checkpoint if covering is not None else ZERO
        if parts and canonical(parts[-1].checkpoint) == canonical(checkpoint):
            parts[-1] = replace(parts[-1], key_end=end)
            continue
        parts.append(
            FencedRange(key_begin=begin, key_end=end, fence=0, opened=0, checkpoint=checkpoint)
        )
    return parts


def pieces(rows: Sequence[FencedRange], key_begin: int, key_end: int) -> list[tuple[int, int]]:
    """A range cut where a row begins or ends."""
    begins = {key_begin}
    for row in rows:
        begins |= {row.key_begin, row.key_end + 1}
    inside = sorted(begin for begin in begins if key_begin <= begin <= key_end)
    return list(zip(inside, [*(begin - 1 for begin in inside[1:]), key_end], strict=True))


def counting(rows: Sequence[FencedRange], key: int) -> FencedRange | None:
    """The row whose checkpoint counts for a key."""
    covering = [row for row in rows if row.covers(key) and row.checkpoint != NONE]
    return max(covering, key=lambda row: row.opened, default=None)


def counts(rows: Sequence[FencedRange], row: FencedRange) -> bool:
    """Whether a row covers one of the range's keys."""
    return any(counting(rows, begin) is row for begin, _ in pieces(rows, *row.range))


def canonical(checkpoint: bytes) -> bytes:
    """A canonical form, equal for all encodings of one checkpoint, if it can be decoded."""
    try:
        return Checkpoint.FromString(checkpoint).SerializeToString(deterministic=True)
    except DecodeError:
        return checkpoint
