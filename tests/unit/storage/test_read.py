"""Reads: pieces are clipped, snapshots and changes add up, missing chunks are noticed."""

import itertools
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.chunk import ERRORS
from streams.errors import Corrupt, InvalidUsage
from streams.ids import CapabilityId, CollectionId, Timestamp, Topic
from streams.kafka.log import ChunkRef, Range
from streams.kafka.memory.logs import MemoryBroker
from streams.progress import EMPTY, END, frontier
from streams.storage.client import maintenance
from streams.storage.client.shards import Shards, write_capability
from streams.storage.description import Description
from streams.storage.log.events import Append, Downgrade, Part, Replace
from streams.storage.log.outcomes import Downgraded, Replaced
from streams.storage.read import reader as read
from tests.support.examples import examples

U1 = CollectionId("u1")
HOLD = CapabilityId("u1.read")
Row = tuple[str, int, int]
LAW = examples(40)


@pytest.fixture
def shards() -> Iterator[Shards]:
    opened = fresh()
    yield opened
    opened.close()


def fresh() -> Shards:
    ticks = itertools.count(1_000, 10)
    broker = MemoryBroker(lambda: next(ticks))
    opened = Shards(broker.logs, broker.chunks, broker.topics, now_ms=lambda: 0)
    description = Description((("name", "VARCHAR"),))
    opened.create("u1", U1, description, Timestamp(0), read=HOLD)
    return opened


def table(rows: list[Row]) -> pa.Table:
    return pa.table(
        {
            "c0": pa.array([name for name, _, _ in rows], pa.utf8()),
            "time": pa.array([time for _, time, _ in rows], pa.int64()),
            "diff": pa.array([diff for _, _, diff in rows], pa.int64()),
        }
    )


def append(to: Shards, lower: int, upper: int | None, rows: list[Row], errors=None) -> None:
    part = Part(
        collection=U1,
        capability=write_capability(U1),
        lower=frontier(lower),
        upper=EMPTY if upper is None else frontier(upper),
        chunks=to.write(U1, table(rows), errors),
    )
    to.submit([("u1", Append((part,)))])


def test_written_rows_have_ranges_also_beside_an_empty_table_of_errors(shards: Shards) -> None:
    rows = table([(f"{number:03}", 1, 1) for number in range(256)])
    bounds = [(Range("000", "255"),)]
    none = pa.table({name: [] for name in ("error", "time", "diff")}, schema=ERRORS)
    one = pa.table({"error": ["bad"], "time": [1], "diff": [1]}, schema=ERRORS)
    assert [chunk.ranges for chunk in shards.write(U1, rows)] == bounds
    assert [chunk.ranges for chunk in shards.write(U1, rows, none)] == bounds
    assert [chunk.ranges for chunk in shards.write(U1, rows, one)] == [()]


def total(*tables: pa.Table) -> dict[str, int]:
    """The multiset that updates add up to."""
    sums: dict[str, int] = {}
    for rows in tables:
        for row in rows.to_pylist():
            sums[row["c0"]] = sums.get(row["c0"], 0) + row["diff"]
    return {name: count for name, count in sums.items() if count}


UPDATES = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 29), st.sampled_from([1, 1, -1])),
    max_size=30,
)
CUTS = st.sets(st.integers(1, 29), max_size=6)


@LAW
@given(UPDATES, CUTS, st.integers(0, 29), st.data())
def test_snapshot_and_changes_are_a_later_snapshot(
    updates: list[Row], cuts: set[int], as_of: int, data: st.DataObject
) -> None:
    shards = fresh()
    for lower, upper in itertools.pairwise([0, *sorted(cuts), 30]):
        append(shards, lower, upper, [row for row in updates if lower <= row[1] < upper])
    later = data.draw(st.integers(as_of, 29))
    first, _ = read.snapshot(shards, U1, Timestamp(as_of))
    changes: list[pa.Table] = []
    if as_of < 29:
        news = read.changes(shards, shards.state(U1), Timestamp(as_of + 1))
        assert news.reached == frontier(30)
        updates_after = news.updates
        changes = [updates_after.filter(pa.compute.less_equal(updates_after["time"], later))]
        assert all(row["time"] > as_of for row in updates_after.to_pylist())
    second, _ = read.snapshot(shards, U1, Timestamp(later))
    assert total(first, *changes) == total(second)
    assert total(second) == total(table([row for row in updates if row[1] <= later]))
    shards.close()


def test_a_chunk_linked_twice_is_clipped_to_each_interval(shards: Shards) -> None:
    """A writer that lost the race for [0, 5) links its chunk of [0, 10) for [5, 10) alone."""
    append(shards, 0, 5, [("winner", 3, 1)])
    chunks = shards.write(U1, table([("winner", 3, 1), ("late", 7, 1)]))
    part = Part(
        collection=U1,
        capability=write_capability(U1),
        lower=frontier(5),
        upper=frontier(10),
        chunks=chunks,
    )
    shards.submit([("u1", Append((part,)))])
    assert total(read.snapshot(shards, U1, Timestamp(9))[0]) == {"winner": 1, "late": 1}
    assert total(read.snapshot(shards, U1, Timestamp(6))[0]) == {"winner": 1}


def test_errors_are_read_with_the_contents(shards: Shards) -> None:
    errors = pa.table({"error": ["bad", "bad"], "time": [2, 8], "diff": [1, -1]})
    append(shards, 0, 10, [("a", 1, 1)], errors)
    assert read.snapshot(shards, U1, Timestamp(1))[1].num_rows == 0
    assert read.snapshot(shards, U1, Timestamp(5))[1].to_pylist() == [
        {"error": "bad", "time": 5, "diff": 1}
    ]
    assert read.snapshot(shards, U1, Timestamp(9))[1].column("diff").to_pylist() == [1, -1]


def test_reads_outside_since_and_upper_are_refused(shards: Shards) -> None:
    append(shards, 0, 10, [("a", 1, 1)])
    moved = Downgrade(collection=U1, capability=HOLD, frontier=frontier(6))
    assert shards.submit([("u1", moved)]) == [Downgraded(frontier(6))]
    with pytest.raises(InvalidUsage, match=r"expected as_of beyond since \{6\}, actual 5"):
        read.snapshot(shards, U1, Timestamp(5))
    with pytest.raises(InvalidUsage, match=r"expected as_of before upper \{10\}, actual 10"):
        read.snapshot_pieces(shards.state(U1), Timestamp(10))
    with pytest.raises(TimeoutError):
        read.snapshot(shards, U1, Timestamp(10), timeout_ms=10)
    # changes at 6 may stand there because they were compacted (rule 5)
    with pytest.raises(InvalidUsage):
        changes_from(shards, 6)
    assert changes_from(shards, 7).upper == 10


def changes_from(shards: Shards, lower: int, until: int = END) -> read.Changes:
    return read.changes(shards, shards.state(U1), Timestamp(lower), until=Timestamp(until))


def test_a_reader_of_changes_is_told_of_time_that_passes_and_of_the_end(
    shards: Shards,
) -> None:
    append(shards, 0, 10, [])
    news = changes_from(shards, 1)
    assert (news.upper, news.reached, news.updates.num_rows) == (10, frontier(10), 0)
    append(shards, 10, 20, [("a", 15, 1)])
    news = changes_from(shards, 10)
    assert (news.upper, news.reached, total(news.updates)) == (20, frontier(20), {"a": 1})
    append(shards, 20, None, [("b", 1_000_000, 1)])
    news = changes_from(shards, 20)
    assert (news.upper, news.reached, total(news.updates)) == (END, EMPTY, {"b": 1})


def test_a_reader_of_changes_stops_where_it_was_told(shards: Shards) -> None:
    append(shards, 0, None, [("a", 5, 1), ("b", 15, 1)])
    news = changes_from(shards, 1, until=10)
    assert (news.upper, news.reached, total(news.updates)) == (10, frontier(10), {"a": 1})
    assert changes_from(shards, 10).reached == EMPTY


def compact(shards: Shards, rows: list[Row], since: int = 0) -> None:
    batches = tuple(batch.name for batch in shards.state(U1).batches)
    chunks = shards.write(U1, table(rows))
    swap = Replace(collection=U1, replaced=batches, chunks=chunks, since=Timestamp(since))
    assert shards.submit([("u1", swap)]) == [Replaced()]


def test_a_reader_begins_again_when_its_batches_were_compacted(shards: Shards) -> None:
    """Its chunks are gone, and the state it has does not know yet (rule 10)."""
    append(shards, 0, 5, [("a", 1, 1)])
    append(shards, 5, 10, [("b", 6, 1)])
    late = Shards(shards.logs, shards.chunks, shards._topics, now_ms=lambda: 0)
    late.open("u1")
    old = [ref for batch in shards.state(U1).batches for ref in batch.chunks]
    compact(shards, [("a", 1, 1), ("b", 6, 1)])
    shards.chunks.forget(shards.data_topic(U1), old)
    assert total(read.snapshot(late, U1, Timestamp(9))[0]) == {"a": 1, "b": 1}
    late.close()


class Overtaken:
    """Chunks; before each fetch somebody merges, and a collector takes what it may."""

    def __init__(self, by: Shards) -> None:
        self._inner, self._by = by.chunks, by
        self.fetches = 0

    def fetch(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[bytes]:
        self.fetches += 1
        if self.fetches < 10:
            compact(self._by, [("a", 1, 1), ("b", 6, 1)])
            maintenance.collect(self._by, "u1")
        return self._inner.fetch(topic, refs)

    def __getattr__(self, name: str):
        return getattr(self._inner, name)


def overtaken(shards: Shards) -> tuple[Shards, Overtaken]:
    """A client whose reads are always overtaken by a compactor."""
    append(shards, 0, 5, [("a", 1, 1)])
    append(shards, 5, 10, [("b", 6, 1)])
    chunks = Overtaken(shards)
    late = Shards(shards.logs, chunks, shards._topics, now_ms=lambda: 0)
    late.open("u1")
    return late, chunks


def test_a_read_is_overtaken_once_at_most(shards: Shards) -> None:
    """The second time it holds what it reads (rule 10), and lets go when it is done."""
    late, chunks = overtaken(shards)
    assert total(read.snapshot(late, U1, Timestamp(9))[0]) == {"a": 1, "b": 1}
    assert chunks.fetches == 2
    shards.sync()
    assert shards.state(U1).capabilities.keys() == {HOLD, write_capability(U1)}
    assert maintenance.collect(shards, "u1")
    late.close()


def test_a_read_that_is_to_leave_no_trace_begins_again_until_it_is_through(
    shards: Shards,
) -> None:
    late, chunks = overtaken(shards)
    upto = shards.group_state("u1").upto
    past = (Timestamp(0), Timestamp(10))
    loaded = read.load_stable(late, U1, past, Timestamp(9), may_hold=False)
    assert total(loaded[0]) == {"a": 1, "b": 1}
    assert chunks.fetches == 10
    assert shards.group_state("u1").upto == upto + 2 * 9  # the others' alone
    late.close()


def test_a_reader_that_since_has_passed_is_told_so_and_not_given_what_is_left(
    shards: Shards,
) -> None:
    """Without a hold of its own it may be passed in the middle: its times are gone (rule 4)."""
    append(shards, 0, 5, [("a", 1, 1)])
    append(shards, 5, 10, [("b", 6, 1)])
    late = Shards(shards.logs, shards.chunks, shards._topics, now_ms=lambda: 0)
    late.open("u1")
    old = [ref for batch in shards.state(U1).batches for ref in batch.chunks]
    shards.submit([("u1", Downgrade(collection=U1, capability=HOLD, frontier=frontier(8)))])
    compact(shards, [("a", 8, 1), ("b", 8, 1)], since=8)
    shards.chunks.forget(shards.data_topic(U1), old)
    passed = r"expected as_of beyond since \{8\}, actual 6"
    with pytest.raises(read.SinceViolation, match=passed):
        read.snapshot(late, U1, Timestamp(6))  # `late` does not know yet when it begins
    with pytest.raises(read.SinceViolation, match=passed):
        read.load_stable(late, U1, (Timestamp(7), Timestamp(10)), Timestamp(6))
    assert total(read.snapshot(late, U1, Timestamp(9))[0]) == {"a": 1, "b": 1}
    late.close()


def test_a_chunk_that_is_missing_for_no_reason_is_corrupt(shards: Shards) -> None:
    append(shards, 0, 5, [("a", 1, 1)])
    [batch] = shards.state(U1).batches
    shards.chunks.forget(shards.data_topic(U1), batch.chunks)
    [ref] = batch.chunks
    place = rf"sw\.u1\.data/{ref.partition}@{ref.offset}"
    with pytest.raises(Corrupt, match=place):
        read.snapshot(shards, U1, Timestamp(4))


def test_a_damaged_chunk_names_its_place(shards: Shards) -> None:
    [ref] = shards.chunks.write(shards.data_topic(U1), [(b"nonsense", 1)], {})
    piece = read.Piece(ref, Timestamp(0), Timestamp(9))
    place = rf"sw\.u1\.data/{ref.partition}@{ref.offset}: chunk: expected an arrow stream"
    with pytest.raises(Corrupt, match=place):
        read.load(shards.chunks, shards.data_topic(U1), [piece])


def test_no_pieces_are_no_rows(shards: Shards) -> None:
    updates, errors = read.load(shards.chunks, shards.data_topic(U1), ())
    assert (updates.num_rows, errors.num_rows) == (0, 0)


def test_chunks_are_fetched_a_few_at_a_time(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection of any size is read in the memory of what is kept of it."""
    for time in range(5):
        append(shards, time, time + 1, [(f"n{time}", time, 1)])
    fetched: list[int] = []
    original = shards.chunks.fetch

    def fetch(topic: Topic, refs: Sequence[ChunkRef]) -> list[bytes]:
        fetched.append(len(refs))
        return original(topic, refs)

    monkeypatch.setattr(shards.chunks, "fetch", fetch)
    pieces = read.snapshot_pieces(shards.state(U1), Timestamp(4))
    updates, _ = read.load(shards.chunks, shards.data_topic(U1), pieces)
    monkeypatch.setattr(read, "FETCHED_BYTES", 2 * pieces[0].ref.size)
    again, _ = read.load(shards.chunks, shards.data_topic(U1), pieces)
    assert fetched == [5, 2, 2, 1]
    assert again.equals(updates)
    monkeypatch.setattr(read, "FETCHED_BYTES", 1)
    assert read.load(shards.chunks, shards.data_topic(U1), pieces)[0].equals(updates)
