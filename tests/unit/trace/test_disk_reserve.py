"""A disk that fills: large runs stop before the reserve, small ones go on."""

import itertools
from pathlib import Path

import pyarrow as pa
import pytest

from streams.trace.arrange import disk_reserve
from streams.trace.arrange.runs import RunFiles


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({"h": pa.array(range(count), pa.uint64())})


def files(directory: Path) -> RunFiles:
    names = map(str, itertools.count())
    return RunFiles(directory, lambda: next(names))


def test_a_large_run_leaves_the_reserve_to_small_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_reserve, "usage", lambda _: (1 << 20, 16 << 20))
    runs = files(tmp_path)
    assert runs.write([rows(1000)])
    with pytest.raises(OSError, match="No space left on device"):
        runs.write([rows(100_000)])
    assert [path.name for path in tmp_path.iterdir()] == ["0"], "nothing is left of it"
    monkeypatch.setattr(disk_reserve, "usage", lambda _: (8 << 20, 16 << 20))
    assert runs.write([rows(100_000)])


def test_the_reserve_is_a_part_of_the_disk_and_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for free, total, missing in (
        (60, 1000, 0),
        (40, 1000, 10),
        (1 << 30, 1 << 50, 0),
        (1 << 20, 1 << 50, 255 << 20),
    ):
        monkeypatch.setattr(disk_reserve, "usage", lambda _, usage=(free, total): usage)
        assert disk_reserve.missing_bytes(tmp_path) == missing


def test_a_disk_is_asked(tmp_path: Path) -> None:
    free, total = disk_reserve.usage(tmp_path)
    assert 0 < free <= total
