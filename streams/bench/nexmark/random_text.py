"""Columns of random texts."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]


def letters(lengths: Ints, rng: np.random.Generator) -> pa.Array:
    """Texts of lower case letters, of these lengths."""
    ends = np.cumsum(lengths)
    offsets = np.concatenate(([0], ends)).astype(np.int32)
    data = rng.integers(ord("a"), ord("z") + 1, int(offsets[-1]), np.uint8)
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(data))


def digits(width: int, count: int, rng: np.random.Generator) -> pa.Array:
    """Texts of `width` digits."""
    values = pc.cast(pa.array(rng.integers(0, 10**width, count)), pa.string())
    return pc.utf8_lpad(values, width, "0")


def one_of(texts: Sequence[str], count: int, rng: np.random.Generator) -> pa.Array:
    """Each of them one of the texts."""
    return chosen(texts, rng.integers(0, len(texts), count))


def chosen(texts: Sequence[str], places: Ints) -> pa.Array:
    """The texts at these places."""
    return pa.array(texts, pa.string()).take(pa.array(places))


def joined(*parts: pa.Array | str) -> pa.Array:
    """The parts of each text one after the other."""
    return pc.binary_join_element_wise(*parts, "")
