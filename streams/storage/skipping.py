"""Records that an operator has everybody pass over, for no reader can fold them.

A foreign record, or one with its writer's time, halts each reader of its log (rule 11): nobody
may guess what it was meant to do. `slackwater shard repair` appends a `shard_skip` that names
its offset and the CRC-32 of its value. It is durable for all readers because it stands in the
log: who opens a group looks through the records for such words before it folds; who had halted
opens the group again; and who had folded the record, as a newer version may have, begins again
without it.
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
    """The record at `offset` is passed over if its value has this CRC-32.

    Without a `checksum` there is no record there: a gap in the offsets.
    """

    id: EventId
    group: str
    seen: Offset
    offset: Offset
    checksum: int | None
    reason: str

    def is_meant(self, value: bytes) -> bool:
        """Whether this value is what is to be passed over."""
        return self.checksum == zlib.crc32(value)


Skips = Mapping[Offset, Skip]
"""What is to be passed over, by offset."""


def encode(skip: Skip) -> bytes:
    """The record's value."""
    return codec.encode(SKIP, asdict(skip))


def is_skip(value: bytes) -> bool:
    """Whether a record is such a word."""
    return codec.name_of(value) == SKIP


def decode(value: bytes) -> Skip:
    """The word in a record's value. Errors: Corrupt."""
    _, record = codec.decode(value)
    return Skip(**record)


def skips_of(entries: Sequence[Entry]) -> Skips:
    """What the records say is to be passed over. One that cannot be read says nothing."""
    found: dict[Offset, Skip] = {}
    for entry in entries:
        if is_skip(entry.value):
            try:
                skip = decode(entry.value)
            except Corrupt:
                continue
            if skip.offset < entry.offset:
                found.setdefault(skip.offset, skip)
    return found
