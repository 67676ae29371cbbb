"""ALTER SOURCE ... RESUME FROM: continues a stalled source at other offsets.

The offsets are looked up once and written to the catalog. From there they get into the
source's description, and a replica begins the generation with its next Append, which keeps the
binding of the one before (`streams.compute.binding`). So what was skipped follows from two
records: where a generation ended is in the shard, where the next one began is in the catalog.

A source with a watermark has pending rows besides, which are in no shard. In the same topic it
takes them over as far as the topic holds them (`streams.compute.continuation`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from streams.adapter.catalog import Catalog, Item, Resume
from streams.adapter.ddl import read_topic
from streams.adapter.offsets import offsets
from streams.adapter.results import Complete, Notice, Result
from streams.adapter.source_by_name import source_by_name
from streams.compute import binding, continuation, dead_letters
from streams.compute.continuation import Wanted
from streams.compute.description import IngestionDescription, Start
from streams.compute.protocol import Status
from streams.compute.reclocking import Ends, read_positions
from streams.compute.stalls import (
    OVER_LIMIT,
    SETTLED,
    Stalled,
    TopicReport,
    bad_message,
    is_of_topic,
    lost_ends,
    reading_obstacle,
)
from streams.errors import InvalidStatement
from streams.kafka.topics import Topics
from streams.plan.sql.offsets import Offsets, ResumeSource


@dataclass(frozen=True, slots=True)
class Bindings:
    """What the shard binds of a source and of its dead letters, empty without any."""

    source: Mapping[int, int]
    letters: Mapping[int, int]


def source(name: str, catalog: Catalog) -> Item:
    """Return the source of this name. Errors: InvalidStatement."""
    return source_by_name(name, catalog, "sources alone resume elsewhere")


def resume(
    statement: ResumeSource,
    item: Item,
    topics: Topics,
    namespace: str,
    written: Bindings,
    status: Status | None,
) -> Resume:
    """Return the event; `status` is what replicas say.

    Errors: InvalidStatement, also if nothing keeps the source from reading on; Determinate.
    """
    read = item.source
    assert read is not None, "an item of `source` has a source"
    _refuse_over_limit(item, status)
    bound, settled = written.source, _settled(read, written.letters)
    if not _is_stalled(read, bound, settled, status, topics):
        raise InvalidStatement(
            f"source {item.name} is not stalled",
            "it can continue from its current offsets, so nothing has to be skipped",
            "to read the topic again, create another source with START FROM",
        )
    generation = read.start.generation + 1
    if generation > binding.LAST:
        raise InvalidStatement(
            f"source {item.name} has resumed {read.start.generation:,} times",
            "expected at most as many",
            "create another source with START FROM",
        )
    topic, topic_id = read_topic(statement.topic or read.topic, topics, namespace)
    positions = offsets(statement.place, topic, topics)
    if isinstance(statement.place, Offsets) and topic_id == read.topic_id:
        positions = _with_others(statement.place, read, bound, positions)
    start = Start(generation, positions)
    if read.watermark is not None and topic_id == read.topic_id:
        said = "" if status is None else status.message
        start = _continued(read, bound, settled, dict(positions), topics, said)
    return Resume(item.id, topic, topic_id, start)


def _settled(read: IngestionDescription, letters: Mapping[int, int]) -> Mapping[int, int]:
    """Return how far dead letters are written; by times of ingestion they are no further."""
    return {} if read.watermark is None else continuation.settled(letters, read.start)


def _continued(
    read: IngestionDescription,
    bound: Mapping[int, int],
    settled: Mapping[int, int],
    places: Mapping[int, int],
    topics: Topics,
    said: str,
) -> Start:
    """Return where a source with a watermark goes on in its topic; `said` is why it stalled."""
    stood, ends = read_positions(bound, read.start), topics.ends(read.topic)
    reached = {p: max(stood.get(p, 0), settled.get(p, 0)) for p in {*stood, *settled}}
    lost = {p: int(end.high) for p, end in ends.items() if end.high < reached.get(p, 0)}
    if is_of_topic(read, said):
        lost |= {p: end for p, end in lost_ends(said).items() if end < reached.get(p, 0)}
    wanted = Wanted(
        places=places,
        lows={partition: int(end.low) for partition, end in ends.items()},
        lost=lost,
        bad=bad_message(read, said),
    )
    return continuation.resumed(read.start, bound, wanted)


def _refuse_over_limit(item: Item, status: Status | None) -> None:
    """Errors: InvalidStatement for a source at its ERROR LIMIT.

    Another replica may go on with fewer messages at once: an offset of now would be read twice.
    """
    if status is not None and status.message.startswith(OVER_LIMIT):
        raise InvalidStatement(
            f"source {item.name} is stopped by its ERROR LIMIT, not by its topic",
            "it continues from its current offsets, so nothing has to be skipped",
            f"ALTER SOURCE {item.name} SET (ERROR LIMIT ...) continues it with a new count;"
            " ERROR LIMIT NONE removes the limit",
        )


def _with_others(
    place: Offsets,
    read: IngestionDescription,
    bound: Mapping[int, int],
    positions: tuple[tuple[int, int], ...],
) -> tuple[tuple[int, int], ...]:
    """Return the offsets, where partitions that are not named go on from where they stand."""
    stood = read_positions(bound, read.start)
    named = dict(place.offsets)
    return tuple((p, named.get(p, stood.get(p, offset))) for p, offset in positions)


def _is_stalled(
    read: IngestionDescription,
    bound: Mapping[int, int],
    settled: Mapping[int, int],
    status: Status | None,
    topics: Topics,
) -> bool:
    """Whether the topic cannot be read on.

    One answer of a broker about an end that went back may be outdated; it is believed if a
    replica, which asks again and again, says that the source is stalled.
    """
    is_reported = status is not None and status.state == "stalled"
    if status is not None and is_reported and _is_lasting(read, bound, status.message):
        return True
    info = topics.describe(read.topic)
    ends = {} if info is None else topics.ends(read.topic)
    observation = TopicReport(
        None if info is None else info.id,
        {partition: Ends(*bounds) for partition, bounds in ends.items()},
        repeats=SETTLED if is_reported else 0,
    )
    return isinstance(reading_obstacle(read, bound, observation, settled), Stalled)


def _is_lasting(read: IngestionDescription, bound: Mapping[int, int], reason: str) -> bool:
    """Whether a replica's reason is the topic, or a message in it up to which all is read.

    With a watermark what is before the message need not be bound: it is read again.
    """
    place = bad_message(read, reason)
    if place is None:
        return is_of_topic(read, reason)
    partition, offset = place
    stood = read_positions(bound, read.start).get(partition, 0)
    if read.watermark is None:
        return stood >= offset
    gaps = continuation.gaps(read.start, partition)
    return stood <= offset == continuation.past(gaps, offset)


def results(item: Item) -> tuple[Result, ...]:
    """Return the results of RESUME, with a notice if skipped messages make no dead letters."""
    done = Complete("ALTER SOURCE", {"id": item.id})
    if item.dead_letters is not None:
        return (done,)
    return Notice(
        f"only the column detail of SHOW SOURCES reports what is skipped: {item.name} has no"
        f" dead letters; to record it in {item.name}{dead_letters.SUFFIX} too, run"
        f" ALTER SOURCE {item.name} SET (ON ERROR DEAD LETTER) before RESUME"
    ), done


def resumptions(item: Item, bound: Mapping[int, int]) -> str:
    """Return where a source resumed elsewhere, and what it skipped; empty if it never did."""
    if item.source is None:
        return ""
    return "; ".join(
        _resumption(before, after, bound)
        for before, after in pairwise((*item.former, item.source))
    )


def _resumption(
    before: IngestionDescription, after: IngestionDescription, bound: Mapping[int, int]
) -> str:
    began = dict(after.start.offsets)
    ended = read_positions(bound, before.start)
    if before.topic_id != after.topic_id:
        place = ", ".join(f"{p}: {offset}" for p, offset in sorted(ended.items())) or "nothing"
        return (
            f'resumed in topic "{after.topic}", id {after.topic_id}; of topic'
            f' "{before.topic}", id {before.topic_id}, it had read up to offsets {place}'
            f"{_pending(before, bound)}"
        )
    if after.start.kept is not None:
        return _continuation(before, after, bound)
    changes = [
        _change(partition, ended.get(partition, 0), offset)
        for partition, offset in sorted(began.items())
        if offset != ended.get(partition, 0)
    ]
    return f'resumed in topic "{after.topic}": {", ".join(changes) or "nothing was skipped"}'


def _pending(before: IngestionDescription, bound: Mapping[int, int]) -> str:
    """Return what was read and pending in a topic that was given up; empty if nothing was."""
    if before.watermark is None:
        return ""
    ended, released = (f(bound, before.start) for f in (read_positions, continuation.released))
    missing = [
        f"partition {partition} offsets {first} to {ended[partition] - 1}"
        for partition, first in sorted(released.items())
        if first < ended.get(partition, 0)
    ]
    return f"; rows that were pending are missing: of {', '.join(missing)}" if missing else ""


def _continuation(
    before: IngestionDescription, after: IngestionDescription, bound: Mapping[int, int]
) -> str:
    """Return how a source with a watermark went on in the topic that it had read."""
    kept, ended = after.start.kept, read_positions(bound, before.start)
    assert kept is not None, "it went on in its topic"
    changes = [
        _change(partition, ended[partition], offset)
        for partition, generation, offset in kept.returns
        if generation == after.start.generation and offset < ended.get(partition, 0)
    ]
    for partition in sorted({number for number, _, _ in kept.gaps}):
        read = ended.get(partition, 0)
        for first, end in continuation.added(before.start, after.start, partition):
            if first < read:
                lost = f"rows of offsets {first} to {min(end, read) - 1} that were pending"
                changes.append(f"partition {partition} lacks {lost}")
            if read < end:
                changes.append(_change(partition, max(first, read), end))
    return f'resumed in topic "{after.topic}": {", ".join(changes) or "nothing was skipped"}'


def _change(partition: int, ended: int, began: int) -> str:
    if began > ended:
        return f"partition {partition} skipped offsets {ended} to {began - 1}"
    return f"partition {partition} went back from offset {ended} to {began}"
