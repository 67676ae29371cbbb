"""What a long task has freed goes back to the system, and a short one waits for nothing."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from streams.replica.tasks import memory

BATCH = pa.record_batch({"n": pa.array([1, 2])})


def task(batches: int) -> Iterator[pa.RecordBatch]:
    for _ in range(batches):
        yield BATCH


@pytest.mark.parametrize(("long_s", "releases"), [(0.0, 1), (60.0, 0)])
def test_a_task_that_took_long_gives_its_memory_back_behind_what_it_returns(
    monkeypatch: pytest.MonkeyPatch, long_s: float, releases: int
) -> None:
    events: list[str] = []
    monkeypatch.setattr(memory, "LONG_S", long_s)
    monkeypatch.setattr(memory, "release", lambda: events.append("released"))
    for batch in memory.released(task(2)):
        assert batch is BATCH
        events.append("batch")
    assert events == ["batch", "batch", *["released"] * releases]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_free_memory_between_what_lives_on_is_given_back() -> None:
    """Every hundredth of 100,000 texts lives on: the pages between are free, and not in use."""
    texts = [bytes(2_000) for _ in range(100_000)]
    rest = texts[::100]
    full = resident_bytes()
    del texts
    memory.release()
    assert resident_bytes() < full - (100 << 20)
    assert len(rest) == 1_000
