"""What waits on disk comes to what it comes to in memory."""

import itertools
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.runtime.reader import SessionReader, counted, narrowed
from connectors.runtime.spill import PARTS, Spill, divided
from connectors.runtime.transactions import Position, Transaction, TransactionCutter
from streams.ids import Timestamp
from tests.unit.connectors.runtime.test_transactions import (
    BIRTH,
    KERNEL,
    Update,
    bound,
    errors,
    updates,
)

numbers = itertools.count()


def rows_of(piece: Any) -> list[Any]:
    flags = zip(piece.exists.tolist(), piece.deletes.tolist(), strict=True)
    rows = [tuple(row.values()) for row in piece.rows.to_pylist()]
    return list(zip(rows, flags, strict=True))


def befores_of(piece: Any) -> list[Any]:
    rows: list[Any] = piece.before.to_pylist()
    return rows


def spilled(
    where: Path, position: Position, intervals: list[list[Update]], **more: Any
) -> Spill:
    spill = Spill(bound("t", **more), position, KERNEL, where / str(next(numbers)))
    for rows in intervals:
        spill.add(updates(rows), errors([]))
    return spill


def held() -> tuple[Position, list[Update]]:
    """A binding that has twenty keys."""
    cutter = TransactionCutter(
        [bound("t")], [Position(Timestamp(BIRTH), is_begun=False)], KERNEL
    )
    rows: list[Update] = [(key, "old", 5, 1) for key in range(20)]
    cutter.take(0, updates(rows), errors([]), Timestamp(BIRTH + 1))
    transaction = cutter.cut()
    assert transaction is not None
    return transaction.positions[0], rows


@pytest.mark.parametrize("is_begun", [False, True])
@settings(max_examples=8)  # each has some hundred files
@given(data=st.data())
def test_it_is_what_one_cut_would_be(
    is_begun: bool, data: st.DataObject, tmp_path_factory: Any
) -> None:
    position = held()[0] if is_begun else Position(Timestamp(BIRTH), is_begun=False)
    now: dict[int, str] = dict.fromkeys(range(20), "old") if is_begun else {}
    changes: list[Update] = []
    for time in range(12, 16):
        for key in data.draw(st.sets(st.integers(0, 40), max_size=9)):
            if key in now:
                changes.append((key, now.pop(key), time, -1))
            if data.draw(st.booleans()):
                now[key] = f"v{time}"
                changes.append((key, now[key], time, 1))
    where = tmp_path_factory.mktemp("spill")
    for delta in (False, True):
        cutter = TransactionCutter([bound("t", delta=delta)], [position], KERNEL)
        cutter.take(0, updates(changes), errors([]), Timestamp(16))
        first_cut = cutter.cut(Timestamp(16))
        assert first_cut is not None
        (part,) = first_cut.parts
        cut = data.draw(st.integers(0, len(changes)))
        spill = spilled(where, position, [changes[:cut], changes[cut:]], delta=delta)
        spill.decide(Timestamp(16))
        assert spill.reason == ""
        assert part is not None
        assert spill.count == part.count
        both = [
            [row for piece in source.pieces() for row in rows_of(piece)]
            for source in (spill, part)
        ]
        assert sorted(both[0], key=str) == sorted(both[1], key=str)
        befores = [
            [row for piece in source.pieces() for row in piece.before.to_pylist()]
            for source in (spill, part)
        ]
        assert befores[0] == befores[1], "both in the order of hashes"
        if not delta:
            assert spill.live.tolist() == first_cut.positions[0].live.tolist()


def test_a_violated_key_is_found_and_healed(tmp_path: Path) -> None:
    position = Position(Timestamp(BIRTH), is_begun=False)
    rows: list[Update] = [(key, "x", 5, 1) for key in range(300)]
    spill = spilled(tmp_path, position, [rows, [(7, "y", 6, 1)]])
    spill.decide(Timestamp(11))
    assert spill.reason == "key (k = 7) is not unique: 2 rows have it at 10"
    spill.add(updates([(7, "x", 12, -1)]), errors([]))
    spill.decide(Timestamp(13))
    assert (spill.reason, spill.count, len(spill.live)) == ("", 300, 300)
    spill.add(updates([]), errors([("wrong", 13, 1)]))
    spill.decide(Timestamp(14))
    assert "wrong" in spill.reason
    spill.add(updates([]), errors([("wrong", 14, -1)]))
    spill.decide(Timestamp(15))
    assert spill.reason == ""


def test_hashes_are_counted() -> None:
    hashes = np.array([5, 3, 5, 9, 3], np.uint64)
    assert counted([hashes], [np.array([1, 1, -1, 1, 1])]).tolist() == [3, 9]
    parts = [hashes[1:2], hashes[2:4]]
    assert counted(parts, [np.array([1]), np.array([1, 1])]).tolist() == [3, 5, 9]
    assert hashes.tolist() == [5, 3, 5, 9, 3], "a part belongs to who gives it"
    assert counted([], []).tolist() == []


def test_hashes_are_divided_in_order() -> None:
    hashes = np.sort(np.random.default_rng(1).integers(0, 1 << 63, 1000).astype(np.uint64) * 2)
    parts = divided(hashes)
    assert len(parts) == PARTS
    assert np.concatenate(parts).tolist() == hashes.tolist()
    assert parts[0].tolist() == [hash_ for hash_ in hashes.tolist() if hash_ < 1 << 58]


def test_the_hashes_of_all_keys_are_in_memory_once(tmp_path: Path) -> None:
    keys = 40_000
    begun = Position(Timestamp(BIRTH), is_begun=False)
    spill = spilled(tmp_path, begun, [[(key, "new", BIRTH, 1) for key in range(keys)]])
    spill.decide(Timestamp(BIRTH + 1))
    tracemalloc.start()
    try:
        before = spill.live
        live = spill.live
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(live) == keys
    assert (live == before).all()
    assert (live[1:] > live[:-1]).all()
    del before
    assert grown < 2.2 * live.nbytes, "two results, and the parts are views of the last"


def test_what_was_written_is_forgotten(tmp_path: Path) -> None:
    """But not what has come to disk since."""
    begun = Position(Timestamp(BIRTH), is_begun=False)
    done, newer = (spilled(tmp_path, begun, []) for _ in range(2))
    reading = reader_of(begun, tmp_path)
    for kept, left in (({0: done}, {}), ({0: newer}, {0: newer})):
        done.directory.mkdir(exist_ok=True)
        reading._spills = dict(kept)
        reading.discard(Transaction(Timestamp(BIRTH), (done,), (begun,), {}))
        assert reading._spills == left
        assert not done.directory.exists()


def test_live_keys_are_counted_with_little_memory() -> None:
    keys, parts = 200_000, 20
    tracemalloc.start()
    try:
        hashes = [np.arange(part, keys, parts, dtype=np.uint64) for part in range(parts)]
        diffs = [narrowed(np.ones(len(part), np.int64)) for part in hashes]
        live = counted(hashes, diffs)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (live == np.arange(keys)).all()
    assert not hashes
    assert peak < 3.5 * live.nbytes, "the parts and all of them, or all of them and the result"


def test_diffs_that_are_large_are_kept_as_they_are() -> None:
    assert narrowed(np.array([1, -1, 127])).dtype == np.int8
    large = np.array([1, 300])
    assert narrowed(large) is large
    hashes = [np.array([7, 7, 8], np.uint64), np.array([7, 9], np.uint64)]
    diffs = [narrowed(np.array([200, 100, 1])), narrowed(np.array([-300, 1]))]
    assert counted(hashes, diffs).tolist() == [8, 9]
    sums = counted([np.full(256, 5, np.uint64)], [np.full(256, -1, np.int8)])
    assert sums.tolist() == [5], "more than a byte in all"


def reader_of(position: Position, directory: Path) -> SessionReader:
    """One that has nothing to read."""
    nothing: Any = None
    cutter = TransactionCutter([bound("t")], [position], KERNEL)
    return SessionReader(
        following=nothing,
        prepared=nothing,
        cutter=cutter,
        limits=nothing,
        intent=None,
        directory=directory,
        kernel=KERNEL,
    )
