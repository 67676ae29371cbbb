"""Fetches the chunks of small merges in one data topic together.

Views that share a group write to one data topic, so that the small chunks of one lie between
those of the others, and a fetch of one view's reads them all. Merges whose chunks are fetched
together read the topic once.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from streams.compaction.plan import Merge
from streams.errors import SlackwaterError
from streams.ids import CollectionId, Topic
from streams.kafka.log import ChunkRef

Wanted = tuple[CollectionId, Merge]
"""A merge, and its collection."""

Fetch = Callable[[Topic, Sequence[ChunkRef]], list[bytes]]
"""Fetches the bodies of chunks of a data topic."""

MOST_BYTES = 16 << 20
"""Bytes of the chunks that are fetched together; a merge of more is fetched alone."""

MOST_CHUNKS = 1024
"""Maximum of chunks that are fetched together."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The chunks of a few merges. What is not among them is fetched when it is asked for."""

    fetch_others: Fetch
    bodies: Mapping[tuple[Topic, ChunkRef], bytes] = field(default_factory=dict)

    def fetch(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[bytes]:
        """Return the bodies of chunks. Errors: as `Chunks.fetch`."""
        bodies = [self.bodies.get((topic, ref)) for ref in refs]
        present = [body for body in bodies if body is not None]
        return present if len(present) == len(refs) else self.fetch_others(topic, refs)


def fetched(fetch: Fetch, topic: Topic, merges: Iterable[Merge]) -> Fetched:
    """Fetch the chunks of merges of a topic; none if that fails: each merge then tells."""
    refs = list(dict.fromkeys(ref for merge in merges for ref in chunks_of(merge)))
    try:
        bodies = fetch(topic, refs)
    except SlackwaterError:
        return Fetched(fetch)
    return Fetched(fetch, {(topic, ref): body for ref, body in zip(refs, bodies, strict=True)})


def lots(
    wanted: Sequence[Wanted], topic_of: Callable[[CollectionId], Topic | None]
) -> Iterator[tuple[Topic | None, list[Wanted]]]:
    """Divide merges into lots of one topic and bounded bytes; small ones remain the first."""
    by_topic = defaultdict[Topic | None, list[Wanted]](list)
    for name, merge in wanted:
        by_topic[topic_of(name)].append((name, merge))
    parted = [(topic, lot) for topic, merges in by_topic.items() for lot in _parted(merges)]
    yield from sorted(parted, key=lambda entry: entry[1][-1][1].size)


def _parted(merges: Sequence[Wanted]) -> Iterator[list[Wanted]]:
    lot: list[Wanted] = []
    size = count = 0
    for name, merge in merges:
        chunks = len(chunks_of(merge))
        if lot and (size + merge.size > MOST_BYTES or count + chunks > MOST_CHUNKS):
            yield lot
            lot, size, count = [], 0, 0
        lot.append((name, merge))
        size, count = size + merge.size, count + chunks
    if lot:
        yield lot


def chunks_of(merge: Merge) -> list[ChunkRef]:
    """Return the chunks that a merge reads."""
    return [ref for batch in merge.batches for ref in batch.chunks]
