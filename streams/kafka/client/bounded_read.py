"""Reads a log's records up to an end offset, even if its last offsets hold none."""

from collections.abc import Iterator
from contextlib import suppress

from streams.ids import Offset, Topic
from streams.kafka.log import Entry, Logs, Tail, Unanswered

_WAIT_MS = 1000


def records_until(
    logs: Logs, tail: Tail, topic: Topic, bounds: tuple[Offset, Offset]
) -> Iterator[Entry]:
    """Return the records in [position, end) of a log that the tail follows alone.

    The last offsets may hold no record: transaction markers are not delivered. Waits for as
    long as no broker answers. Errors: as `Tail.poll`.
    """
    position, end = bounds
    while position < end:
        entries = tail.poll(_WAIT_MS)
        if not entries and not tail.silent_ms():
            with suppress(Unanswered):
                if logs.is_bare(topic, position):
                    return
        for entry in entries:
            position = Offset(entry.offset + 1)
            yield entry
