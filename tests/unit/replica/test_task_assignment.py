"""Every update is in exactly one task's share."""

from hypothesis import given
from hypothesis import strategies as st

from streams.compute.description import IngestionDescription
from streams.ids import CollectionId, Offset, Timestamp, Topic
from streams.kafka.log import ChunkRef
from streams.replica.driver.task_assignment import LITTLE_BYTES, spread
from streams.replica.ingest.ranges import Slice
from streams.replica.tasks.descriptor import ChunkLoad, RawLoad, Replay
from streams.storage.read.reader import Piece

SOURCE = IngestionDescription(topic=Topic("raw"), topic_id="i", envelope="none")


def chunk(number: int, size: int) -> Piece:
    ref = ChunkRef(0, Offset(number), f"k{number}", 0, 1, size)
    return Piece(ref, Timestamp(0), Timestamp(9))


def load(dataflow: str, count: int, size: int, replay: Replay | None = None) -> ChunkLoad:
    pieces = tuple(chunk(number, size) for number in range(count))
    return ChunkLoad(CollectionId(dataflow), 0, Topic("t"), pieces, replay=replay)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.sampled_from([10, LITTLE_BYTES]))),
    st.integers(1, 5),
)
def test_each_piece_of_each_load_goes_to_one_task(
    shapes: list[tuple[int, int]], tasks: int
) -> None:
    loads = [load(f"u{n}", count, size) for n, (count, size) in enumerate(shapes)]
    shared = spread(loads, tasks)
    assert len(shared) <= tasks
    assert all(shared)
    assigned = [
        (item.dataflow, piece)
        for task in shared
        for item in task
        if isinstance(item, ChunkLoad)
        for piece in item.pieces
    ]
    sent = [(source.dataflow, piece) for source in loads for piece in source.pieces]
    assert sorted(assigned, key=repr) == sorted(sent, key=repr)


def test_small_dataflows_are_divided_among_the_tasks() -> None:
    shared = spread([load(f"u{n}", 1, 10) for n in range(4)], 2)
    assert [len(task) for task in shared] == [2, 2]


def test_a_large_load_is_divided_among_the_tasks() -> None:
    shared = spread([load("u", 6, LITTLE_BYTES)], 2)
    assert [len(item.pieces) for task in shared for item in task] == [3, 3]  # type: ignore[union-attr]


def test_a_replay_stays_whole() -> None:
    shared = spread([load("s", 6, LITTLE_BYTES, Replay(SOURCE, ()))], 2)
    assert [len(item.pieces) for task in shared for item in task] == [6]  # type: ignore[union-attr]


def test_many_messages_are_divided_few_are_not() -> None:
    def raw(count: int) -> RawLoad:
        slices = (Slice(0, Offset(0), Offset(count)),)
        return RawLoad(
            dataflow=CollectionId("s"), source=SOURCE, columns=(), slices=slices,
            time=Timestamp(1),
        )  # fmt: skip

    assert len(spread([raw(100)], 2)) == 1
    parts = spread([raw(100_000)], 2)
    assert [item.slices[0].length for task in parts for item in task] == [50_000, 50_000]  # type: ignore[union-attr]
