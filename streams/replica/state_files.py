"""The files of a replica's state: in a directory, or below a URI of any file system of pyarrow.

A file appears whole or not at all, and is never changed. Paths are relative, with `/` between
names. Errors of all methods: FileNotFoundError for a file that does not exist; else OSError of
a directory, and Indeterminate of a file system elsewhere, which may be away for a while.
"""

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyarrow import fs

from streams.errors import Indeterminate, InvalidUsage
from streams.files import synchronize, write_whole

STORE = "--store"
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStore:
    """Where run files and checkpoints are when executors do not share the state directory.

    `uri` is of a file system that driver and executors reach, and may have secrets; `folder`
    is this replica's there. `cache` is a directory of each executor's host, of at most
    `cache_bytes`; empty: one of ours where the executor was started.
    """

    uri: str = field(repr=False)
    folder: str
    cache: str = ""
    cache_bytes: int = 16 << 30


class StateFiles(Protocol):
    """Reads, writes, lists and deletes files."""

    def read(self, path: str) -> bytes:
        """Return the contents of a file."""

    def write(self, path: str, content: bytes) -> None:
        """Write a file; its folder is made if there is none."""

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Return the bytes of each file of a folder by name; none if there is no folder."""

    def folders(self, folder: str) -> frozenset[str]:
        """Return the names of the folders in a folder."""

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with all that is in it, if it exists."""


@dataclass(frozen=True, slots=True)
class DirectoryFiles:
    """Files of a directory of this machine. They are not synced to disk."""

    root: Path

    def read(self, path: str) -> bytes:
        """Return the contents of a file."""
        return (self.root / path).read_bytes()

    def write(self, path: str, content: bytes) -> None:
        """Write a file; its folder is made if there is none."""
        target = self.root / path
        try:
            write_whole(target, content)
        except FileNotFoundError:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, content)

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Return the bytes of each file of a folder by name; none if there is no folder."""
        sizes: dict[str, int] = {}
        with suppress(FileNotFoundError), os.scandir(self.root / folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # deleted meanwhile
                    if not entry.is_dir():
                        sizes[entry.name] = entry.stat().st_size
        return sizes

    def folders(self, folder: str) -> frozenset[str]:
        """Return the names of the folders in a folder."""
        with suppress(FileNotFoundError):
            return frozenset(p.name for p in (self.root / folder).iterdir() if p.is_dir())
        return frozenset()

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        (self.root / path).unlink(missing_ok=True)

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with all that is in it, if it exists."""
        shutil.rmtree(self.root / folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class RemoteFiles:
    """Files below a path of a file system, which all hosts of a cluster reach."""

    filesystem: fs.FileSystem
    root: str

    def below(self, folder: str) -> "RemoteFiles":
        """Return the files of a folder there."""
        return RemoteFiles(self.filesystem, self._at(folder))

    def read(self, path: str) -> bytes:
        """Return the contents of a file."""
        with _reached(path), self.filesystem.open_input_stream(self._at(path)) as stream:
            content: bytes = stream.read()
            return content

    def write(self, path: str, content: bytes) -> None:
        """Write a file; its folder is made if there is none."""
        with _reached(path):
            self._put(path, pa.BufferReader(content))

    def upload(self, local: Path, path: str) -> None:
        """Copy a local file there."""
        with pa.memory_map(str(local)) as content, _reached(path):
            self._put(path, content)

    def download(self, path: str, local: Path) -> None:
        """Copy a file to this machine, where it appears whole."""
        partial = local.with_name(f".{local.name}.{uuid.uuid4().hex}")
        try:
            with partial.open("wb") as file:
                for piece in self._pieces(path):
                    file.write(piece)
            partial.replace(local)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise

    def _pieces(self, path: str) -> Iterator[bytes]:
        with _reached(path):
            stream = self.filesystem.open_input_stream(self._at(path))
        with stream:
            while True:
                with _reached(path):
                    piece = stream.read(_CHUNK)
                if not piece:
                    return
                yield piece

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Return the bytes of each file of a folder by name; none if there is no folder."""
        return {
            info.base_name: info.size
            for info in self._list(folder)
            if info.type is fs.FileType.File and not info.base_name.startswith(".")
        }

    def folders(self, folder: str) -> frozenset[str]:
        """Return the names of the folders in a folder."""
        listed = self._list(folder)
        return frozenset(i.base_name for i in listed if i.type is fs.FileType.Directory)

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        with suppress(FileNotFoundError), _reached(path):
            self.filesystem.delete_file(self._at(path))

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with all that is in it, if it exists."""
        with _reached(folder):
            self.filesystem.delete_dir_contents(self._at(folder), missing_dir_ok=True)
        with suppress(OSError):  # an object store has no folders
            self.filesystem.delete_dir(self._at(folder))

    def _at(self, path: str) -> str:
        return f"{self.root}/{path}"

    def _list(self, folder: str) -> list[fs.FileInfo]:
        selector = fs.FileSelector(self._at(folder), allow_not_found=True)
        with _reached(folder):
            listed: list[fs.FileInfo] = self.filesystem.get_file_info(selector)
        return listed

    def _put(self, path: str, content: pa.NativeFile) -> None:
        target = self._at(path)
        folder, _, name = target.rpartition("/")
        is_local = self.filesystem.type_name == "local"  # others show a file once it is closed
        written = f"{folder}/.{name}.{uuid.uuid4().hex}" if is_local else target
        try:
            self._copy(content, written)
        except FileNotFoundError:
            self.filesystem.create_dir(folder)
            content.seek(0)
            self._copy(content, written)
        if is_local:
            self.filesystem.move(written, target)

    def _copy(self, content: pa.NativeFile, written: str) -> None:
        try:
            with self.filesystem.open_output_stream(written) as stream:
                stream.upload(content)
            if self.filesystem.type_name == "local":
                synchronize(Path(written))
        except BaseException:
            with suppress(OSError):
                self.filesystem.delete_file(written)
            raise


@contextmanager
def _reached(path: str) -> Iterator[None]:
    """Errors: FileNotFoundError; Indeterminate for whatever else the file system says."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as cause:
        raise Indeterminate(f"the store of state, {path}: {cause}") from cause


def opened(uri: str) -> RemoteFiles:
    """Return the files below a URI. Errors: InvalidUsage, which shows no secret."""
    scheme, separator, _ = uri.partition("://")
    if not separator:
        raise _unfit("a text without a scheme")
    try:
        filesystem, root = fs.FileSystem.from_uri(uri)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        reason = type(error).__name__
        raise _unfit(f"one of the scheme {scheme[:20]} that is refused ({reason})") from None
    return RemoteFiles(filesystem, root.rstrip("/"))


def _unfit(came: str) -> InvalidUsage:
    return InvalidUsage(f"{STORE}: expected a URI as s3://bucket/x or file:///x, actual {came}")
