"""Skip records: an operator makes all followers ignore a log record that cannot be folded.

A foreign record, or one with the producer's timestamp, halts each reader of its log (rule 11),
because its meaning is unknown. `slackwater shard repair` appends a `shard_skip` that names its
offset and the CRC-32 of its value. It is durable for all readers because it is in the log: a
client that opens a group scans for skip records before it folds; one that had halted reopens
the group; and one that had folded the record, as a newer version may have, starts again without
it.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from schemas import codec
from streams.errors import Corrupt
from streams.ids import EventId, Offset
from streams.kafka.log import Entry

SKIP = "shard_skip"


@dataclass(frozen=True, slots=True)
class Skip:
    """The record at `offset` is skipped if its value has this CRC-32.

    Without a `checksum` there is no record there: a gap in the offsets.
    """

    id: EventId
    group: str
    seen: Offset
    offset: Offset
    checksum: int | None
    reason: str

    def is_meant(self, value: bytes) -> bool:
        """Whether this value is the one to skip."""
        return self.checksum == zlib.crc32(value)


Skips = Mapping[Offset, Skip]
"""Skips by offset."""


def encode(skip: Skip) -> bytes:
    """Encode a skip record's value."""
    return codec.encode(SKIP, asdict(skip))


def is_skip(value: bytes) -> bool:
    """Whether a record is a skip record."""
    return codec.name_of(value) == SKIP


def decode(value: bytes) -> Skip:
    """Decode a skip record's value. Errors: Corrupt."""
    _, record = codec.decode(value)
    return Skip(**record)


def skips_of(entries: Sequence[Entry]) -> Skips:
    """Return the skips among the records. One that cannot be decoded is ignored."""
    skips: dict[Offset, Skip] = {}
    for entry in entries:
        if is_skip(entry.value):
            try:
                skip = decode(entry.value)
            except Corrupt:
                continue
            if skip.offset < entry.offset:
                skips.setdefault(skip.offset, skip)
    return skips
