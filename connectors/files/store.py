"""The connector's own files beside the data: applied tasks, key ranges, staged files.

All of it is under `_slackwater`, which readers of a directory pass over:

    _slackwater/<task>/task.json                     version and specification
    _slackwater/<task>/ranges/<begin>-<end>.json     one row of `TaskRange`
    _slackwater/<task>/staged/<nonce>-<number>/...   files of a transaction, where they will be
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from urllib.parse import quote

from pyarrow import fs

from connectors.sql.fence import FencedRange
from streams.errors import Determinate, Indeterminate

ROOT = "_slackwater"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRange:
    """A key range that a session opened, and the files it has committed."""

    key_begin: int
    key_end: int
    fence: int
    opened: int
    nonce: str
    transaction: int
    """The last that is committed; its files may still be staged."""
    checkpoint: str
    """In base64."""

    @property
    def held(self) -> FencedRange:
        """The range as a row of the fence."""
        return FencedRange.of_text(
            (self.key_begin, self.key_end), self.fence, self.opened, self.checkpoint
        )


class TaskStore:
    """The state of one task on a file system."""

    def __init__(self, filesystem: fs.FileSystem, root: str, task: str) -> None:
        self.filesystem, self.root = filesystem, root
        self.home = f"{root}/{ROOT}/{quote(task, safe='')}"

    def applied(self) -> tuple[str, str] | None:
        """Version and specification of the task as it was applied."""
        text = self._read(f"{self.home}/task.json")
        if text is None:
            return None
        task = json.loads(text)
        return str(task["version"]), str(task["spec"])

    def record(self, version: str, spec: str) -> None:
        """The task is applied."""
        self._write(f"{self.home}/task.json", {"version": version, "spec": spec})

    def ranges(self) -> list[TaskRange]:
        """The ranges of the task."""
        texts = [self._read(path) for path in self.paths(f"{self.home}/ranges")]
        return [TaskRange(**json.loads(text)) for text in texts if text is not None]

    def range(self, key_begin: int, key_end: int) -> TaskRange | None:
        """One range in its present state."""
        text = self._read(self._range_path(key_begin, key_end))
        return None if text is None else TaskRange(**json.loads(text))

    def put(self, row: TaskRange) -> None:
        """Replace a range atomically."""
        self._write(self._range_path(row.key_begin, row.key_end), asdict(row))

    def remove(self, key_begin: int, key_end: int) -> None:
        """A range that counts for no key any more. Errors: Indeterminate."""
        with changing(f"delete a key range of {self.home}"):
            self.filesystem.delete_file(self._range_path(key_begin, key_end))

    def fence(self, row: TaskRange) -> None:
        """No session of this range can commit again."""
        self.put(replace(row, fence=row.fence + 1))

    def staged(self, nonce: str, transaction: int) -> str:
        """The staging directory of a transaction until it is committed."""
        return f"{self.home}/staged/{nonce}-{transaction}"

    def settle(self, row: TaskRange) -> None:
        """Publish committed files of the session of a range, and delete the others.

        Errors: Indeterminate.
        """
        prefix = f"{self.home}/staged/{row.nonce}-"
        committed = self.staged(row.nonce, row.transaction)
        with changing(f"settle a key range of {self.home}"):
            self.publish(committed)
            for info in self.filesystem.get_file_info(
                fs.FileSelector(f"{self.home}/staged", allow_not_found=True)
            ):
                if info.path.startswith(prefix):
                    self.filesystem.delete_dir(info.path)

    def publish(self, staged: str) -> None:
        """Move files to where readers see them; done twice, it is done once."""
        for path in self.paths(staged):
            place = f"{self.root}/{path.removeprefix(staged + '/')}"
            self.filesystem.create_dir(place.rpartition("/")[0], recursive=True)
            self.filesystem.move(path, place)

    def paths(self, directory: str) -> Iterator[str]:
        """The files in a directory and those below it, in the order of their names.

        Errors: Determinate.
        """
        selector = fs.FileSelector(directory, recursive=True, allow_not_found=True)
        with reading(directory):
            infos = self.filesystem.get_file_info(selector)
        files = [info.path for info in infos if info.type == fs.FileType.File]
        yield from sorted(path for path in files if not path.endswith(".tmp"))

    def _range_path(self, key_begin: int, key_end: int) -> str:
        return f"{self.home}/ranges/{key_begin:08x}-{key_end:08x}.json"

    def _read(self, path: str) -> bytes | None:
        try:
            with reading(path), self.filesystem.open_input_stream(path) as stream:
                text: bytes = stream.read()
        except FileNotFoundError:
            return None
        return text

    def _write(self, path: str, value: object) -> None:
        with changing(f"write {path}"):
            self.filesystem.create_dir(path.rpartition("/")[0], recursive=True)
            with self.filesystem.open_output_stream(f"{path}.tmp") as stream:
                stream.write(json.dumps(value, indent=2).encode())
            self.filesystem.move(f"{path}.tmp", path)


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Errors: Determinate; FileNotFoundError as it is."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Determinate(f"cannot read {what}: {error}") from error


@contextmanager
def changing(what: str) -> Iterator[None]:
    """Errors: Indeterminate: a file system that does not answer may have done it."""
    try:
        yield
    except OSError as error:
        raise Indeterminate(f"cannot {what}: {error}") from error
