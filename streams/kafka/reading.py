"""A log's records up to an end, however few of its offsets have one."""

from collections.abc import Iterator
from contextlib import suppress

from streams.ids import Offset, Topic
from streams.kafka.log import Entry, Logs, Tail, Unanswered

_WAIT_MS = 1000


def records_until(
    logs: Logs, tail: Tail, topic: Topic, bounds: tuple[Offset, Offset]
) -> Iterator[Entry]:
    """The records in [position, end) of a log that the tail follows alone.

    At the last offsets there may be none: transactions leave marks, which nobody is shown.
    Waits for as long as no broker answers. Errors: as `Tail.poll`.
    """
    position, end = bounds
    while position < end:
        found = tail.poll(_WAIT_MS)
        if not found and not tail.silent_ms():
            with suppress(Unanswered):
                if logs.is_bare(topic, position):
                    return
        for entry in found:
            position = Offset(entry.offset + 1)
            yield entry
