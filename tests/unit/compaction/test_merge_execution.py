"""A merge: contents stay at every time from since on, races and deaths leave garbage only."""

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from schemas import chunk
from streams.compaction import plan, staging
from streams.compaction.merge_execution import Compacted, LostRace, Worker
from streams.compaction.merge_task import Limits, grouped, pieces
from streams.errors import Corrupt, Determinate, Indeterminate
from streams.ids import CapabilityId, Timestamp, Topic
from streams.kafka.log import ChunkRef, Chunks
from streams.kafka.memory import store as memory_store
from streams.kafka.memory.faulty import Fault, FaultyChunks, FaultyLogs
from streams.kafka.topics import MAXIMUM_RECORD_BYTES
from streams.progress import EMPTY, END, frontier
from streams.storage.client import maintenance
from streams.storage.client.handles import ReadCapability
from streams.storage.client.shards import Shards, write_capability
from streams.storage.log.column_stats import LEAST_ROWS
from streams.storage.log.events import Append, Downgrade, Part, Reclaim
from streams.storage.read import reader as read
from streams.storage.read.options import Comparison, Operator, Options
from streams.storage.read.subscription import Subscription
from streams.trace.kernel.kernel import Kernel
from tests.support.shard_clients import DESCRIPTION, U1, append, broker, client, rows

HOLD = CapabilityId("u1.catalog")
KERNEL = Kernel()


def create(one: Shards) -> None:
    one.create("u1", U1, DESCRIPTION, Timestamp(0), read=HOLD)


def allow(one: Shards, since: int) -> None:
    one.submit([("u1", Downgrade(collection=U1, capability=HOLD, frontier=frontier(since)))])


def worker(one: Shards, bucket_bytes: int = 1 << 30, scratch: Path | None = None) -> Worker:
    numbers = itertools.count()
    limits = Limits(bucket_bytes, fetch_bytes=1000)
    return Worker(one, KERNEL, lambda: f"stage-{next(numbers)}", scratch, limits)


def contents(one: Shards, time: int) -> Counter[tuple[object, ...]]:
    updates, errors = read.snapshot(one, U1, Timestamp(time))
    total: Counter[tuple[object, ...]] = Counter()
    for row in updates.to_pylist():
        total[row["c0"], row["c1"]] += row["diff"]
    for row in errors.to_pylist():
        total["error", row["error"]] += row["diff"]
    return Counter({row: count for row, count in total.items() if count})


def history(one: Shards, count: int = 12) -> None:
    """Rows that come and go, `r3` and its like staying."""
    for at in range(count):
        tables = [rows(f"r{at}", time=at)]
        if at % 3 and at:
            tables.append(rows(f"r{at - 1}", time=at, diff=-1))
        append(one, at, at + 1, *tables)


def compact(to: Worker, *, whole: bool = False) -> list[object]:
    planned = (plan.whole if whole else plan.geometric)(to.shards.state(U1))
    return [to.compact(U1, merge) for merge in planned]


@pytest.mark.parametrize("bucket_bytes", [1 << 30, 2000])
def test_contents_stay_and_history_goes(bucket_bytes: int) -> None:
    with client(broker()) as one:
        create(one)
        history(one)
        before = {time: contents(one, time) for time in range(12)}
        allow(one, 8)
        [done] = compact(worker(one, bucket_bytes=bucket_bytes), whole=True)
        assert isinstance(done, Compacted)
        assert (done.batches, done.lower, done.upper) == (12, 0, frontier(12))
        assert done.rows_written < done.rows_read
        assert {time: contents(one, time) for time in range(8, 12)} == {
            time: before[time] for time in range(8, 12)
        }
        assert one.state(U1).batches.count == 1
        [batch] = one.state(U1).batches
        times = read.load(one.chunks, one.data_topic(U1), pieces_of(one))[0].column("time")
        assert min(times.to_pylist()) == 8
        assert batch.since == 8


def pieces_of(one: Shards) -> tuple[read.Piece, ...]:
    return read.pieces(one.state(U1), Timestamp(0), END)


def test_a_chunk_is_clipped_to_the_interval_of_its_batch() -> None:
    """A chunk that was linked twice has updates that do not count (rule 16)."""
    with client(broker()) as one:
        create(one)
        append(one, 0, 5, rows("winner", time=3))
        chunks = one.write(U1, pa.concat_tables([rows("x", time=3), rows("late", time=7)]))
        part = Part(
            collection=U1,
            capability=write_capability(U1),
            lower=frontier(5),
            upper=frontier(10),
            chunks=chunks,
        )
        one.submit([("u1", Append((part,)))])
        allow(one, 9)
        [done] = compact(worker(one), whole=True)
        assert isinstance(done, Compacted)
        assert contents(one, 9) == Counter({("winner", 0): 1, ("late", 0): 1})


def test_what_cancels_leaves_an_empty_batch() -> None:
    with client(broker()) as one:
        create(one)
        append(one, 0, 1, rows("a", time=0))
        append(one, 1, 2, rows("a", time=1, diff=-1))
        allow(one, 1)
        [done] = compact(worker(one))
        assert isinstance(done, Compacted)
        assert (done.rows_read, done.rows_written, done.bytes_written) == (2, 0, 0)
        assert contents(one, 1) == Counter()


@pytest.mark.parametrize("bucket_bytes", [1 << 30, 300])
def test_errors_are_compacted_like_rows(bucket_bytes: int) -> None:
    with client(broker()) as one:
        create(one)
        for at, (text, diff) in enumerate([("bad", 1), ("worse", 1), ("bad", -1)]):
            errors = pa.table({"error": [text], "time": [at], "diff": [diff]})
            part = Part(
                collection=U1,
                capability=write_capability(U1),
                lower=frontier(at),
                upper=frontier(at + 1),
                chunks=one.write(U1, rows("a", time=at), errors),
            )
            one.submit([("u1", Append((part,)))])
        allow(one, 2)
        [done] = compact(worker(one, bucket_bytes=bucket_bytes))
        assert isinstance(done, Compacted)
        assert contents(one, 2) == Counter({("a", 0): 3, ("error", "worse"): 1})


def wide(count: int, time: int) -> pa.Table:
    return rows(*[f"r{time}{number:03}" for number in range(count)], time=time)


@pytest.mark.parametrize("bucket_bytes", [1 << 30, 30_000])
def test_filters_leave_merged_chunks_where_they_are(bucket_bytes: int) -> None:
    """Small chunks have no ranges; what they are merged into has."""
    with client(broker()) as one:
        create(one)
        for at in range(4):
            append(one, at, at + 1, wide(200, at))
        allow(one, 3)
        [done] = compact(worker(one, bucket_bytes=bucket_bytes), whole=True)
        assert isinstance(done, Compacted)
        merged = [chunk for batch in one.state(U1).batches for chunk in batch.chunks]
        assert sum(chunk.rows for chunk in merged) == 800
        for chunk in merged:
            assert chunk.rows >= LEAST_ROWS
            names, sizes = chunk.ranges
            assert names is not None
            assert sizes is not None
            assert "r0000" <= str(names.low) < "r0100"
            assert "r3099" < str(names.high) <= "r3199"
            assert 0 <= float(sizes.low) < float(sizes.high) <= 199
        for value, count in [(199, 4), (200, 0)]:
            fetched: list[int] = []
            counted = Counted(one.chunks, fetched)
            one.chunks = counted
            assert found(one, Comparison("size", Operator.GREATER_EQUAL, value)) == count
            assert bool(fetched) == bool(count)
            one.chunks = counted.inner


def test_chunks_with_errors_are_for_every_reader() -> None:
    with client(broker()) as one:
        create(one)
        wrong = pa.table({"error": ["bad"], "time": [0], "diff": [1]})
        part = Part(
            collection=U1,
            capability=write_capability(U1),
            lower=frontier(0),
            upper=frontier(1),
            chunks=one.write(U1, wide(300, 0), wrong),
        )
        one.submit([("u1", Append((part,)))])
        append(one, 1, 2, wide(300, 1))
        allow(one, 1)
        [done] = compact(worker(one), whole=True)
        assert isinstance(done, Compacted)
        [batch] = one.state(U1).batches
        assert [chunk.ranges for chunk in batch.chunks] == [()]


class Counted:
    """Chunks; how many are asked for is noted."""

    def __init__(self, inner: Chunks, fetched: list[int]) -> None:
        self.inner, self._fetched = inner, fetched

    def fetch(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[bytes]:
        self._fetched.append(len(refs))
        return self.inner.fetch(topic, refs)

    def __getattr__(self, name: str):
        return getattr(self.inner, name)


def found(one: Shards, where: Comparison) -> int:
    """How many rows a subscriber is given who filters."""
    capability = ReadCapability(U1, one.state(U1).since, HOLD)
    options = Options(where=(where,), until=Timestamp(4))
    every = Subscription(one, capability, DESCRIPTION, options)
    return sum(delivery.updates.num_rows for delivery in every)


def test_a_sealed_collection_is_compacted() -> None:
    with client(broker()) as one:
        create(one)
        append(one, 0, 5, rows("a", time=1))
        append(one, 5, None, rows("b", time=7))
        allow(one, 6)
        [done] = compact(worker(one), whole=True)
        assert isinstance(done, Compacted)
        assert done.upper == EMPTY
        assert contents(one, 7) == Counter({("a", 0): 1, ("b", 0): 1})
        assert contents(one, 6) == Counter({("a", 0): 1})


def test_a_second_compactor_loses_and_changes_nothing() -> None:
    kafka = broker()
    with client(kafka) as one, client(kafka) as other:
        create(one)
        history(one)
        allow(one, 11)
        other.open("u1")
        planned = plan.whole(other.state(U1))
        [done] = compact(worker(one), whole=True)
        assert isinstance(done, Compacted)
        expected = contents(one, 11)
        lost = worker(other).compact(U1, planned[0])
        assert lost == LostRace(U1, "another compactor was faster")
        other.sync(U1)
        assert contents(other, 11) == expected
        assert other.state(U1) == one.state(U1)


def test_chunks_that_were_reclaimed_meanwhile_are_a_lost_race() -> None:
    kafka = broker()
    with client(kafka) as one, client(kafka) as other:
        create(one)
        history(one)
        allow(one, 11)
        other.open("u1")
        planned = plan.whole(other.state(U1))
        compact(worker(one), whole=True)
        maintenance.collect(one, "u1")
        lost = worker(other).compact(U1, planned[0])
        assert isinstance(lost, LostRace)
        assert "while they were read" in lost.reason


def test_a_missing_chunk_that_is_still_current_is_corrupt() -> None:
    with client(broker()) as one:
        create(one)
        history(one)
        allow(one, 11)
        first = next(iter(one.state(U1).batches))
        one.chunks.forget(one.data_topic(U1), first.chunks)
        with pytest.raises(Corrupt, match=r"sw\.u1\.data"):
            compact(worker(one), whole=True)


@pytest.mark.parametrize("bucket_bytes", [1 << 30, 2000])
def test_a_collector_that_is_faster_makes_the_merge_void(bucket_bytes: int) -> None:
    """Rule 7: chunks below the floor that nothing names are void; staged ones are named."""
    kafka = broker()
    with client(kafka) as one, client(kafka) as other:
        create(one)
        other.open("u1")
        history(one)
        allow(one, 11)
        expected = contents(one, 11)
        inner, written = one.chunks, list[int]()

        class Eager(FaultyChunks):
            def write(self, topic, bodies, headers):
                refs = inner.write(topic, bodies, headers)
                written.append(len(refs))
                if len(written) == 1:
                    other.submit([("u1", Reclaim(dict.fromkeys(range(4), 1 << 20)))])
                return refs

        one.chunks = Eager(inner)
        lost = compact(worker(one, bucket_bytes=bucket_bytes), whole=True)
        assert lost == [LostRace(U1, "a collector was faster: the merge will be retried")]
        assert contents(one, 11) == expected


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER, Fault.INSTEAD])
@pytest.mark.parametrize("bucket_bytes", [1 << 30, 2000])
def test_a_fault_at_any_write_leaves_the_contents(fault: Fault, bucket_bytes: int) -> None:
    for clean in range(20):
        kafka = broker()
        with client(kafka) as one:
            create(one)
            history(one)
            allow(one, 8)
            expected = {time: contents(one, time) for time in range(8, 12)}
            one.chunks = FaultyChunks(one.chunks, [*[Fault.NONE] * clean, fault])
            failures: list[str] = []
            try:
                compact(worker(one, bucket_bytes=bucket_bytes), whole=True)
            except (Determinate, Indeterminate) as failure:
                failures.append(str(failure))
            ended = not failures
            assert all("injected" in failure for failure in failures)
            assert {time: contents(one, time) for time in range(8, 12)} == expected
        if ended:
            return
    raise AssertionError("the merge writes more often than expected")


def test_a_replace_in_doubt_is_resolved_by_reading_back() -> None:
    kafka = broker()
    logs = FaultyLogs(kafka.logs)
    with client(kafka, logs=logs) as one:
        create(one)
        history(one)
        allow(one, 11)
        expected = contents(one, 11)
        logs._plan = iter([Fault.AFTER])
        [done] = compact(worker(one), whole=True)
        assert isinstance(done, Compacted)
        assert contents(one, 11) == expected


def test_scratch_space_is_left_empty(tmp_path: Path) -> None:
    with client(broker()) as one:
        create(one)
        history(one)
        allow(one, 11)
        spilling = worker(one, 2000, tmp_path)
        assert isinstance(compact(spilling, whole=True)[0], Compacted)
        assert list(tmp_path.iterdir()) == []


def test_pieces_are_fetched_a_few_at_a_time() -> None:
    with client(broker()) as one:
        create(one)
        history(one, 6)
        [merge] = plan.whole(one.state(U1))
        selected = pieces(merge)
        assert [len(group) for group in grouped(selected, 1)] == [1] * len(selected)
        assert [len(group) for group in grouped(selected, 1 << 30)] == [len(selected)]
        assert list(grouped((), 1)) == []


def test_a_merged_batch_may_have_more_chunks_than_an_event_can_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its Replace names a stage; nothing of it is left when the merge is done."""
    monkeypatch.setattr(memory_store, "MAXIMUM_RECORD_BYTES", 6_000)
    monkeypatch.setattr(staging, "LARGEST_EVENT_BYTES", 5_500)
    with client(broker()) as one:
        create(one)
        for at in range(0, 120, 2):
            append(one, at, at + 2, rows(f"r{at}", f"s{at}", time=at), rows(f"t{at}", time=at))
        before = contents(one, 119)
        allow(one, 119)
        [done] = compact(worker(one, bucket_bytes=500), whole=True)
        assert isinstance(done, Compacted)
        assert contents(one, 119) == before
        [batch] = one.state(U1).batches
        assert len(batch.chunks) > 100
        append(one, 120, 121)
        assert one.group_state("u1").stages == {}


def test_a_whole_merge_names_no_more_batches_than_an_event_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan, "MOST_BATCHES", 5)
    with client(broker()) as one:
        create(one)
        history(one, 12)
        allow(one, 11)
        for planned in (plan.whole, plan.geometric):
            assert [len(merge.batches) for merge in planned(one.state(U1))] == [5, 5, 2]
        assert [type(event) for event in compact(worker(one), whole=True)] == [Compacted] * 3


def test_a_row_that_fits_as_zstd_alone_is_merged() -> None:
    """Hexadecimal digits: LZ4 leaves them as they are, zstd takes half of them away."""
    with client(broker()) as one:
        create(one)
        large = rows("x", time=0).set_column(
            0, "c0", pa.array([Random(7).randbytes(6_500_000).hex()])
        )
        before = large.column("c0")[0].as_py()
        [(body, count)] = chunk.encode(large, ["name", "size"])
        assert len(body) < MAXIMUM_RECORD_BYTES
        link(one, one.chunks.write(one.data_topic(U1), [(body, count)], {}))
        append(one, 1, 2, rows("b", time=1))
        allow(one, 1)
        [done] = compact(worker(one), whole=True)
        assert isinstance(done, Compacted)
        assert contents(one, 1) == Counter({(before, 0): 1, ("b", 0): 1})


def link(one: Shards, chunks: tuple[ChunkRef, ...]) -> None:
    part = Part(
        collection=U1,
        capability=write_capability(U1),
        lower=frontier(0),
        upper=frontier(1),
        chunks=chunks,
    )
    one.submit([("u1", Append((part,)))])
