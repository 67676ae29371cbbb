"""Writes the files of a copy so that they become visible together, or not at all.

    directory/part-00000-ATTEMPT.parquet ..    the rows
    directory/_SUCCESS                         the manifest, as JSON

A local file system gets a hidden directory beside the target, and a rename makes it visible: it
fails when the target has files. Others (S3) get the files in place, and the manifest last: a
directory without one is incomplete. Of two that write to one place at a time, the second to
look sees the files of the other, and gives up before its manifest. What fails or is canceled
removes its own files, which the attempt names, and no others.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from streams.copies.targets import CopyTarget
from streams.errors import InvalidStatement
from streams.files import synchronize

MANIFEST = "_SUCCESS"
MOST_MANIFEST = 64 << 20
"""Bytes of a manifest that are read."""


class CopyCanceled(Exception):
    """Nobody waits for the copy any more."""


@dataclass(frozen=True, slots=True)
class CopyManifest:
    """What is in a directory: answer and files. `files` are rows and bytes, in order.

    `copy` names the statement, of which there may be several attempts.
    """

    copy: str
    time: int | None
    columns: tuple[tuple[str, str], ...]
    files: tuple[tuple[int, int], ...]

    def encoded(self, names: Sequence[str]) -> bytes:
        """Return the manifest as JSON."""
        files = [
            {"name": name, "rows": rows, "bytes": size}
            for name, (rows, size) in zip(names, self.files, strict=True)
        ]
        document: Mapping[str, object] = {
            "copy": self.copy,
            "format": "parquet",
            "as_of": self.time,
            "rows": sum(rows for rows, _ in self.files),
            "columns": [{"name": name, "type": kind} for name, kind in self.columns],
            "files": files,
        }
        return json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Destination:
    """A directory of a file system, for one attempt to write it."""

    filesystem: fs.FileSystem
    path: str
    attempt: str

    @property
    def _is_local(self) -> bool:
        return str(self.filesystem.type_name) == "local"

    @property
    def staging(self) -> str:
        """The directory that files are written to."""
        parent = self.path.rpartition("/")[0]
        return f"{parent}/.copy-{self.attempt}" if self._is_local else self.path

    def name(self, number: int) -> str:
        """Return the name of a file."""
        return f"part-{number:05}-{self.attempt}.parquet"

    def refuse_taken(self) -> None:
        """Errors: InvalidStatement if the target cannot be written as it is; OSError."""
        if self._is_local:
            parent = self.path.rpartition("/")[0] or "/"
            if self.filesystem.get_file_info(parent).type is not fs.FileType.Directory:
                raise InvalidStatement(
                    "COPY TO expected an existing directory",
                    f"the parent of the target, {parent}, is not a directory",
                    "create it, or write to another place",
                )
        kind = self.filesystem.get_file_info(self.path).type
        if kind is fs.FileType.File:
            raise _taken("it is a file")
        selector = fs.FileSelector(self.path, allow_not_found=True)
        entries = self.filesystem.get_file_info(selector)
        if entries:
            names = sorted(info.base_name for info in entries)
            raise _taken(f"it has {names[0]}, of {len(names)} in all")

    def written(self, copy: str) -> tuple[tuple[int, int], ...] | None:
        """Return the files that an attempt for this `copy` has made visible, if one has.

        Errors: OSError.
        """
        path = f"{self.path}/{MANIFEST}"
        if self.filesystem.get_file_info(path).type is not fs.FileType.File:
            return None
        with self.filesystem.open_input_stream(path) as stream:
            text = stream.read(MOST_MANIFEST)
        try:
            document = json.loads(text)
            if document["copy"] != copy:
                return None
            return tuple((int(file["rows"]), int(file["bytes"])) for file in document["files"])
        except (ValueError, TypeError, KeyError):
            return None  # it is of another program

    def write(
        self,
        data: Iterable[bytes],
        manifest: CopyManifest,
        is_canceled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Write all files and then make them visible.

        Shape: `data` are the bytes of the files, one behind the other, in any pieces. Errors:
        CopyCanceled, InvalidStatement, OSError; then nothing of this attempt is left, as far
        as the file system lets it be removed.
        """
        self.refuse_taken()
        names = [self.name(number) for number in range(len(manifest.files))]
        is_committing = False
        try:
            if self._is_local:
                self.filesystem.create_dir(self.staging, recursive=False)
            pieces = _cut(data, [size for _, size in manifest.files])
            for name, file in zip(names, pieces, strict=True):
                self._put(name, _watched(file, is_canceled))
            _refuse_canceled(is_canceled)
            if not self._is_local:
                self._refuse_others()
            is_committing = True
            self._commit(manifest.encoded(names))
        except BaseException:
            self._remove(names, has_manifest=is_committing)
            raise

    def _put(self, name: str, pieces: Iterable[bytes]) -> None:
        path = f"{self.staging}/{name}"
        with self.filesystem.open_output_stream(path) as stream:
            for piece in pieces:
                stream.write(piece)
        if self._is_local:
            synchronize(Path(path))

    def _commit(self, manifest: bytes) -> None:
        self._put(MANIFEST, [manifest])
        if not self._is_local:
            return
        synchronize(Path(self.staging))
        try:
            self.filesystem.move(self.staging, self.path)
        except OSError:
            self.refuse_taken()
            raise
        synchronize(Path(self.path).parent)

    def _refuse_others(self) -> None:
        """Errors: InvalidStatement if another attempt has written there meanwhile."""
        entries = self.filesystem.get_file_info(
            fs.FileSelector(self.path, allow_not_found=True)
        )
        others = [info.base_name for info in entries if self.attempt not in info.base_name]
        if others:
            raise _taken(f"it has {min(others)}")

    def _remove(self, names: Sequence[str], *, has_manifest: bool) -> None:
        """Remove what this attempt wrote: the manifest, which says that all is there, first."""
        if self._is_local:
            with suppress(OSError):
                self.filesystem.delete_dir(self.staging)
            return
        for name in (*([MANIFEST] if has_manifest else []), *names):
            with suppress(OSError):
                self.filesystem.delete_file(f"{self.path}/{name}")


def opened(target: CopyTarget, attempt: str) -> Destination:
    """Return the directory of a target. Errors: InvalidStatement, OSError."""
    try:
        filesystem, path = fs.FileSystem.from_uri(target.uri)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidStatement(
            f"COPY cannot use the file system of {target.shown}",
            target.redacted(str(error).splitlines()[0]),
            "check the URI in the coordinator's --copy-to",
        ) from None
    path = path.rstrip("/")
    if filesystem.type_name == "local":
        _, prefix = fs.FileSystem.from_uri(target.prefix_uri)
        path = _resolved(path, prefix)
    return Destination(filesystem, path, attempt)


def _resolved(path: str, prefix: str) -> str:
    """Return a local path without links in its parents. Errors: InvalidStatement."""
    parent, name = Path(path).parent.resolve(), Path(path).name
    if not parent.is_relative_to(Path(prefix).resolve()):
        raise InvalidStatement(
            "COPY may not write there: a link leads out of the allowed place",
            "expected a directory below the coordinator's --copy-to, behind all links",
        )
    if (parent / name).is_symlink():
        raise _taken("it is a link")
    return str(parent / name)


def _taken(what: str) -> InvalidStatement:
    return InvalidStatement(
        "COPY TO expected a directory that is empty or does not exist",
        f"{what}; COPY overwrites nothing",
        "write to another directory, or remove what is there",
    )


def _watched(pieces: Iterable[bytes], is_canceled: Callable[[], bool]) -> Iterator[bytes]:
    for piece in pieces:
        _refuse_canceled(is_canceled)
        yield piece


def _refuse_canceled(is_canceled: Callable[[], bool]) -> None:
    if is_canceled():
        raise CopyCanceled


def _cut(data: Iterable[bytes], sizes: Sequence[int]) -> Iterator[Iterator[bytes]]:
    """Yield the pieces of each file: each is to be read to its end before the next."""
    source, rest = iter(data), b""

    def file(size: int) -> Iterator[bytes]:
        nonlocal rest
        while size:
            rest = rest or next(source)
            piece, rest = rest[:size], rest[size:]
            size -= len(piece)
            yield piece

    for size in sizes:
        yield file(size)
