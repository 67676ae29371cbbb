"""From topics to state: load the newest Rollup and fold on from what it covers (rule 8).

Everything is recovered from the topics alone. A Rollup whose chunks are gone was void or has
been overtaken; the one before it covers less, and the log still holds what follows it. A log
that begins after what the best Rollup covers has lost records: fatal for its group (rule 12).
"""

from collections.abc import Mapping, Sequence

from schemas import codec
from streams.errors import Corrupt, Determinate
from streams.ids import Offset, Topic
from streams.kafka.log import ChunkRef, Chunks, Entry, Logs, Truncated
from streams.kafka.patience import is_worth_waiting
from streams.storage import rollup
from streams.storage.events import Rollup
from streams.storage.group import Group, decode
from streams.storage.records import ROLLUP
from streams.storage.state import State

POLL_MS = 100
MANY = 4
"""Groups, from which on their Rollups are fetched at once."""

PATIENCE = 300
"""Empty polls in a row after which a log that should hold more counts as unreadable, if brokers
answer at all: a partition may be without a leader for a while.
"""


Bodies = Mapping[tuple[Topic, tuple[ChunkRef, ...]], list[bytes]]
"""Bodies of chunks, by topic and references."""


def recover(logs: Logs, chunks: Chunks, groups: Sequence[Group]) -> None:
    """Fold each group to the end its log has now.

    Errors: Truncated, Corrupt, Determinate.
    """
    bounds = logs.bounds_all([group.names.log for group in groups])
    entries = read_all(logs, bounds)
    found = {group.names.log: rollups(entries[group.names.log]) for group in groups}
    ahead = fetched_ahead(chunks, groups, found)
    for group in groups:
        low = bounds[group.names.log][0]
        group.state = newest_state(chunks, group, low, found[group.names.log], ahead)
        if group.state.group:
            group.uuid = group.state.group
        for entry in entries[group.names.log]:
            group.fold(entry)


def read_all(
    logs: Logs, bounds: Mapping[Topic, tuple[Offset, Offset]]
) -> Mapping[Topic, list[Entry]]:
    """Every record of the logs, up to the ends given."""
    entries: dict[Topic, list[Entry]] = {topic: [] for topic in bounds}
    missing = {topic: end for topic, (low, end) in bounds.items() if low < end}
    if not missing:
        return entries
    tail = logs.tail({topic: bounds[topic][0] for topic in missing})
    try:
        silence = 0
        while missing:
            found = tail.poll(POLL_MS)
            silence = 0 if found else silence + 1
            if silence > PATIENCE and not is_worth_waiting(tail):
                raise Determinate(f"logs cannot be read to their ends: {sorted(missing)}")
            for entry in found:
                entries[entry.topic].append(entry)
                if entry.offset + 1 >= missing.get(entry.topic, 0):
                    missing.pop(entry.topic, None)
    finally:
        tail.close()
    return entries


def fetched_ahead(
    chunks: Chunks, groups: Sequence[Group], found: Mapping[Topic, Sequence[Rollup]]
) -> Bodies:
    """The newest Rollup of each of many groups, fetched at once; nothing when that fails.

    Then some are gone, and each is looked for by itself.
    """
    newest = {
        group.names.data: found[group.names.log][0].chunks
        for group in groups
        if found[group.names.log]
    }
    if len(newest) < MANY:
        return {}
    try:
        bodies = chunks.fetch_all(newest)
    except (Corrupt, Determinate):
        return {}
    return {(topic, refs): bodies[topic] for topic, refs in newest.items()}


def newest_state(
    chunks: Chunks, group: Group, low: Offset, found: Sequence[Rollup], ahead: Bodies
) -> State:
    """The state from which the entries of the log fold on: of the furthest Rollup there is.

    Errors: Truncated when neither a Rollup nor the log itself reaches back far enough; Corrupt
    when a Rollup's chunks are there but are not what it says.
    """
    problem = f"it begins at offset {low} and no rollup covers what is before"
    for event in found:
        if event.upto + 1 < low:
            break
        place = group.names.data, event.chunks
        try:
            bodies = ahead[place] if place in ahead else chunks.fetch(*place)
        except Corrupt as cause:
            problem = f"rollup at {event.upto} cannot be read: {cause}"
            continue
        return rollup.join(event, bodies)
    if low == 0:
        return State()
    raise Truncated(group.names.log, 0, problem)


def rollups(entries: Sequence[Entry]) -> list[Rollup]:
    """The Rollups among the entries, the furthest first."""
    found = [
        event.body
        for entry in entries
        if codec.name_of(entry.value) == ROLLUP
        and isinstance((event := decode(entry)).body, Rollup)
    ]
    return sorted(found, key=lambda body: body.upto, reverse=True)
