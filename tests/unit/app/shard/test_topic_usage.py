"""What a data topic holds, and how much of it is garbage."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streams.app.shard.shard_info import Size
from streams.app.shard.topic_usage import SCAN_SCHEMA, space_of, with_scan
from streams.ids import Offset
from streams.kafka.log import ChunkRef
from streams.storage.log.batches import trace_of
from streams.storage.log.events import Rollup
from streams.storage.log.state import StagedChunks, State, Superseded, collections_of
from tests.unit.app.shard.test_shard_info import batch, collection, ref

Scanned = tuple[int, int, str, int | None]


def scan(*records: Scanned) -> pa.Table:
    rows = [
        {"partition": partition, "offset": offset, "key": key.encode(), "size": size}
        for partition, offset, key, size in records
    ]
    return pa.Table.from_pylist(rows, schema=SCAN_SCHEMA)


LIVE, STAGED, ROLLED, OUT = ref(0, size=600), ref(1, size=50), ref(2, size=50), ref(3)
STATE = State(
    collections=collections_of([collection(batches=trace_of([batch(0, 9, LIVE)]))]),
    stages={"s": StagedChunks((STAGED, LIVE), 1_000)},
    rollups=(Rollup(upto=Offset(63), chunks=(ROLLED,), hash=""),),
    superseded=(Superseded(Offset(70), (OUT, LIVE)),),
)


def test_a_chunk_counts_for_the_first_that_keeps_it() -> None:
    space = space_of(STATE)
    assert [size.bytes for size in (space.live, space.staged, space.rollup)] == [600, 50, 50]
    assert space.superseded == Size(1, 10, 100)
    assert (space.garbage_bytes, space.total_bytes, space.garbage_share) == (100, 800, 0.125)


def test_of_nothing_no_share_is_garbage() -> None:
    assert space_of(State()).garbage_share == 0.0


def test_a_scan_finds_what_nobody_names() -> None:
    chunks = [(0, chunk.offset, chunk.key, chunk.size) for chunk in (LIVE, STAGED, ROLLED, OUT)]
    records = scan(
        *chunks,
        (0, 4, "gone", 30),  # a tombstone follows
        (0, 5, "lost", 70),  # nobody ever linked it
        (0, 6, "gone", None),
        (1, 0, "lost", 100),  # the same offset and key elsewhere is another chunk
    )
    space = with_scan(STATE, records, {0: 7, 1: 1})
    scanned = space.scanned
    assert scanned is not None
    assert (scanned.deleted, scanned.orphan) == (Size(1, 0, 30), Size(2, 0, 170))
    assert (scanned.tombstones, scanned.missing) == (1, ())
    assert (space.garbage_bytes, space.total_bytes) == (300, 1_000)


KINDS = ("live", "staged", "rollup", "superseded", "orphan", "deleted")


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 1000)), max_size=30))
def test_every_byte_of_the_topic_is_counted_once(chunks) -> None:
    refs: dict[str, list[ChunkRef]] = {kind: [] for kind in KINDS}
    for offset, (kind, size) in enumerate(chunks):
        refs[kind].append(ref(offset, size=size))
    state = State(
        collections=collections_of(
            [collection(batches=trace_of([batch(0, 9, *refs["live"])]))]
        ),
        stages={"s": StagedChunks(tuple(refs["staged"]), 1_000)},
        rollups=(Rollup(upto=Offset(63), chunks=tuple(refs["rollup"]), hash=""),),
        superseded=(Superseded(Offset(70), tuple(refs["superseded"])),),
    )
    written = sorted((chunk.offset, chunk) for some in refs.values() for chunk in some)
    records: list[Scanned] = [(0, offset, chunk.key, chunk.size) for offset, chunk in written]
    records += [(0, 100 + chunk.offset, chunk.key, None) for chunk in refs["deleted"]]
    space = with_scan(state, scan(*records), {0: 200})
    scanned = space.scanned
    assert scanned is not None
    counted = dict.fromkeys(KINDS, 0)
    for kind, size in chunks:
        counted[kind] += size
    sizes = (space.live, space.staged, space.rollup, space.superseded)
    assert [size.bytes for size in (*sizes, scanned.orphan, scanned.deleted)] == [
        *counted.values()
    ]
    assert space.total_bytes == sum(counted.values())
    assert scanned.missing == ()


def test_a_key_written_after_its_tombstone_is_no_longer_deleted() -> None:
    records = scan((0, 1, "a", None), (0, 2, "a", 5))
    scanned = with_scan(State(), records, {0: 3}).scanned
    assert scanned is not None
    assert (scanned.deleted.bytes, scanned.orphan.bytes) == (0, 5)


def test_a_chunk_that_the_topic_lacks_is_missing() -> None:
    scanned = with_scan(STATE, scan((0, 0, LIVE.key, 600)), {0: 3}).scanned
    assert scanned is not None
    assert [chunk.offset for chunk in scanned.missing] == [1, 2]  # 3 was written after the scan
