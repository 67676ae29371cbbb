"""The run files of a host of a cluster: a directory that caches those of a store.

Files never change and are named once, so a file that is there is right, unless the machine was
booted since: they are not synced to disk, so each boot has a directory of its own. All workers
of a host share it, and look at its size now and then: one that finds it too large deletes the
files that were longest not opened. A file that is mapped stays readable, and one that is needed
again is copied again.
"""

import os
import shutil
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from streams.errors import Indeterminate
from streams.replica.state_files import RemoteFiles

RUNS = "runs"
COPIES = 8
"""Files copied to the store at a time."""

YOUNG_S = 60.0
"""Files that were opened so lately stay: a task may be about to add to them."""

PART = 16
"""The cache is looked at when a worker has brought this part of what it may have."""


@dataclass(slots=True)
class RunFileCache:
    """A worker's view of the cache, of at most so many bytes. Not thread-safe."""

    store: RemoteFiles
    directory: Path
    most_bytes: int
    _brought: int = 0
    """Bytes since it was last looked at how large the cache is; at first it is."""
    _copies: ThreadPoolExecutor | None = None

    def __post_init__(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._brought = self.most_bytes // PART
        for other in self.directory.parent.iterdir():
            if other != self.directory:  # of another boot: the disk may have lost a part of it
                shutil.rmtree(other, ignore_errors=True)

    def bring(self, name: str) -> None:
        """Copy a file from the store. Errors: OSError, of which FileNotFoundError is one."""
        path = self.directory / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.store.download(f"{RUNS}/{name}", path)
        self._count(path.stat().st_size)

    def keep(self, names: Iterable[str]) -> None:
        """Copy files to the store.

        Errors: OSError; Indeterminate if the store is away, or has no room, or a file has gone.
        """
        paths = [self.directory / name for name in names]
        if any(not path.exists() or not path.stat().st_size for path in paths):
            raise Indeterminate("a run file has left the cache before it was in the store")
        if self._copies is None:
            self._copies = ThreadPoolExecutor(COPIES, "run-files")
        for path in self._copies.map(self._copied, paths):
            self._count(path.stat().st_size)

    def _copied(self, path: Path) -> Path:
        self.store.upload(path, f"{RUNS}/{path.name}")
        return path

    def _count(self, size: int) -> None:
        self._brought += size
        if self._brought > self.most_bytes // PART:
            self._brought = 0
            self._make_room()

    def _make_room(self) -> None:
        """Delete what was longest not opened, down to what the cache may have."""
        files = list[tuple[float, int, str]]()
        with os.scandir(self.directory) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    stat = entry.stat()
                    files.append((max(stat.st_atime, stat.st_mtime), stat.st_size, entry.path))
        excess = sum(size for _, size, _ in files) - self.most_bytes
        for opened_s, size, path in sorted(files):
            if excess <= 0 or time.time() - opened_s < YOUNG_S:
                return
            Path(path).unlink(missing_ok=True)
            excess -= size
