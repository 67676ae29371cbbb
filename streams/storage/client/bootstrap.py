"""Recovers a group's state from its topics: load a Rollup and fold the log after it (rule 8).

State is recovered from the topics alone. A Rollup is trusted once a fold that began before it
agrees: its hash is compared with that of the folded state. So a reader begins at the Rollup
*before* the newest, which the log keeps for this; if there is none, at offset 0; if the log
does not reach back that far, at the first Rollup that remains.

A Rollup whose chunks are missing was void or was superseded; an earlier one covers less, and
the log still holds the records after it. A log that begins after what every Rollup covers has
lost records: fatal for its group (rule 12).
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from schemas import codec
from streams.errors import Corrupt, Determinate
from streams.ids import Offset, Topic
from streams.kafka.client.retries import is_worth_waiting
from streams.kafka.log import ChunkRef, Chunks, Entry, Logs, Truncated
from streams.storage.client.group import Group, decode
from streams.storage.log import rollup
from streams.storage.log.event_codec import ROLLUP
from streams.storage.log.events import Rollup
from streams.storage.log.outcomes import RolledUp
from streams.storage.log.skipping import Skips, skips_of
from streams.storage.log.state import State
from streams.values import uncollected

POLL_MS = 100
MANY = 4
"""Number of groups from which on their Rollups are fetched together."""

LOOK_EVERY = 10
"""Empty polls in a row after which the reader asks whether more records exist."""

PATIENCE = 300
"""Empty polls in a row after which a log that should hold more counts as unreadable, if brokers
answer at all: a partition may be without a leader for a while.
"""


Bodies = Mapping[tuple[Topic, tuple[ChunkRef, ...]], list[bytes]]
"""Bodies of chunks, by topic and references."""


Start = Rollup | None
"""Where a fold may begin; None stands for the empty state at offset 0."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """A group to recover: the records of its log from offset `low` up to `end`.

    The fold begins at the first Rollup of `earlier` that can be read; if none can, at
    `furthest`.
    """

    group: Group
    low: Offset
    end: Offset
    entries: Sequence[Entry]
    skips: Skips
    earlier: tuple[Start, ...]
    furthest: tuple[Start, ...]


def recover(logs: Logs, chunks: Chunks, groups: Sequence[Group]) -> None:
    """Fold each group to the end its log has now.

    Errors: Truncated, Corrupt, Determinate.
    """
    if not groups:
        return
    bounds = logs.bounds_all([group.names.log for group in groups])
    entries = read_all(logs, bounds)
    pasts = [
        past_of(group, bounds[group.names.log], entries[group.names.log]) for group in groups
    ]
    ahead = fetched_ahead(chunks, pasts)
    with uncollected():
        for past in pasts:
            restore(chunks, past, ahead)


def past_of(group: Group, bounds: tuple[Offset, Offset], entries: Sequence[Entry]) -> LogRange:
    """Return a group with the offsets at which its fold may begin."""
    low, end = bounds
    skips = skips_of(entries)
    reaching = [rollup for rollup in rollups(entries, skips) if rollup.upto + 1 >= low]
    upto = reaching[0].upto if reaching else Offset(-1)
    before = [rollup for rollup in reaching if rollup.upto < upto]
    empty = (None,) if low == 0 else ()
    furthest = [rollup for rollup in reaching if rollup.upto == upto]
    return LogRange(group, low, end, entries, skips, (*before, *empty), tuple(furthest))


def restore(chunks: Chunks, past: LogRange, ahead: Bodies) -> None:
    """Fold a group from the latest start for which a later Rollup confirms the fold.

    If no Rollup confirms a fold, start at the earliest offset possible.

    Errors: Truncated when neither a Rollup nor the log itself reaches back far enough; Corrupt
    when the records of the log do not agree with one of its Rollups, or cannot be read.
    """
    result: Corrupt | bool | None = None
    problem = ""
    for start in (*past.earlier, *past.furthest):
        if start in past.furthest and result is not None:
            break
        try:
            state = state_of(chunks, past.group, start, ahead)
        except Corrupt as cause:
            problem = problem or f": rollup at {start.upto if start else 0}: {cause}"
            continue
        result = fold_entries(past, state)
        if result is True:
            return
    if isinstance(result, Corrupt):
        raise result
    if result is None:
        reason = (
            f"it begins at offset {past.low} and no rollup covers the records before{problem}"
        )
        raise Truncated(past.group.names.log, 0, reason)


def state_of(chunks: Chunks, group: Group, start: Rollup | None, ahead: Bodies) -> State:
    """The state at which a fold begins. Errors: Corrupt when the Rollup cannot be read."""
    if start is None:
        return State()
    place = group.names.data, start.chunks
    return rollup.join(start, ahead[place] if place in ahead else chunks.fetch(*place))


def fold_entries(past: LogRange, state: State) -> Corrupt | bool:
    """Fold entries from a state; return the failure, if any, and if a later Rollup agreed."""
    group = past.group
    group.begin(state, past.skips)
    is_confirmed = False
    try:
        for entry in past.entries:
            if entry.offset > group.state.upto + 1:
                group.pass_gap(Offset(entry.offset - 1))
            decided = group.fold(entry)
            if decided is not None and isinstance(decided[1], RolledUp):
                body = decided[0].body
                is_confirmed |= isinstance(body, Rollup) and body.upto > state.upto
        if past.end > group.state.upto + 1:
            group.pass_gap(Offset(past.end - 1))
    except Corrupt as failure:
        return failure
    return is_confirmed


def read_all(
    logs: Logs, bounds: Mapping[Topic, tuple[Offset, Offset]]
) -> Mapping[Topic, list[Entry]]:
    """Read every record of the logs, up to the given ends.

    The last offsets may hold no record: transaction markers take offsets and are not delivered.
    """
    entries: dict[Topic, list[Entry]] = {topic: [] for topic in bounds}
    missing = {topic: end for topic, (low, end) in bounds.items() if low < end}
    if not missing:
        return entries
    tail = logs.tail({topic: bounds[topic][0] for topic in missing})
    try:
        silence = 0
        while missing:
            polled = tail.poll(POLL_MS)
            silence = 0 if polled else silence + 1
            if silence % LOOK_EVERY == LOOK_EVERY - 1 and not tail.silent_ms():
                for topic in [
                    topic
                    for topic in missing
                    if is_at_end(logs, topic, entries[topic], bounds[topic][0])
                ]:
                    del missing[topic]
            if silence > PATIENCE and not is_worth_waiting(tail):
                raise Determinate(f"logs cannot be read to their ends: {sorted(missing)}")
            for entry in polled:
                entries[entry.topic].append(entry)
                if entry.offset + 1 >= missing.get(entry.topic, 0):
                    missing.pop(entry.topic, None)
    finally:
        tail.close()
    return entries


def is_at_end(logs: Logs, topic: Topic, entries: Sequence[Entry], low: Offset) -> bool:
    """Whether a log holds no further record, although its end offset is higher."""
    return logs.is_bare(topic, Offset(entries[-1].offset + 1) if entries else low)


def fetched_ahead(chunks: Chunks, pasts: Sequence[LogRange]) -> Bodies:
    """Fetch the start Rollups of many groups together; return nothing if that fails.

    It fails if some are missing; then each is fetched individually.
    """
    first = [
        (past.group.names.data, start)
        for past in pasts
        for start in (*past.earlier, *past.furthest)[:1]
    ]
    wanted = {topic: start.chunks for topic, start in first if start is not None}
    if len(wanted) < MANY:
        return {}
    try:
        bodies = chunks.fetch_all(wanted)
    except (Corrupt, Determinate):
        return {}
    return {(topic, refs): bodies[topic] for topic, refs in wanted.items()}


def rollups(entries: Sequence[Entry], skips: Skips) -> list[Rollup]:
    """The Rollups among the entries, the latest first. The fold reports unreadable ones."""
    rollups_ = []
    for entry in entries:
        if codec.name_of(entry.value) == ROLLUP and entry.offset not in skips:
            with suppress(Corrupt):
                rollups_.append(decode(entry).body)
    bodies = [body for body in rollups_ if isinstance(body, Rollup)]
    return sorted(bodies, key=lambda body: body.upto, reverse=True)
