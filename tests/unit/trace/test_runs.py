"""Arrangements over run files: against dicts, whatever was merged when; bounded rewriting."""

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.trace.arrange import keyed, multiset, order, ordered
from streams.trace.arrange.runs import (
    PIECE,
    SHARED_FILE,
    SMALL_RUN,
    RunCache,
    RunFiles,
    RunName,
    SharedFile,
    file_of,
    in_order,
)
from streams.trace.columns import Words, hash_keys, key_form
from tests.support.examples import examples
from tests.support.flows import kernel

KEYS = 6


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


counter = itertools.count()


def files(directory: Path, merge_factor: int = 2, piece: int = PIECE) -> RunFiles:
    """Run files whose cache forgets everything at once, so that files are read back."""
    return RunFiles(
        directory,
        lambda: f"run{next(counter)}",
        RunCache(limit=1),
        merge_factor,
        piece=piece,
    )


def hashed(keys: pa.Array, collide: bool) -> Words:
    words = hash_keys([keys], len(keys))
    return words & np.uint64(1) if collide else words


factors = st.sampled_from([0, 1, 2, 1000])
pieces = st.sampled_from([1, 100, PIECE])  # bytes: of a row, of a few, of all
keys = st.one_of(st.none(), st.integers(0, KEYS - 2))


@given(
    st.lists(st.dictionaries(keys, st.tuples(st.integers(0, 9), st.booleans())), max_size=8),
    factors,
    pieces,
    st.booleans(),
)
@examples(30)
def test_keyed_is_a_dict(
    directory, steps: list[dict[Any, Any]], factor: int, piece: int, collide: bool
) -> None:
    shape = keyed.schema([pa.int64()], [pa.field("value", pa.int64())])
    store, names, truth = files(directory, factor, piece), list[RunName](), dict[Any, Any]()
    for step in steps:
        column = pa.array(list(step), pa.int64())
        arrays = [
            pa.array(hashed(column, collide)),
            column,
            pa.array([live for _, live in step.values()], pa.bool_()),
            pa.array([value for value, _ in step.values()], pa.int64()),
        ]
        rows = pa.RecordBatch.from_arrays(arrays, schema=shape)
        names = keyed.insert(store, names, rows, 1, kernel())
        truth |= step
        probes = pa.array([None, *range(KEYS)], pa.int64())
        matches = keyed.find(store, names, [probes], hashed(probes, collide), shape, kernel())
        actual = matches.rows_or_null("value").to_pylist()
        want = [truth.get(key, (None, False)) for key in probes.to_pylist()]
        assert actual == [value if live else None for value, live in want]


@given(
    st.lists(
        st.lists(st.tuples(keys, st.integers(0, 2), st.integers(-2, 2)), max_size=8), max_size=8
    ),
    factors,
    pieces,
    st.booleans(),
)
@examples(30)
def test_multiset_adds_up(
    directory, steps: list[list[Any]], factor: int, piece: int, collide: bool
) -> None:
    shape = multiset.schema(pa.schema([("c0", pa.int64()), ("c1", pa.int64())]))
    store, names, truth = files(directory, factor, piece), list[RunName](), Counter[Any]()
    for step in steps:
        key = pa.array([k for k, _, _ in step], pa.int64())
        arrays = [
            pa.array(hashed(key, collide)),
            key,
            pa.array([v for _, v, _ in step], pa.int64()),
            pa.array([d for _, _, d in step], pa.int64()),
        ]
        rows = pa.RecordBatch.from_arrays(arrays, schema=shape)
        names = multiset.insert(store, names, rows, kernel())
        for k, v, d in step:
            truth[k, v] += d
    hashes = np.unique(hashed(pa.array([None, *range(KEYS)], pa.int64()), collide))
    actual: Counter[Any] = Counter()
    for row in multiset.candidates(store.open(names), hashes, shape).to_pylist():
        actual[row["c0"], row["c1"]] += row["diff"]
    assert {r: n for r, n in actual.items() if n} == {r: n for r, n in truth.items() if n}
    if factor == 1000:
        assert len(names) <= 1
        assert any(truth.values()) or not names


words = ["", "a", "b", "ba", "zz", "ä"]
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "integers": (pa.int32(), [-5, 0, 1, 2, 7, 9]),
    "doubles": (pa.float64(), [float("-inf"), -1.5, 0.0, 2.0, 3.5, float("inf")]),
    "unsigned": (pa.uint64(), [0, 1, 2, 3, 2**63, 2**64 - 1]),
    "texts": (pa.string(), words),
    "decimals": (pa.decimal128(30, 0), [-(10**25), -1, 0, 1, 2, 10**25]),
    "lists": (pa.list_(pa.int32()), [[], [-1], [0], [0, 0], [1], [2]]),
}


@given(
    st.lists(
        st.lists(st.tuples(keys, st.integers(0, 5), st.integers(-1, 2)), max_size=10),
        max_size=6,
    ),
    factors,
    pieces,
    st.booleans(),
    st.sampled_from(sorted(VALUES)),
    st.data(),
)
@examples(60)
def test_ordered_counts_and_finds_the_next(
    directory, steps: list[list[Any]], factor: int, piece: int, collide: bool, name: str, data
) -> None:
    kind, samples = VALUES[name]
    shape = ordered.schema([pa.int64()], kind)
    store, names, truth = files(directory, factor, piece), list[RunName](), Counter[Any]()
    for step in steps:
        key = pa.array([k for k, _, _ in step], pa.int64())
        value = pa.array([samples[v] for _, v, _ in step], kind)
        arrays = [pa.array(hashed(key, collide)), key, value]
        if "s" in shape.names:
            arrays.append(order.comparable(value, kernel()))
        arrays.append(pa.array([d for _, _, d in step], pa.int64()))
        rows = pa.RecordBatch.from_arrays(arrays, schema=shape)
        rows = rows.take(pa.array(np.argsort(hashed(key, collide), kind="stable")))
        names = ordered.insert(store, names, rows, kernel())
        for k, v, d in step:
            truth[k, v] += d
    runs = store.open(names)
    owners = pa.array([None, *range(KEYS - 1)], pa.int64())

    def entries(pairs: list[tuple[int, int]]) -> ordered.Entries:
        owner = np.array([o for o, _ in pairs], np.int64)
        value = pa.array([samples[v] for _, v in pairs], kind)
        compared = order.comparable(value, kernel())
        form = key_form(owners, kernel())
        return ordered.Entries([form], owner, hashed(owners, collide)[owner], value, compared)

    everything = [(o, v) for o in range(KEYS) for v in range(6)]
    for scanned in (0, 1000):  # every slice is searched, every slice is read
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ordered, "_SCANNED", scanned)
            actual = ordered.counts(runs, entries(everything), kernel()).tolist()
        assert actual == [truth[owners[o].as_py(), v] for o, v in everything]
    start = [(o, data.draw(st.integers(0, 5))) for o in range(KEYS)]
    passed = sorted(data.draw(st.sets(st.sampled_from(everything), max_size=8)))
    for largest in (False, True):
        extremes = ordered.extreme(
            runs, entries(start), entries(passed), kernel(), largest=largest
        ).to_pylist()
        for (o, first), got_value in zip(start, extremes, strict=True):
            there = [
                v
                for v in (range(first, -1, -1) if largest else range(first, 6))
                if truth[owners[o].as_py(), v] > 0 and (o, v) not in passed
            ]
            assert got_value == (pa.scalar(samples[there[0]], kind).as_py() if there else None)


def test_a_row_is_rewritten_a_logarithmic_number_of_times(directory: Path) -> None:
    shape = multiset.schema(pa.schema([("c0", pa.int64())]))
    store, names, written, steps = files(directory), list[RunName](), 0, 256
    for step in range(steps):
        column = pa.array(range(step * 10, step * 10 + 10))
        arrays = [pa.array(hash_keys([column], 10)), column, pa.array([1] * 10)]
        rows = pa.RecordBatch.from_arrays(arrays, schema=shape)
        before = {name for name, _ in names}
        names = multiset.insert(store, names, rows, kernel())
        written += sum(int(size) for name, size in names if name not in before)
        sizes = [int(size) for _, size in names]
        assert all(older >= 2 * newer for older, newer in itertools.pairwise(sizes))
    assert written <= 10 * steps * (1 + np.log2(steps))
    assert sum(int(size) for _, size in names) == 10 * steps


def test_runs_are_written_once_and_never_touched(directory: Path) -> None:
    shape = multiset.schema(pa.schema([("c0", pa.int64())]))
    store = files(directory, 1000)
    arrays = [pa.array([1], pa.uint64()), pa.array([5]), pa.array([1])]
    rows = pa.RecordBatch.from_arrays(arrays, schema=shape)
    first = multiset.insert(store, [], rows, kernel())
    file = directory / file_of(str(first[0][0]))
    body = file.read_bytes()
    second = multiset.insert(store, first, rows, kernel())
    assert first[0][0] != second[0][0]
    assert file.read_bytes()[: len(body)] == body
    assert store.open(first)[0].rows.num_rows == 1


@pytest.mark.parametrize("rows", [100, 5000])
def test_what_is_sorted_is_copied_only_where_it_may_hold_more(rows: int) -> None:
    hashes = np.sort(hash_keys([pa.array(np.arange(rows))], rows))
    batch = pa.RecordBatch.from_arrays(
        [pa.array(hashes), pa.array(np.arange(rows))], ["h", "v"]
    )
    for part in (batch, batch.take(pa.array(np.arange(rows)[::-1]))):
        sorted_rows, order = in_order([part])
        assert sorted_rows.to_pydict() == batch.to_pydict()
        assert np.array_equal(order, hashes)
    copied = in_order([batch])[0].column(0).buffers()[1].address
    assert (copied == batch.column(0).buffers()[1].address) == (rows == 5000)


def test_small_runs_share_a_file_until_it_is_large(directory: Path) -> None:
    shape = multiset.schema(pa.schema([("c0", pa.int64())]))
    store, names = files(directory, 0), list[RunName]()
    size = SMALL_RUN // 100
    for first in range(0, 20 * size, size):
        numbers = np.arange(first, first + size)
        arrays = [pa.array(numbers.astype(np.uint64)), pa.array(numbers), pa.array(numbers + 1)]
        rows = pa.RecordBatch.from_arrays(arrays, schema=shape)
        names = multiset.insert(store, names, rows, kernel())
    paths = [file_of(str(name)) for name, _ in names]
    assert len(names) == 20
    assert 1 < len(set(paths)) < 10
    assert paths == sorted(paths, key=paths.index)
    assert {path.name for path in directory.iterdir()} == set(paths)
    assert max(path.stat().st_size for path in directory.iterdir()) < SHARED_FILE + SMALL_RUN
    assert [run.rows.column("c0")[0].as_py() for run in store.open(names)] == [
        *range(0, 20 * size, size)
    ]


def test_what_a_write_that_failed_has_left_is_passed_over(directory: Path) -> None:
    shape = multiset.schema(pa.schema([("c0", pa.int64())]))
    store = files(directory, 0)
    arrays = [pa.array([1], pa.uint64()), pa.array([5]), pa.array([1])]
    rows = pa.RecordBatch.from_arrays(arrays, schema=shape)
    names = multiset.insert(store, [], rows, kernel())
    with (directory / file_of(str(names[0][0]))).open("ab") as file:
        file.write(b"half a run")
    names = multiset.insert(store, names, rows, kernel())
    assert [run.rows.to_pydict() for run in store.open(names)] == [rows.to_pydict()] * 2


def test_a_file_that_was_deleted_while_in_use_is_not_made_anew(tmp_path: Path) -> None:
    """Its runs would have the names of those before, which caches and checkpoints know."""
    shared, names = SharedFile(), iter(["a", "b"])
    assert shared.add(tmp_path, pa.py_buffer(b"one"), names.__next__) == "a.0"
    (tmp_path / "a").unlink()
    with pytest.raises(FileNotFoundError, match="run file a was deleted while in use"):
        shared.add(tmp_path, pa.py_buffer(b"two"), names.__next__)
