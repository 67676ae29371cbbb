"""Merging in pieces: what a piece holds at most, and that the pieces are the whole."""

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.trace.arrange import merge, multiset, order, ordered
from streams.trace.arrange.runs import RunFiles, RunName
from streams.trace.columns import Ints, uint64
from tests.support.examples import examples
from tests.support.flows import kernel

ROW = 24
LIMIT = 100 * ROW


def part(hashes: list[int] | Ints, mark: int = 0) -> pa.RecordBatch:
    """Rows of 24 bytes: the hash, whose part it is, the place in it."""
    size = len(hashes)
    arrays = [pa.array(hashes, pa.uint64()), pa.array([mark] * size), pa.array(range(size))]
    return pa.RecordBatch.from_arrays(arrays, ["h", "part", "place"])


def rows_of(parts: list[pa.RecordBatch]) -> list[tuple[int, ...]]:
    return [tuple(row.values()) for table in parts for row in table.to_pylist()]


@given(st.lists(st.lists(st.integers(0, 30), max_size=40), max_size=6), st.integers(1, 2000))
@examples(200)
def test_the_pieces_are_the_whole_and_their_hashes_ascend(
    hashes: list[list[int]], limit: int
) -> None:
    parts = [part(sorted(hashes_), number) for number, hashes_ in enumerate(hashes[:-1])]
    parts += [part(hashes_, len(parts)) for hashes_ in hashes[-1:]]  # the last in any order
    pieces = list(merge.by_hash(parts, limit))
    together = [row for piece in pieces for row in sorted(rows_of(piece), key=lambda r: r[0])]
    assert together == sorted(rows_of(parts), key=lambda r: r[0])
    ranges = [[row[0] for row in rows_of(piece)] for piece in pieces]
    assert all(max(one) < min(other) for one, other in itertools.pairwise(ranges) if one)
    for piece, range_ in zip(pieces, ranges, strict=True):
        assert merge.size_of(piece) <= limit or len(set(range_)) == 1


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_pieces_are_as_few_as_the_limit_lets(parts: int) -> None:
    chance = np.random.default_rng(parts)
    several = [
        part(np.sort(chance.integers(0, 1 << 60, 20_000 // (1 << number))))
        for number in range(parts)
    ]
    sizes = [merge.size_of(piece) for piece in merge.by_hash(several, LIMIT)]
    assert max(sizes) <= LIMIT
    assert len(sizes) <= 1 + sum(sizes) / (0.7 * LIMIT)


def test_one_key_with_much_leaves_the_others_their_pieces() -> None:
    many = part(np.sort(np.append(np.arange(5000), np.full(3000, 2500))))
    sizes = [merge.size_of(piece) for piece in merge.by_hash([many], LIMIT)]
    *others, largest = sorted(sizes)
    assert largest == 3001 * ROW
    assert max(others) <= LIMIT


@given(st.lists(st.integers(0, 300), max_size=30))
def test_what_is_gathered_is_not_less_than_half_a_piece(sizes: list[int]) -> None:
    pieces = [part(list(range(size))) for size in sizes]
    tables = list(merge.coalesce(pieces, LIMIT))
    assert rows_of(tables) == rows_of(pieces)
    assert all(2 * table.nbytes >= LIMIT for table in tables[:-1])
    assert all(table.num_rows for table in tables)


def store(directory: Path, piece: int) -> RunFiles:
    names = map("run{}".format, itertools.count())
    return RunFiles(directory, names.__next__, piece=piece)


def largest_merged(monkeypatch: pytest.MonkeyPatch, module: object) -> list[int]:
    """The bytes of what each merge has in memory, from now on."""
    sizes: list[int] = []
    really = module._merged  # type: ignore[attr-defined]

    def merged(parts: list[pa.RecordBatch], *rest: object) -> pa.RecordBatch:
        sizes.append(merge.size_of(parts))
        return really(parts, *rest)

    monkeypatch.setattr(module, "_merged", merged)
    return sizes


def test_a_merge_holds_a_piece_however_large_the_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shape = multiset.schema(pa.schema([("c0", pa.int64())]))
    files, names, piece = store(tmp_path, 1 << 14), list[RunName](), 1 << 14
    sizes = largest_merged(monkeypatch, multiset)
    chance = np.random.default_rng(5)
    expected = []
    for _ in range(40):
        hashes = chance.integers(0, 1 << 63, 1000).astype(np.uint64)
        arrays = [pa.array(hashes), pa.array(hashes.view(np.int64)), pa.array([1] * 1000)]
        rows = pa.RecordBatch.from_arrays(arrays, schema=shape)
        names = multiset.insert(files, names, rows, kernel())
        expected.append(hashes)
    assert max(sizes) <= max(piece, 1000 * ROW)
    runs = files.open(names)
    assert sum(int(size) for _, size in names) == 40_000
    assert len(runs) > 40_000 * ROW / piece
    assert all(run.rows.nbytes <= 1.5 * piece for run in runs)
    longest = files.open(names[:1])
    hashes = np.concatenate([run.hashes for run in longest])
    assert (hashes[1:] >= hashes[:-1]).all()
    together = np.concatenate([run.hashes for run in runs])
    assert np.array_equal(np.sort(together), np.sort(np.concatenate(expected)))


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_the_values_of_one_key_are_merged_in_pieces(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: pa.DataType
) -> None:
    """As of a view with min(v) and no GROUP BY: one hash, and its values in order."""
    shape, piece = ordered.schema([pa.int8()], kind), 1 << 14
    files, names = store(tmp_path, piece), list[RunName]()
    sizes = largest_merged(monkeypatch, ordered)
    values = np.random.default_rng(7).permutation(20_000)
    for some in np.split(values, 40):
        arrays = [
            pa.array(np.full(500, 9, np.uint64)),
            pa.array([1] * 500, pa.int8()),
            pa.array(some).cast(kind),
            pa.array([1] * 500),
        ]
        rows = pa.RecordBatch.from_arrays(arrays, schema=shape)
        names = ordered.insert(files, names, rows, kernel())
    assert max(sizes) <= 1.1 * piece
    first = files.open(names[:1])
    assert len(first) > 1
    ranks = pa.chunked_array([ordered.order_column(run.rows) for run in first]).combine_chunks()
    ranks = ranks if isinstance(ranks, pa.Array) else pa.concat_arrays(ranks.chunks)
    assert (np.diff(order.ranks(ranks)) > 0).all()
    merged = [row["v"] for run in files.open(names) for row in run.rows.to_pylist()]
    assert sorted(map(int, merged)) == list(range(20_000))
    assert {word for run in files.open(names) for word in uint64(run.rows.column(0))} == {9}


def test_a_piece_of_several_keys_is_not_cut_by_value(tmp_path: Path) -> None:
    """Rows of very different sizes: a piece may be larger than was meant."""
    shape = ordered.schema([pa.int64()], pa.string())
    files, names, expected = (
        store(tmp_path, 2000),
        list[RunName](),
        dict[tuple[int, str], int](),
    )
    chance = np.random.default_rng(11)
    for _ in range(12):
        keys = np.sort(chance.integers(0, 40, 60))
        values = [chr(97 + v) * (300 if v == 3 else 1) for v in chance.integers(0, 9, 60)]
        arrays = [
            pa.array(keys.astype(np.uint64)),
            pa.array(keys),
            pa.array(values),
            pa.array([1] * 60),
        ]
        rows = pa.RecordBatch.from_arrays(arrays, schema=shape)
        names = ordered.insert(files, names, rows, kernel())
        for pair in zip(keys.tolist(), values, strict=True):
            expected[pair] = expected.get(pair, 0) + 1
    counts = dict[tuple[int, str], int]()
    for name in names:
        here = [row for run in files.open([name]) for row in run.rows.to_pylist()]
        pairs = [(row["h"], row["v"]) for row in here]
        assert all(one < other for one, other in itertools.pairwise(pairs))
        for row in here:
            pair = row["k0"], row["v"]
            counts[pair] = counts.get(pair, 0) + row["n"]
    assert counts == expected
