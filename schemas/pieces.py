"""Bytes of many rows: cut out of a matrix with a row for each, and joined row by row.

An array here is of Arrow's type binary and holds at most 2 GiB: give more rows in parts.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]

WORD = 8
"""Bytes of a word."""


def whole(matrix: Bytes) -> pa.BinaryArray:
    """All bytes of each row."""
    rows, width = matrix.shape
    return _array(np.arange(0, rows * width + 1, width or 1), matrix, rows)


def cut(matrix: Bytes, mask: Flags, lengths: Counts) -> pa.BinaryArray:
    """The bytes of each row at which the mask is set, `lengths` of them."""
    if int(lengths.sum()) == matrix.size:
        return whole(matrix)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    return _array(offsets, matrix[mask], len(matrix))


def first(matrix: Bytes, counts: Counts) -> pa.BinaryArray:
    """The first bytes of each row, `counts` of them."""
    return cut(matrix, np.arange(matrix.shape[1]) < counts[:, None], counts)


def last(
    head: Bytes, tail: Bytes, counts: Counts, shown: Flags | None = None
) -> pa.BinaryArray:
    """The row of `head`, its bytes that are `shown`, and the last `counts` bytes of `tail`."""
    most = int(counts.max(initial=0))
    matrix = np.concatenate((head, tail[:, tail.shape[1] - most :]), axis=1)
    mask = np.ones(matrix.shape, np.bool_)
    lengths = counts + head.shape[1]
    if shown is not None:
        mask[:, : head.shape[1]] = shown
        lengths = counts + np.count_nonzero(shown, axis=1)
    mask[:, head.shape[1] :] = np.arange(most) >= (most - counts)[:, None]
    return cut(matrix, mask, lengths)


def joined(*parts: pa.BinaryArray | pa.BinaryScalar) -> pa.BinaryArray:
    """The bytes of the parts of each row, one after another; none is null."""
    return pc.binary_join_element_wise(*parts, binary(b""))


def binary(value: bytes) -> pa.BinaryScalar:
    """Arrow's scalar of bytes. Not to be made at import: the first one loads pandas."""
    return pa.scalar(value, pa.binary())


def big_endian(words: NDArray[np.uint64]) -> Bytes:
    """A row for each word: its bytes, the most significant first."""
    return words.astype(">u8").view(np.uint8).reshape(-1, WORD)


def validity(array: pa.Array) -> Flags | None:
    """Where there are values; None if that is everywhere."""
    if not array.null_count:
        return None
    flags: Flags = array.is_valid().to_numpy(zero_copy_only=False)
    return flags


def _array(offsets: Counts, data: Bytes, rows: int) -> pa.BinaryArray:
    bounds = pa.py_buffer(offsets.astype(np.int32))
    content = pa.py_buffer(np.ascontiguousarray(data))
    return pa.Array.from_buffers(pa.binary(), rows, [None, bounds, content])
