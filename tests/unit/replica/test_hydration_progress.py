from dataclasses import replace

from streams.compute.description import IngestionDescription
from streams.ids import CollectionId, Offset, Timestamp, Topic
from streams.kafka.log import ChunkRef
from streams.replica.driver.dataflow_state import Build
from streams.replica.driver.hydration_progress import HydrationPace, follow, rows_of
from streams.replica.ingest.ranges import Slice
from streams.replica.tasks.descriptor import ChunkLoad, Load, RawLoad, Undo
from streams.storage.read.reader import Piece

U1, TOPIC, NOW = CollectionId("u1"), Topic("data"), Timestamp(7)


def pieces(*rows: int) -> tuple[Piece, ...]:
    refs = [ChunkRef(0, Offset(i), f"k{i}", 1, count, 100) for i, count in enumerate(rows)]
    return tuple(Piece(ref, Timestamp(0), NOW) for ref in refs)


def build(*slices: tuple[Load, ...], done: int = 0) -> Build:
    return Build(
        incarnation="one", lower=NOW, upper=Timestamp(8), as_of=True, writes=True,
        slices=slices, sizes=(1,) * len(slices), done=done,
    )  # fmt: skip


SLICES = tuple((ChunkLoad(U1, 0, TOPIC, pieces(count), NOW),) for count in (100, 300, 600))


def seen(pace: HydrationPace | None, done: int, now_s: float) -> HydrationPace:
    return follow(pace, build(*SLICES, done=done), now_s)


def test_rows_of_every_kind_of_load() -> None:
    source = IngestionDescription(topic=TOPIC, topic_id="t", envelope="none", keys=())
    messages = (Slice(0, Offset(5), Offset(15)), Slice(1, Offset(0), Offset(3)))
    raw = RawLoad(dataflow=U1, source=source, columns=(), slices=messages, time=NOW)
    chunks = ChunkLoad(U1, 0, TOPIC, pieces(4, 5), NOW)
    undone = Undo(U1, TOPIC, pieces(6), NOW)
    assert rows_of([(chunks, undone), (), (raw,)]) == 4 + 5 + 6 + 13


def test_seconds_left_follow_the_rows_and_not_the_slices() -> None:
    first = seen(None, 0, 50.0)
    assert (first.done, first.total, first.seconds_left) == (0, 1000, None)
    assert seen(first, 0, 58.0) == first, "nothing is known before a slice is done"
    second = seen(first, 1, 60.0)
    assert (second.done, second.seconds_left) == (100, 90)
    third = seen(second, 2, 70.0)
    assert (third.done, third.seconds_left) == (400, 30)
    last = seen(third, 3, 75.0)
    assert (last.done, last.seconds_left) == (1000, 0)


def test_what_was_done_before_a_restart_is_done_but_says_nothing_of_the_pace() -> None:
    restored = seen(None, 2, 1.0)
    assert (restored.done, restored.total, restored.seconds_left) == (400, 1000, None)


def test_a_hydration_that_begins_anew_is_another() -> None:
    pace = seen(seen(None, 0, 0.0), 2, 10.0)
    again = replace(build(*SLICES), incarnation="two")
    assert follow(pace, again, 20.0).done == 0
    assert seen(pace, 1, 20.0).done == 100, "slices are done again"


def test_a_dataflow_over_nothing_has_no_rows_to_do() -> None:
    empty = build(())
    pace = follow(follow(None, empty, 0.0), replace(empty, done=1), 1.0)
    assert (pace.done, pace.total, pace.seconds_left) == (0, 0, None)
