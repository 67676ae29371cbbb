"""Sorting and numbering of keys: what is quick says what is plain, whatever the keys are."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from streams.trace import columns
from streams.trace.columns import (
    ascending,
    encode,
    first_rows,
    is_ascending,
    is_exact,
    mix_bits,
    search_sorted,
)

SMALL, LARGE = 100, 200_000


def numbers(kind: str, rows: int) -> np.ndarray:
    rng = np.random.default_rng(rows)
    return {
        "hashes": mix_bits(rng.integers(0, rows, rows).astype(np.uint64)),
        "of equal high bits": rng.integers(0, 50, rows).astype(np.uint64),
        "in pairs of equal high bits": mix_bits(
            np.arange(rows, dtype=np.uint64) // np.uint64(2)
        )
        ^ rng.integers(0, 4, rows).astype(np.uint64),
        "descending": np.arange(rows, dtype=np.uint64)[::-1] << np.uint64(40),
        "of all bits": np.full(rows, 2**64 - 1, np.uint64),
        "in sorted pieces": np.concatenate(
            [np.sort(mix_bits(part)) for part in np.array_split(np.arange(rows, dtype="u8"), 3)]
        ),
    }[kind]


KINDS = [
    "hashes",
    "of equal high bits",
    "in pairs of equal high bits",
    "descending",
    "of all bits",
    "in sorted pieces",
]


@pytest.mark.parametrize("rows", [0, 1, SMALL, 4096, LARGE])
@pytest.mark.parametrize("kind", KINDS)
def test_words_are_sorted_stably(kind: str, rows: int) -> None:
    words = numbers(kind, max(rows, 1))[:rows]
    assert np.array_equal(ascending(words), np.argsort(words, kind="stable"))
    assert is_ascending(words) == np.array_equal(words, np.sort(words))
    assert is_ascending(np.sort(words))


@pytest.mark.parametrize("probes", [0, 1, SMALL, LARGE // 8, LARGE])
@pytest.mark.parametrize("stored", [0, 1, SMALL, LARGE])
def test_hashes_are_searched_or_merged_to_the_same_end(stored: int, probes: int) -> None:
    rng = np.random.default_rng(stored + probes)
    for spread in (3, LARGE, 2**64 - 1):
        there, requested = (
            np.sort(rng.integers(0, spread, rows, np.uint64, endpoint=True))
            for rows in (stored, probes)
        )
        below = search_sorted(there, requested, after=False)
        assert np.array_equal(below, np.searchsorted(there, requested, "left"))
        through = search_sorted(there, requested, after=True)
        assert np.array_equal(through, np.searchsorted(there, requested, "right"))


def test_hashes_of_many_keys_are_those_of_each_alone() -> None:
    """They are mixed in blocks; a block's end shows nowhere."""
    keys = [pa.array(np.arange(LARGE)), pa.array(np.arange(LARGE) % 7)]
    hashes = columns.hash_keys(keys, LARGE)
    for start in (0, 16383, 16384, LARGE - 2):
        alone = columns.hash_keys([key.slice(start, 2) for key in keys], 2)
        assert np.array_equal(alone, hashes[start : start + 2])
    words = np.arange(5, dtype=np.uint64)
    mix_bits(words)
    assert words.tolist() == [0, 1, 2, 3, 4]


WORD = (1 << 64) - 1


def mixed(word: int) -> int:
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & WORD
    return word ^ word >> 31


def hash_of_bytes(value: bytes) -> int:
    stride = 0x9E3779B97F4A7C15
    words = [int.from_bytes(value[at : at + 8], "little") for at in range(0, len(value), 8)]
    total = sum(
        mixed((word + mixed((place + 1) * stride & WORD)) & WORD)
        for place, word in enumerate(words)
    )
    return mixed((mixed((total + len(value) * stride) & WORD) + stride * 31) & WORD)


@pytest.mark.parametrize("lengths", [range(66), range(64, 200), [3, 1000, 0, 64, 65, 7]])
def test_the_hash_of_bytes_is_that_of_their_words(lengths: Sequence[int]) -> None:
    """Few words are added up place by place, many all together; the sum is one."""
    values = [bytes(number * 37 + at & 255 for at in range(number)) for number in lengths]
    array = pa.array([b"before", *values])[1:]
    assert columns.hash_keys([array], len(array)).tolist() == [
        hash_of_bytes(value) for value in values
    ]


@pytest.mark.parametrize("kind", [pa.int64(), pa.int32(), pa.uint32(), pa.date32()])
@pytest.mark.parametrize("rows", [SMALL, LARGE])
def test_values_are_numbered_as_they_appear_however_many_differ(
    kind: pa.DataType, rows: int
) -> None:
    rng = np.random.default_rng(5)
    for spread in (3, rows * 4):
        values = pa.array(rng.integers(0, spread, rows).astype(np.int32)).cast(kind)
        plain = values.dictionary_encode().indices.to_numpy()
        codes = encode(values)
        assert np.array_equal(codes, plain)
        assert np.array_equal(first_rows(codes), np.unique(plain, return_index=True)[1])


def test_many_different_values_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the promise, the means: a table of them would be six times slower."""
    calls = []
    monkeypatch.setattr(columns, "_encode_by_sorting", lambda words: calls.append(len(words)))
    encode(pa.array(np.arange(LARGE)))
    encode(pa.array(np.arange(LARGE) % 1000))
    encode(pa.array([None, *range(LARGE)]))
    encode(pa.array(np.arange(LARGE).astype(str)))
    assert calls == [LARGE]


def test_only_single_words_have_hashes_of_their_own() -> None:
    word = pa.array([1, 2])
    assert is_exact([word])
    assert is_exact([word.cast(pa.date64())])
    assert not is_exact([word, word])
    assert not is_exact([pa.array([1, None])])
    assert not is_exact([pa.array(["a"])])
    assert not is_exact([word.cast(pa.decimal128(38, 0))])
    assert not is_exact([pa.array([True])])
    assert not is_exact([])
