"""Many byte strings as one Arrow array: cut out of an arena, or put together into one."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Offsets = NDArray[np.int64]
Part: TypeAlias = "slice[int | None, int | None, int | None]"


class Blobs(Sequence[bytes]):
    """A sequence of byte strings; the strings themselves are created on first access."""

    __slots__ = ("_listed", "array")

    def __init__(self, array: pa.BinaryArray) -> None:
        self.array = array
        """Without nulls."""
        self._listed: list[bytes] | None = None

    @classmethod
    def of(cls, values: Sequence[bytes]) -> "Blobs":
        """Itself, or a copy of other byte strings."""
        if isinstance(values, Blobs):
            return values
        blobs = cls(pa.array(values, pa.binary()))
        blobs._listed = list(values)
        return blobs

    @classmethod
    def cut(cls, arena: bytes, begins: Offsets, ends: Offsets) -> "Blobs":
        """The slices [begin, end) of an arena, each of which lies in it."""
        bounds = np.stack((begins, ends), axis=1).ravel()
        if not (bounds[1:] >= bounds[:-1]).all():
            pairs = zip(begins.tolist(), ends.tolist(), strict=True)
            return cls.of([arena[begin:end] for begin, end in pairs])
        if (begins[1:] == ends[:-1]).all():
            return cls(_array(arena, np.append(begins, ends[-1:])))
        pieces = _array(arena, bounds)  # what is between two slices is a piece too
        return cls(pieces.take(pa.array(np.arange(0, len(bounds), 2))))

    @property
    def offsets(self) -> Offsets:
        """Where each string begins in `arena`, and where the last ends."""
        array = self.array
        buffer = array.buffers()[1]
        if not len(array) or buffer is None:
            return np.zeros(len(array) + 1, np.int64)
        every = np.frombuffer(buffer, np.int32)[array.offset : array.offset + len(array) + 1]
        offsets: Offsets = every.astype(np.int64) - every[0]
        return offsets

    @property
    def arena(self) -> bytes:
        """All strings, one after another."""
        array = self.array
        offsets, data = array.buffers()[1:]
        if not len(array) or data is None:
            return b""
        every = np.frombuffer(offsets, np.int32)
        begin, end = int(every[array.offset]), int(every[array.offset + len(array)])
        return bytes(memoryview(data)[begin:end])

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: Part) -> "Blobs": ...
    def __getitem__(self, index: "int | Part") -> "bytes | Blobs":
        if isinstance(index, int):
            return self._list()[index]
        return Blobs(self.array[index])

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._list())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._list() == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(self._list())

    def _list(self) -> list[bytes]:
        if self._listed is None:
            self._listed = self.array.to_numpy(zero_copy_only=False).tolist()
        return self._listed


def _array(arena: bytes, offsets: Offsets) -> pa.BinaryArray:
    """What is between offsets, which do not fall."""
    if len(offsets) < 2:  # noqa: PLR2004 two bounds make a string
        return pa.array([], pa.binary())
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(arena)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
