"""What others put into a log or a topic costs their own collection, and no other one."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from schemas import chunk
from streams.app.compaction import Counts, rounds
from streams.app.service_config import Service
from streams.compaction import chunk_sizes, plan
from streams.compaction.backoff import FIRST_PAUSE_MS, LONGEST_PAUSE_MS, Backoffs
from streams.compaction.merge_execution import Result, Worker
from streams.compaction.merge_task import FETCH_PIECES, Limits, bucket_count, grouped, pieces
from streams.compaction.read_ahead import Wanted
from streams.compaction.runner import Compaction, CompactionRequest
from streams.ids import CollectionId, Offset, Timestamp
from streams.kafka.log import ChunkRef
from streams.kafka.topics import MAXIMUM_RECORD_BYTES
from streams.progress import frontier
from streams.storage.client import maintenance
from streams.storage.client.shards import Shards, write_capability
from streams.storage.log.events import Append, Part
from streams.storage.policy import LagBehindUpper
from streams.storage.read import reader as read
from streams.storage.read.reader import Piece
from tests.support.shard_clients import U1, broker, client, names, rows
from tests.unit.compaction.test_runner import U2, compaction, environment, fill


def link(one: Shards, chunks: tuple[ChunkRef, ...]) -> None:
    """An Append of U1 that says what it likes of its chunks, as a foreign client's may."""
    now = one.state(U1).upper.time
    part = Part(
        collection=U1,
        capability=write_capability(U1),
        lower=frontier(now),
        upper=frontier(now + 1),
        chunks=chunks,
    )
    one.submit([("u1", Append((part,)))])


@pytest.mark.parametrize("size", [0, -1, 1 << 62, -(1 << 62)])
@pytest.mark.parametrize("count", [0, -5, 1 << 62])
def test_a_size_is_a_claim_and_decides_nothing_but_what_is_worth_its_cost(
    size: int, count: int
) -> None:
    with environment(broker(), U1, U2) as (one, job):
        for _ in range(4):
            now = one.state(U1).upper.time
            [ref] = one.write(U1, rows(f"r{now}", time=now))
            link(one, (replace(ref, size=size, rows=count),))
        fill(one, U2, 4)
        small = Worker(one, job.merging.kernel, lambda: "s", limits=Limits(bucket_bytes=64))  # type: ignore[attr-defined]
        for merging in (job.merging, small):
            job_ = Compaction(one, merging, job.collector, lambda: 0)
            done = job_.run_once(CompactionRequest(policy=LagBehindUpper(0), whole=True))
            assert done.failed == []
        assert names(read.snapshot(one, U1, Timestamp(3))[0]) == ["r0", "r1", "r2", "r3"]
        assert one.state(U2).batches.count == 1


def test_what_a_chunk_is_said_to_hold_is_bounded_by_what_a_record_can() -> None:
    def ref(size: int, count: int) -> ChunkRef:
        return ChunkRef(0, Offset(0), "k", 0, count, size)

    assert [chunk_sizes.bytes_of(ref(size, 0)) for size in (-1, 0, 7, 1 << 62)] == [
        1,
        1,
        7,
        MAXIMUM_RECORD_BYTES,
    ]
    assert chunk_sizes.rows_of(ref(10, -1)) == 0
    assert chunk_sizes.rows_of(ref(10, 3)) == 3
    assert chunk_sizes.rows_of(ref(10, 1 << 62)) == 160
    every = [Piece(ref(0, 0), Timestamp(0), Timestamp(9))] * (2 * FETCH_PIECES + 1)
    assert max(map(len, grouped(every, 1 << 30))) == FETCH_PIECES


def test_buckets_are_as_many_at_most_as_the_bytes_can_fill() -> None:
    with environment(broker()) as (one, _):
        for _ in range(2):
            now = one.state(U1).upper.time
            [ref] = one.write(U1, rows(f"r{now}", time=now))
            link(one, (replace(ref, rows=1 << 62, size=1 << 62),))
        [merge] = plan.whole(replace(one.state(U1), since=frontier(1)))
        assert len(pieces(merge)) == 2
        assert bucket_count(merge, 4, 1 << 20) <= 2 * 8 * 4 * chunk_sizes.MOST_EXPANSION


@pytest.mark.parametrize("key", [b"\xff\xfe\x00", bytes(range(128, 144)), "é".encode(), b""])
def test_a_record_under_any_key_is_garbage_and_stops_nothing(key: bytes) -> None:
    kafka = broker()
    with environment(kafka) as (one, job):
        fill(one, U1, 3)
        kafka.store.partition(one.data_topic(U1), 0).append(0, key, b"x", {})
        done = job.run_once(CompactionRequest(orphans=True))
        assert done.failed == []
        assert len(done.reclaimed) == 1
        records = kafka.store.partition(one.data_topic(U1), 0).records
        assert not [
            record for record in records if record.key == key and record.value is not None
        ]
        assert names(read.snapshot(one, U1, Timestamp(2))[0]) == ["r0", "r1", "r2"]


class Broken:
    """Fails with what nobody foresaw, for one collection, until its cause goes."""

    def __init__(self, inner: Worker) -> None:
        self.inner, self.is_broken, self.asked = inner, True, 0

    def compact_all(self, merges: Sequence[Wanted]) -> list[Result]:
        if self.is_broken and any(collection == U1 for collection, _ in merges):
            self.asked += 1
            raise KeyError("nobody foresaw this")
        return self.inner.compact_all(merges)  # type: ignore[return-value]


def test_a_chunk_that_is_none_fails_its_own_collection() -> None:
    with environment(broker(), U1, U2) as (one, job):
        topic = one.data_topic(U1)
        refs = one.chunks.write(topic, [(b"no arrow stream", 1)] * 2, {})
        link(one, refs[:1])
        link(one, refs[1:])
        fill(one, U2, 4)
        done = job.run_once(CompactionRequest(policy=LagBehindUpper(0)))
        assert [merged.collection for merged in done.compacted] == [U2]
        assert [failure.collection for failure in done.failed] == [U1]


def test_a_chunk_of_another_schema_fails_its_own_collection() -> None:
    """Arrow raises what is no error of ours."""
    with environment(broker(), U1, U2) as (one, job):
        for _ in range(2):
            now = one.state(U1).upper.time
            wrong = rows(f"r{now}", time=now).drop_columns("c1")
            [(body, count)] = chunk.encode(wrong, ["name"])
            link(one, one.chunks.write(one.data_topic(U1), [(body, count)], {}))
        fill(one, U2, 4)
        done = job.run_once(CompactionRequest(policy=LagBehindUpper(0)))
        assert [merged.collection for merged in done.compacted] == [U2]
        assert [failure.collection for failure in done.failed] == [U1]


def test_a_plan_that_fails_is_its_collections_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = plan.geometric

    def planned(state):
        if state.id == U1:
            raise ValueError("math domain error")
        return inner(state)

    monkeypatch.setattr(plan, "geometric", planned)
    with environment(broker(), U1, U2) as (one, job):
        fill(one, U1, 4)
        fill(one, U2, 4)
        done = job.run_once(CompactionRequest())
        assert [merged.collection for merged in done.compacted] == [U2]
        assert [(failure.collection, failure.reason) for failure in done.failed] == [
            (U1, "ValueError: math domain error")
        ]


def test_a_rollup_that_fails_keeps_no_garbage_and_no_other_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenance, "LEAST_EVENTS", 1)
    inner, broken = maintenance.roll_up, {"u1"}

    def roll_up(shards, group):
        if group in broken:
            raise ValueError("int too big")
        return inner(shards, group)

    monkeypatch.setattr(maintenance, "roll_up", roll_up)
    with environment(broker(), U1, U2) as (one, job):
        fill(one, U1, 70)
        fill(one, U2, 70)
        done = job.run_once(CompactionRequest(policy=LagBehindUpper(0)))
        assert done.rolled_up == ["u2"]
        assert [failure.collection for failure in done.failed] == ["group u1: rollup"]
        assert len(done.reclaimed) == 140
        maintenance.keep_small(one)  # as a replica does it; raises nothing


def test_what_fails_rests_longer_each_time_and_heals_when_the_cause_goes() -> None:
    now = [0]
    with environment(broker(), U1) as (one, job):
        broken = Broken(job.merging)  # type: ignore[arg-type]
        resting = Compaction(one, broken, job.collector, lambda: now[0])  # type: ignore[arg-type]
        fill(one, U1, 4)
        assert [
            failure.collection for failure in resting.run_once(CompactionRequest()).failed
        ] == [U1]
        assert resting.run_once(CompactionRequest()).failed == []
        assert broken.asked == 1
        now[0] += FIRST_PAUSE_MS
        assert len(resting.run_once(CompactionRequest()).failed) == 1
        now[0] += FIRST_PAUSE_MS
        assert resting.run_once(CompactionRequest()).failed == []
        broken.is_broken = False
        now[0] += FIRST_PAUSE_MS
        assert len(resting.run_once(CompactionRequest()).compacted) == 1


def test_a_rest_has_an_end_whatever_the_clock_does() -> None:
    now = [10_000_000]
    rests = Backoffs(lambda: now[0])
    for _ in range(100):
        rests.failed("u1")
    assert not rests.is_due("u1")
    assert rests.is_due("u2")
    now[0] -= 5_000_000
    assert rests.is_due("u1")
    now[0] += 5_000_000 + LONGEST_PAUSE_MS
    assert rests.is_due("u1")
    rests.worked("u1")
    now[0] = 0
    assert rests.is_due("u1")


def test_a_group_that_cannot_be_opened_leaves_the_service_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka = broker()
    with environment(kafka, U1, U2) as (writer, _):
        fill(writer, U1, 4)
        fill(writer, U2, 4)
        with client(kafka, pump=True) as one:
            inner, tried, stopping = Shards.open, [], Stopping(3)

            def opened(shards, *groups):
                tried.append(groups)
                if "u1" in groups:
                    raise KeyError("a Rollup that nobody can read")
                return inner(shards, *groups)

            monkeypatch.setattr(Shards, "open", opened)
            service = Service(bootstrap="memory:0", directory="", compact_every_s=0.001)
            job = compaction(kafka, one)
            assert rounds(kafka.topics, job, service, stopping, Counts()) == 0  # type: ignore[arg-type]
            assert one.groups() == ("u2",)
            assert one.state(CollectionId("u2")).batches.count == 1
            assert tried.count(("u1",)) == 1


class Stopping:
    """Set after so many rounds."""

    def __init__(self, count: int) -> None:
        self.left = count

    def wait(self, _: float) -> bool:
        self.left -= 1
        return self.left < 0
