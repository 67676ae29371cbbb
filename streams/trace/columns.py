"""Rows of Arrow columns as keys: canonical form, grouping, and a hash that never changes.

Invariant: two rows are one key here exactly when DuckDB's GROUP BY puts them together, NULLs
included, and of all equal keys the same bytes are emitted, whatever their order (rule 23):
-0.0 becomes 0.0, every NaN the same NaN, and an interval its months, days below 30 and
microseconds below a day.

Grouping is by Arrow's dictionary encoding, so it is exact; hashes only place rows in buckets
and files. The hash is our own, over the canonical bytes: versions of DuckDB and of Arrow do
not move it. Its value over a fixed table is `HASH_SELF_TEST` (rule 35).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streams.trace.kernel.kernel import Kernel
from streams.trace.kernel.nested import exact

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]


_WORD = 8
_FEW = 4096
_PIECES, _TIMES = 8, 8
_MANY, _SAMPLE = 1 << 17, 1 << 14
_DAY_US = 86_400_000_000
_NULL = np.uint64(0x9E6C63D0876A9A35)
_STRIDE = np.uint64(0x9E3779B97F4A7C15)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_BLOCK = 1 << 14
_FEW_WORDS = 8
_ALL_BITS = ~np.uint64(0)


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows sorted into groups that are numbered from 0 in order of first appearance.

    `ids` has the group of each row, `first` the first row of each group.
    """

    ids: Ints
    first: Ints

    @property
    def count(self) -> int:
        """The number of groups."""
        return len(self.first)


def canonical(array: pa.Array) -> pa.Array:
    """Return the same values, with equal ones as equal bytes, in the same type."""
    if pa.types.is_floating(array.type) and len(array):
        values = array.to_numpy(zero_copy_only=False)
        clean = np.where(np.isnan(values), values.dtype.type(np.nan), values)
        clean = clean + values.dtype.type(0.0)
        mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
        return pa.array(clean, array.type, mask=mask, from_pandas=False)
    if pa.types.is_interval(array.type) and len(array):
        return _canonical_intervals(array)
    return array


def _canonical_intervals(array: pa.Array) -> pa.Array:
    parts = np.frombuffer(array.buffers()[1], np.int32).reshape(-1, 4)
    parts = parts[array.offset : array.offset + len(array)]
    micros = parts[:, 2:].copy().view(np.int64)[:, 0] // 1000
    days = parts[:, 0].astype(np.int64) * 30 + parts[:, 1] + micros // _DAY_US
    out = np.empty((len(array), 4), np.int32)
    out[:, 0], out[:, 1] = days // 30, days % 30
    out[:, 2:] = (micros % _DAY_US * 1000)[:, None].view(np.int32)
    validity = pc.is_valid(array)
    bits = pa.array(validity.to_numpy(zero_copy_only=False)).buffers()[1]
    return pa.Array.from_buffers(array.type, len(array), [bits, pa.py_buffer(out.tobytes())])


def key_form(array: pa.Array, kernel: Kernel) -> pa.Array:
    """A canonical array in a type that Arrow can encode and we can hash, equal where it is."""
    if isinstance(array, pa.ExtensionArray):
        return array.storage
    kind = array.type
    if pa.types.is_floating(kind):
        return array.view(pa.int64() if kind == pa.float64() else pa.int32())
    if pa.types.is_interval(kind):
        return array.view(pa.binary(16))
    if pa.types.is_null(kind):
        return pa.nulls(len(array), pa.int8())
    if pa.types.is_nested(kind):
        return sort_keys(exact(array), kernel)
    return array


def sort_keys(array: pa.Array, kernel: Kernel) -> pa.Array:
    """Return DuckDB's binary sort key of each value; NULL stays NULL. Costs a DuckDB call."""
    statement = kernel.prepare(
        "SELECT CASE WHEN x IS NOT NULL THEN create_sort_key(x, 'ASC NULLS LAST')::BLOB END "
        "AS s FROM {t}",
        t=pa.schema([("x", array.type)]),
    )
    return one_array(statement.run(pa.table([array], ["x"]))["s"])


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return the column as one array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    merged = column.combine_chunks()
    return merged if isinstance(merged, pa.Array) else pa.concat_arrays(merged.chunks)


def is_ascending(words: Words) -> bool:
    """Whether hashes are sorted already."""
    return bool((words[1:] >= words[:-1]).all())


def ascending(words: Words) -> Ints:
    """Return the order that sorts hashes, stably.

    numpy sorts values eight times faster than it finds the order of them. So the place of each
    rides in its low bits, and the few whose high bits are equal are put right afterwards; in
    what is no hash all may be, which costs what it would have cost. A few sorted pieces, one
    after the other, its stable sort merges in less.
    """
    rows = len(words)
    if rows < _FEW or np.count_nonzero(words[1:] < words[:-1]) < _PIECES:
        return np.argsort(words, kind="stable")
    low = np.uint64((1 << (rows - 1).bit_length()) - 1)
    packed = (words & ~low) | np.arange(rows, dtype=np.uint64)
    packed.sort()
    order: Ints = (packed & low).view(np.int64)
    ordered = words[order]
    if (ordered[1:] < ordered[:-1]).any():
        order = order[np.argsort(ordered, kind="stable")]
    return order


def search_sorted(sorted_words: Words, wanted_words: Words, *, after: bool) -> Ints:
    """Return how many of `sorted_words` are below each wanted word, or at most it if `after`.

    Both inputs ascend. A merge is cheaper unless one input is much longer than the other.
    """
    if len(sorted_words) > _TIMES * len(wanted_words) or len(sorted_words) < _FEW:
        return np.searchsorted(sorted_words, wanted_words, "right" if after else "left")
    first, second = (sorted_words, wanted_words) if after else (wanted_words, sorted_words)
    order = np.argsort(np.concatenate((first, second)), kind="stable")
    mine = order >= len(sorted_words) if after else order < len(wanted_words)
    return np.flatnonzero(mine) - np.arange(len(wanted_words))


def new_runs(ordered: Words) -> Flags:
    """Flag where a value differs from the one before it; true at first."""
    new = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return new


def encode(array: pa.Array) -> Ints:
    """A number for each value, in order of first appearance; NULL is a value like others.

    Cost: a table of the values is fast as long as it stays in the processor's cache. Numbers
    of which most differ are sorted instead.
    """
    if _is_word(array) and len(array) >= _MANY and _mostly_differ(array):
        return _encode_by_sorting(_fixed_words(array))
    encoded = pc.dictionary_encode(array, null_encoding="encode")
    codes: Ints = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _mostly_differ(array: pa.Array) -> bool:
    sample = array.take(pa.array(np.arange(0, len(array), len(array) // _SAMPLE)))
    return len(sample.unique()) > len(sample) * 3 // 4


def _encode_by_sorting(words: Words) -> Ints:
    mixed = mix_bits(words)
    order = ascending(mixed)
    new = new_runs(mixed[order])
    first = order[new]  # the order is stable: of each value the first row
    appears = np.zeros(len(words), np.int64)
    appears[first] = 1
    number = (np.cumsum(appears) - 1)[first]
    codes = np.empty(len(words), np.int64)
    codes[order] = number[np.cumsum(new) - 1]
    return codes


def group(keys: Sequence[pa.Array | Ints], rows: int) -> Groups:
    """Group rows by columns in key form, or by columns of integers.

    Without columns all rows are one group, if there is any.
    """
    if rows == 1:
        return Groups(np.zeros(1, np.int64), np.zeros(1, np.int64))
    if not keys:
        return Groups(np.zeros(rows, np.int64), np.zeros(min(rows, 1), np.int64))
    codes = _codes(keys[0])
    for key in keys[1:]:
        more = _codes(key)
        width = int(more.max(initial=0)) + 1
        codes = encode(pa.array(codes * width + more))
    return Groups(codes, first_rows(codes))


def equal_rows(left: pa.Array, right: pa.Array) -> Flags:
    """Flag where two columns in key form are equal; NULL is a value like others."""
    equal = pc.equal(left, right)
    if equal.null_count:
        equal = pc.or_(pc.fill_null(equal, False), pc.and_(left.is_null(), right.is_null()))  # noqa: FBT003 - pyarrow's own signature
    result: Flags = equal.to_numpy(zero_copy_only=False)
    return result


def _codes(key: pa.Array | Ints) -> Ints:
    return encode(pa.array(key) if isinstance(key, np.ndarray) else key)


def first_rows(codes: Ints) -> Ints:
    """Return the first position of each code; codes are numbered by first appearance."""
    count = int(codes.max()) + 1 if len(codes) else 0
    first = np.empty(count, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first


def mix_bits(words: Words) -> Words:
    """A bijection of 64 bits in which every input bit moves every output bit.

    Source: Steele, Lea, Flood: Fast splittable pseudorandom number generators (OOPSLA 2014),
    finaliser of SplitMix64.
    """
    mixed = words.copy()
    _mix(mixed)
    return mixed


def _mix(words: Words) -> None:
    """`mix_bits`, in place and block by block, so that passes stay in the processor's cache."""
    shifted = np.empty(min(len(words), _BLOCK), np.uint64)
    for start in range(0, len(words), _BLOCK):
        block = words[start : start + _BLOCK]
        high = shifted[: len(block)]
        block ^= np.right_shift(block, _SHIFTS[0], out=high)
        block *= _FACTORS[0]
        block ^= np.right_shift(block, _SHIFTS[1], out=high)
        block *= _FACTORS[1]
        block ^= np.right_shift(block, _SHIFTS[2], out=high)


def hash_keys(keys: Sequence[pa.Array], rows: int) -> Words:
    """Return the 64-bit hash of each row's key; `keys` are columns in key form."""
    result = np.full(rows, _STRIDE, np.uint64)
    for key in keys:
        result *= np.uint64(31)
        result += _hash(key)
        _mix(result)
    return result


def _hash(array: pa.Array) -> Words:
    if len(array) == 0:
        return np.empty(0, np.uint64)
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        words = _hash_bytes(array)
    elif pa.types.is_boolean(kind):
        words = mix_bits(array.cast(pa.uint8()).fill_null(0).to_numpy().astype(np.uint64))
    else:
        words = _hash_fixed(array)
    if array.null_count:
        words = np.where(array.is_null().to_numpy(zero_copy_only=False), _NULL, words)
    return words


def is_exact(keys: Sequence[pa.Array]) -> bool:
    """Whether two keys with one hash are one key: `mix_bits` is a bijection of single words."""
    return len(keys) == 1 and _is_word(keys[0])


def _is_word(array: pa.Array) -> bool:
    """Whether every value is a number of at most 64 bits, and there."""
    kind = array.type
    if array.null_count or isinstance(kind, pa.BaseExtensionType):
        return False
    narrow = pa.types.is_primitive(kind) and kind.bit_width <= _WORD * 8
    return narrow and not pa.types.is_boolean(kind)


def _hash_fixed(array: pa.Array) -> Words:
    if array.type.bit_width <= _WORD * 8:
        return mix_bits(_fixed_words(array))
    width = array.type.bit_width // 8
    data = np.frombuffer(array.buffers()[1], np.uint8)
    data = data[array.offset * width : (array.offset + len(array)) * width]
    words = data.view(np.uint64).reshape(len(array), -1)
    result = mix_bits(words[:, 0])
    for index in range(1, words.shape[1]):
        result = mix_bits(result * np.uint64(31) + words[:, index])
    return result


def _fixed_words(array: pa.Array) -> Words:
    """Values of at most 64 bits as words. Equal integers of different widths are one word."""
    width = array.type.bit_width // 8
    signed = width < _WORD and not pa.types.is_unsigned_integer(array.type)
    values = np.frombuffer(array.buffers()[1], f"{'i' if signed else 'u'}{width}")
    values = values[array.offset : array.offset + len(array)]
    return values.astype(np.int64).view(np.uint64) if width < _WORD else values


def _hash_bytes(array: pa.Array) -> Words:
    """Sum over the value's 64-bit words of the word mixed with its place; then its length."""
    every = np.frombuffer(array.buffers()[1], np.int32)
    bounds: Ints = every[array.offset : array.offset + len(array) + 1].astype(np.int64)
    begins, lengths = bounds[:-1], np.diff(bounds)
    is_long = lengths > _FEW_WORDS * _WORD
    if not is_long.any():
        totals = _sums_of_few_words(array, begins, lengths)
    elif is_long.all():
        totals = _sums_of_words(array, begins, lengths)
    else:
        totals = np.empty(len(lengths), np.uint64)
        short = ~is_long
        totals[short] = _sums_of_few_words(array, begins[short], lengths[short])
        totals[is_long] = _sums_of_words(array, begins[is_long], lengths[is_long])
    return mix_bits(totals + lengths.astype(np.uint64) * _STRIDE)


def _sums_of_few_words(array: pa.Array, begins: Ints, lengths: Ints) -> Words:
    """The sums of values with at most `_FEW_WORDS` words: block by block, place by place."""
    totals = np.zeros(len(lengths), np.uint64)
    for start in range(0, len(lengths), _BLOCK):
        block = slice(start, start + _BLOCK)
        _add_words(totals[block], array.buffers()[2], begins[block], lengths[block])
    return totals


def _add_words(totals: Words, data: pa.Buffer, begins: Ints, lengths: Ints) -> None:
    rows = np.arange(len(lengths))
    for place in range(_FEW_WORDS):
        there = lengths > place * _WORD
        if not there.all():
            rows, begins, lengths = rows[there], begins[there], lengths[there]
        if not len(rows):
            return
        words = _gather_words(data, begins + place * _WORD)
        words &= _used_bits(lengths - place * _WORD)
        words += mix_bits(np.array([place + 1], np.uint64) * _STRIDE)
        _mix(words)
        totals[rows] += words


def _sums_of_words(array: pa.Array, begins: Ints, lengths: Ints) -> Words:
    """The sums of values that have words of any number."""
    counts = (lengths + 7) >> 3
    ends = np.cumsum(counts)
    places = np.arange(int(ends[-1])) - np.repeat(ends - counts, counts)
    words = _gather_words(array.buffers()[2], np.repeat(begins, counts) + places * 8)
    words &= _used_bits(np.repeat(lengths, counts) - places * 8)
    mixed = mix_bits(words + mix_bits((places.astype(np.uint64) + np.uint64(1)) * _STRIDE))
    total = np.concatenate((np.zeros(1, np.uint64), np.cumsum(mixed)))
    sums: Words = total[ends] - total[ends - counts]
    return sums


def _used_bits(left: Ints) -> Words:
    """The bits of a word that belong to a value of which so many bytes are left."""
    used = np.minimum(left, _WORD).astype(np.uint64) * np.uint64(_WORD)
    mask: Words = _ALL_BITS >> (np.uint64(64) - used)
    return mask


def _gather_words(buffer: pa.Buffer | None, places: Ints) -> Words:
    if buffer is None or not len(places):
        return np.empty(0, np.uint64)
    low, high = int(places.min()), int(places.max())
    data = np.frombuffer(buffer, np.uint8)[low : high + 8]
    if len(data) < high + 8 - low:
        data = np.concatenate((data, np.zeros(8, np.uint8)))
    view = np.ndarray((high - low + 1,), "<u8", data, strides=(1,))
    gathered: Words = view[places - low]
    return gathered


def spans(starts: Ints, counts: Ints) -> Ints:
    """The positions starts[i] .. starts[i] + counts[i] - 1 of every i, one after the other."""
    total = int(counts.sum())
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(total)


def batch(arrays: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """A record batch of these arrays; the schema must fit them."""
    return pa.RecordBatch.from_arrays(list(arrays), schema=schema)


def int64(array: pa.Array) -> Ints:
    """A column of int64 without NULLs, as numpy sees it; no copy."""
    values: Ints = np.frombuffer(array.buffers()[1], np.int64)
    return values[array.offset : array.offset + len(array)]


def uint64(array: pa.Array) -> Words:
    """A column of uint64 without NULLs, as numpy sees it; no copy."""
    values: Words = np.frombuffer(array.buffers()[1], np.uint64)
    return values[array.offset : array.offset + len(array)]


def hash_self_test() -> int:
    """The hash of a fixed table: state that was sorted by another hash is of no use."""
    columns = [
        pa.array([1, -1, None, 2**62]),
        pa.array(["", "slack", None, "slack water at the turn of the tide"]),
        pa.array([True, False, None, True]),
    ]
    return int(np.bitwise_xor.reduce(hash_keys(columns, len(columns[0]))))


HASH_SELF_TEST = hash_self_test()
"""Part of `operators.engine.fingerprint`; a test pins its value."""
