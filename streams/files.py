"""Atomic file writes, the user's cache, and directories for executables."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import gettempdir

from streams.errors import Determinate
from streams.temporary import temporary_directory


def write_whole(
    path: Path, content: bytes | str, mode: int = 0o644, *, is_durable: bool = False
) -> None:
    """Write `content` to the file `path` atomically: no reader sees a part of it.

    The file has `mode` from its first byte on, whatever the mode of a file that it replaces.
    `is_durable`: on return it is on disk, so that no power failure brings the old one back.

    Errors: OSError; then the former file is unchanged.
    """
    data = content.encode() if isinstance(content, str) else content
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        with os.fdopen(
            os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb"
        ) as file:
            file.write(data)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(partial, path)  # noqa: PTH105  Path.replace is the same call, twice as slow
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    if is_durable:
        synchronize(path.parent)


def synchronize(path: Path) -> None:
    """Have a file, or the names of a directory's files, on disk. Errors: OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def user_cache() -> Path:
    """The user's directory of what can be had again: jars, and archives of classes."""
    return Path.home() / ".cache" / "slackwater"


@contextmanager
def directory_of_programs(prefix: str) -> Iterator[Path]:
    """A temporary directory from which programs can run: not on a disk mounted `noexec`.

    It is in the system's temporary directory, else in the user's cache or beside Python.

    Errors: Determinate, naming the directories, if programs can run from none of them.
    """
    refused: list[str] = []
    for place in (Path(gettempdir()), Path.home() / ".cache", Path(sys.prefix)):
        with ExitStack() as stack:
            try:
                directory = Path(stack.enter_context(temporary_directory(prefix, place)))
                _run_something(directory / "probe")
            except OSError as cause:
                refused.append(f"{place} ({cause.strerror or cause})")
                continue
            yield directory
            return
    raise Determinate(
        f"programs cannot be run from {', nor from '.join(refused)}: expected a directory on a"
        " disk that is not mounted noexec (set TMPDIR to one)"
    )


def _run_something(path: Path) -> None:
    """Write a program and run it. Errors: OSError if it cannot be run."""
    write_program(path, "exit 0")
    try:
        subprocess.run([str(path)], check=False)  # noqa: S603  just written
    except OSError as cause:
        # while another thread starts a process, that has what we wrote open for a moment
        if cause.errno != errno.ETXTBSY:
            raise
    path.unlink()


def write_program(path: Path, script: str) -> None:
    """Write a shell program to `path`."""
    write_whole(path, f"#!/bin/sh\n{script}\n", 0o700)
