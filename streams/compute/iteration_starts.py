"""Where iterations begin on a topic of commands."""

from contextlib import suppress

from streams.compute.codec import decode_command
from streams.compute.protocol import CreateTimely
from streams.errors import Corrupt
from streams.ids import Offset, Topic
from streams.kafka.client.bounded_read import records_until
from streams.kafka.log import Logs


def iteration_starts(
    logs: Logs, commands: Topic, start: Offset, end: Offset
) -> list[tuple[Offset, int]]:
    """Return the offset and the epoch of each iteration that is there in an interval."""
    starts: list[tuple[Offset, int]] = []
    low, _ = logs.bounds(commands)
    start = max(start, low)
    tail = logs.tail({commands: start})
    for entry in records_until(logs, tail, commands, (start, end)):
        with suppress(Corrupt):  # replicas skip it too, and report it
            command = decode_command(entry.value).command
            if isinstance(command, CreateTimely):
                starts.append((entry.offset, command.epoch))
    tail.close()
    return starts


def last_start(logs: Logs, commands: Topic) -> Offset | None:
    """Return the offset of the newest iteration on the topic; None if there is none."""
    starts = iteration_starts(logs, commands, *logs.bounds(commands))
    return starts[-1][0] if starts else None
