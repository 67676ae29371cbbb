"""Returns the memory of a long task to the system.

A worker serves one task after the other. What a task has freed stays in the pools of Arrow and
of the C library, cut up by what lives on, so a worker would keep the size of its greatest task:
140 MB for one that holds 50 MB. Giving it back takes 3 ms, and up to 30 ms for much of it, so
only a task that took long does it.

Source: malloc_trim(3); `pyarrow.MemoryPool.release_unused`.
"""

import ctypes
import time
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa

LONG_S = 0.2


def released(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what a task returns; then give its memory back if it took long."""
    began = time.perf_counter()
    yield from batches
    if time.perf_counter() - began >= LONG_S:
        release()


def release() -> None:
    """Give free memory back to the system, where the C library can do it."""
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError):  # another one than glibc
        ctypes.CDLL(None).malloc_trim(0)
