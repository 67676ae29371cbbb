"""What tasks make of the updates that they load from shards."""

from typing import Any

import pyarrow as pa
import pytest

from streams.ids import CollectionId, Timestamp, Topic
from streams.kafka.memory.logs import MemoryChunks
from streams.kafka.memory.records import MemoryRawReader
from streams.kafka.memory.store import Store
from streams.replica.ingest.source import Resources
from streams.replica.tasks.descriptor import ChunkLoad
from streams.replica.tasks.load_inputs import Loader
from streams.trace.kernel.kernel import Kernel

TOPIC, U1 = Topic("data"), CollectionId("u1")


def loaded(rows: list[tuple[int, int, int]], load: ChunkLoad) -> tuple[list[Any], list[Any]]:
    """What a load makes of rows (c0, time, diff), and of errors that are like them."""
    store = Store()
    loader = Loader(MemoryChunks(store), Resources(MemoryRawReader(store), Kernel()))
    values, times, diffs = (pa.array(column) for column in zip(*rows, strict=True))
    updates = pa.table({"c0": values, "time": times, "diff": diffs})
    errors = pa.table({"error": values.cast(pa.string()), "time": times, "diff": diffs})
    loader.loaded[load.topic, load.pieces] = updates, errors
    result = loader.load(load)
    return [
        sorted(tuple(row.values()) for row in table.to_pylist())
        for table in (result.updates, result.errors)
    ]  # type: ignore[return-value]  # two


ROWS = [(1, 5, 1), (1, 70, -1), (2, 6, 1), (2, 90, 1), (3, 90, -1)]


@pytest.mark.parametrize(
    ("cancels", "wanted"),
    [
        (False, [(1, 30, -1), (1, 30, 1), (2, 30, 1), (2, 30, 1), (3, 30, -1)]),
        (True, [(2, 30, 2), (3, 30, -1)]),
    ],
)
def test_what_is_stamped_happens_then_whatever_its_time_was(
    *, cancels: bool, wanted: list[tuple[int, int, int]]
) -> None:
    load = ChunkLoad(U1, 0, TOPIC, (), Timestamp(30), cancels=cancels)
    updates, errors = loaded(ROWS, load)
    assert updates == wanted
    assert errors == [(str(value), time, diff) for value, time, diff in wanted]


def test_other_updates_stay_as_they_are() -> None:
    assert loaded(ROWS, ChunkLoad(U1, 0, TOPIC, ()))[0] == ROWS
