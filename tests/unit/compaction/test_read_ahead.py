"""Merges of views in one data topic read it once."""

import itertools
from collections.abc import Callable, Sequence

import pytest

from streams.compaction import plan, read_ahead
from streams.compaction.merge_execution import Compacted, Failed, Worker
from streams.compaction.plan import Merge
from streams.compaction.read_ahead import Wanted, lots
from streams.errors import Corrupt
from streams.ids import CollectionId, Offset, Timestamp, Topic
from streams.kafka.log import ChunkRef
from streams.progress import frontier
from streams.storage.client.shards import Shards, write_capability
from streams.storage.log.batches import Batch
from streams.storage.log.events import Append, Part
from streams.storage.read import reader as read
from streams.trace.kernel.kernel import Kernel
from tests.support.shard_clients import DESCRIPTION, broker, client, rows

IDS = [CollectionId(f"u{number}") for number in range(1, 6)]
TIMES = 8


@pytest.fixture
def one():
    """Five collections of one group, whose chunks alternate, and one in another."""
    with client(broker()) as shards:
        for id_ in IDS:
            group = "g1" if id_ != IDS[-1] else "own"
            shards.create(group, id_, DESCRIPTION, Timestamp(0))
        for time in range(TIMES):
            written = shards.write_all([(id_, rows(f"{id_}-{time}", time=time)) for id_ in IDS])
            parts = [
                (shards.group_of(id_), Append((part(id_, time, chunks),)))
                for id_, chunks in zip(IDS, written, strict=True)
            ]
            shards.submit(parts)
        yield shards


def part(id_: CollectionId, time: int, chunks: tuple[ChunkRef, ...]) -> Part:
    return Part(
        collection=id_,
        capability=write_capability(id_),
        lower=frontier(time),
        upper=frontier(time + 1),
        chunks=chunks,
    )


def planned(one: Shards) -> list[Wanted]:
    return [(id_, merge) for id_ in IDS for merge in plan.whole(one.state(id_))]


def watched(
    one: Shards, monkeypatch: pytest.MonkeyPatch, fail: Callable[[Sequence[ChunkRef]], bool]
) -> list[int]:
    """The number of chunks of each fetch from here on; those that `fail` are damaged."""
    counts: list[int] = []
    real = one.chunks.fetch

    def fetch(topic: Topic, refs: Sequence[ChunkRef]) -> list[bytes]:
        counts.append(len(refs))
        if fail(refs):
            raise Corrupt("chunk is damaged")
        return real(topic, refs)

    monkeypatch.setattr(one.chunks, "fetch", fetch)
    return counts


def worker(one: Shards) -> Worker:
    numbers = itertools.count()
    return Worker(one, Kernel(), lambda: f"stage-{next(numbers)}")


def names(one: Shards, id_: CollectionId) -> list[str]:
    updates, _ = read.snapshot(one, id_, Timestamp(TIMES - 1))
    return sorted(updates.column("c0").to_pylist())


def test_a_data_topic_is_read_once_for_all_merges(
    one: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = watched(one, monkeypatch, lambda _: False)
    results = worker(one).compact_all(planned(one))
    assert {result.collection for result in results} == set(IDS)
    assert all(isinstance(result, Compacted) for result in results)
    assert sorted(counts) == [TIMES, 4 * TIMES]
    for id_ in IDS:
        assert names(one, id_) == [f"{id_}-{time}" for time in range(TIMES)]
        assert one.state(id_).batches.count == 1


def test_a_damaged_chunk_fails_the_merge_that_reads_it_alone(
    one: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = next(iter(next(iter(one.state(IDS[1]).batches)).chunks))
    watched(one, monkeypatch, lambda refs: damaged in refs)
    results = worker(one).compact_all(planned(one))
    failed = [result for result in results if isinstance(result, Failed)]
    assert [(result.collection, result.reason) for result in failed] == [
        (IDS[1], "chunk is damaged")
    ]
    assert len(results) == len(IDS)


def test_what_is_asked_for_beside_the_merges_is_fetched(one: Shards) -> None:
    (merge,) = plan.whole(one.state(IDS[0]))
    topic = one.data_topic(IDS[0])
    ahead = read_ahead.fetched(one.chunks.fetch, topic, [merge])
    others = read_ahead.chunks_of(plan.whole(one.state(IDS[1]))[0])
    both = [*read_ahead.chunks_of(merge)[:2], *others[:2]]
    assert ahead.fetch(topic, both) == one.chunks.fetch(topic, both)


def merge_of(size: int, chunks: int = 1) -> Merge:
    refs = tuple(
        ChunkRef(0, Offset(number), f"{size}-{number}", 0, 1, size // chunks)
        for number in range(chunks)
    )
    return Merge(
        (Batch(Timestamp(0), frontier(1), refs, Offset(0), 0, Timestamp(0), None),),
        Timestamp(0),
    )


def test_lots_are_of_one_topic_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "MOST_BYTES", 1_000)
    monkeypatch.setattr(read_ahead, "MOST_CHUNKS", 6)
    one, two = Topic("one"), Topic("two")
    topics = {"a": one, "b": two, "c": one, "d": one, "e": two, "f": two, "g": None}
    sizes = {"a": 10, "b": 20, "c": 30, "d": 980, "e": 40, "f": 5_000, "g": 15}
    wanted = [
        (CollectionId(name), merge_of(size, 4 if name == "b" else 1))
        for name, size in sorted(sizes.items(), key=lambda entry: entry[1])
    ]
    divided = [
        (topic, [name for name, _ in merges])
        for topic, merges in lots(wanted, lambda id_: topics[id_])
    ]
    assert divided == [
        (None, ["g"]),
        ("one", ["a", "c"]),
        ("two", ["b", "e"]),
        ("one", ["d"]),
        ("two", ["f"]),
    ]
