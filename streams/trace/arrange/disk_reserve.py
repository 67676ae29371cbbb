"""A disk-space reserve for run files, which only small files may use.

A dataflow whose state does not fit must not take the last of the disk with it: its neighbours,
the driver and Spark write there too. So a large run is refused where it would go into the
reserve, with the error of a full disk, and what is small goes on.
"""

import errno
import os
from pathlib import Path

PART = 20
MOST_RESERVED = 256 << 20
NOTHING = 1 << 20
"""Free bytes with which hardly anything can be written: a disk that has less is full."""

_TEXTS = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))


def usage(directory: Path) -> tuple[int, int]:
    """The bytes of a directory's file system that are free for us, and all it has."""
    stat = os.statvfs(directory)
    return stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize


def reserve_of(total: int) -> int:
    """The bytes that a disk of `total` bytes keeps for small files."""
    return min(total // PART, MOST_RESERVED)


def missing_bytes(directory: Path, size: int = 0) -> int:
    """The bytes of the reserve that are missing once `size` more bytes are written."""
    free, total = usage(directory)
    return max(0, reserve_of(total) - (free - size))


def is_full(directory: Path) -> bool:
    """Whether nothing can be written to a directory's disk; False if that is unknown."""
    try:
        return usage(directory)[0] < NOTHING
    except OSError:
        return False


def says_full(text: str) -> bool:
    """Whether an error's text is that of a full disk, or of a quota."""
    return any(phrase in text for phrase in _TEXTS)


def claim(directory: Path, size: int) -> None:
    """Refuse `size` bytes that would go into the reserve. Errors: OSError: the disk is full."""
    if missing_bytes(directory, size):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory))
