"""Temporary directories that are removed when their process was killed: by the next one.

The process that makes a directory holds a lock on a file in it, which the kernel releases
however the process ends. Who makes another directory of the same prefix removes those without
a holder.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OWNER = "owner.lock"
"""The file in a directory that its process holds a lock on."""


@contextmanager
def temporary_directory(prefix: str, place: Path | None = None) -> Iterator[Path]:
    """A directory in `place`, or where the system has temporary files. Errors: OSError."""
    directory, lock = claimed_directory(prefix, place or Path(tempfile.gettempdir()))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def claimed_directory(prefix: str, place: Path) -> tuple[Path, int]:
    """Return a new directory, and the descriptor to close once it is removed.

    Directories of the prefix whose process has ended are removed before. Errors: OSError.
    """
    remove_abandoned(prefix, place)
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    partial = directory / f".{OWNER}.partial"
    lock = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    partial.rename(directory / OWNER)  # it is not seen before it is locked
    return directory, lock


def remove_abandoned(prefix: str, place: Path) -> None:
    """Remove directories of the prefix whose lock is free; others stay as they are.

    One without a lock may be about to get it, or belong to a program that knows no locks.
    """
    for directory in place.glob(f"{prefix}*"):
        if directory.is_symlink():
            continue
        try:
            lock = os.open(directory / OWNER, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)
