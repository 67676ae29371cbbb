"""Stores checkpoint records and run files of a replica, and what its tasks read.

    plans/<hash>                           plans, read by workers
    runs/<name>                            run files, written by workers alone
    steps/<lane>-<seq>-<unique>.pickle     descriptors of running micro-batches
    lanes/<lane>-<unique>                  Spark's own checkpoints, fresh at every start
    checkpoints/<dataflow>/<frontier>      records, written by the driver alone (rule 19)
    checkpoints/<dataflow>/build           progress of a hydration (rule 20)
    boot                                   the boot id of the machine that wrote all this
    owner                                  of a store: the process that may delete run files

`streams.compute.checkpoints` decides what is needed; this module has only the file operations.
Each file appears atomically. All of this is in the replica's state directory, which its workers
share, or runs and checkpoints are in a store that all hosts of a cluster reach; then tasks get
plans and descriptors from the driver (`streams.replica.tasks.workplace`).

Files of the directory are not synced to disk: they survive the death of our processes, and are
deleted after a reboot, or if another machine uses the directory now, as is all state that lost
a part. Nothing else in the directory may be deleted: it has the lock, and the files of the
running Spark session.
"""

import json
import logging
import pickle
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from streams.compute.checkpoints import Checkpoint, HydrationCheckpoint
from streams.errors import Determinate, Indeterminate
from streams.ids import CollectionId, Timestamp
from streams.progress import frontier
from streams.replica.driver.dataflow_state import Build, OwnState, Record, run_names
from streams.replica.driver.task_inputs import DirectoryInputs, TaskInputs
from streams.replica.state_files import DirectoryFiles, StateFiles
from streams.replica.tasks.descriptor import Runs, write_state

log = logging.getLogger(__name__)

T = TypeVar("T")

PASSING = ("plans", "steps", "lanes")
LASTING = ("runs", "checkpoints")
OWNER = "owner"
DELETES = 16
"""How many run files are deleted from a store at a time."""
BOOT = Path("/proc/sys/kernel/random/boot_id")


class CheckpointStore:
    """What one replica stores; created before anything that uses it.

    `files` has runs and checkpoints, and `inputs` what tasks read: without them both are in
    the state directory.
    """

    def __init__(
        self, directory: Path, files: StateFiles | None = None, inputs: TaskInputs | None = None
    ) -> None:
        self.directory = directory
        self.files = files or DirectoryFiles(directory)
        directory.mkdir(parents=True, exist_ok=True)
        if files is None:
            self._settle_boot()
        self._delete(PASSING)  # of an earlier process: useless without its driver
        for name in (*PASSING, *LASTING) if files is None else PASSING:
            (directory / name).mkdir(exist_ok=True)
        self.inputs = inputs or DirectoryInputs(directory)
        self._process = uuid.uuid4().hex.encode()
        self._listed: Mapping[str, int] = {}
        if files is not None:
            self._write(OWNER, self._process)

    def is_owner(self) -> bool:
        """Whether no other process has this state now: only its owner may delete run files.

        A lock keeps others from the directory. A store is its latest process's: one that is
        cut off from everything but the store may run on, and knows nothing of new files.
        """
        if isinstance(self.files, DirectoryFiles):
            return True
        try:
            return self.files.read(OWNER) == self._process
        except FileNotFoundError:
            return False

    def _settle_boot(self) -> None:
        """Delete everything that was written before the machine's last boot."""
        boot = BOOT.read_text() if BOOT.exists() else ""
        mark = self.directory / "boot"
        if mark.exists() and mark.read_text() != boot:
            log.info("machine was rebooted: dropping state", extra={"state": self.directory})
            self._delete(LASTING)
        if not mark.exists() or mark.read_text() != boot:
            write_state(mark, boot.encode())

    def _delete(self, names: Iterable[str]) -> None:
        for name in names:
            shutil.rmtree(self.directory / name, ignore_errors=True)

    def records(self, dataflow: CollectionId) -> tuple[Record, ...]:
        """Return the records of a dataflow whose run files all exist, oldest first.

        Incomplete records are useless and are deleted; so are unreadable ones: another version
        may have written them, and all of them are a cache.
        """
        run_files = self.run_files()
        read = self._records(dataflow)
        self.delete_records(dataflow, [r for r in read if not r.checkpoint.runs <= run_files])
        whole = [record for record in read if record.checkpoint.runs <= run_files]
        return tuple(sorted(whole, key=lambda record: record.checkpoint.frontier))

    def _records(self, dataflow: CollectionId) -> list[Record]:
        folder = _folder(dataflow)
        names = [name for name in self.files.sizes(folder) if name[0].isdigit()]
        read = [self._readable(f"{folder}/{name}", _load) for name in names]
        return [record for record in read if record is not None]

    def put_record(self, dataflow: CollectionId, record: Record) -> None:
        """Write a record. Errors: Determinate, for example if the disk is full."""
        self._write(_record(dataflow, record), _dump(record))

    def delete_records(self, dataflow: CollectionId, records: Iterable[Record]) -> None:
        """Delete these records of a dataflow."""
        for record in records:
            self._discard(self.files.delete, _record(dataflow, record))

    def build(self, dataflow: CollectionId, fingerprint: str) -> tuple[Build, int] | None:
        """Return the stored progress of a hydration under this fingerprint, and its buckets.

        One of another fingerprint is useless, and its classes may be of another version: it is
        not unpickled.
        """
        return self._readable(
            _build(dataflow), lambda content: _load_build(content, fingerprint)
        )

    def put_build(
        self, dataflow: CollectionId, fingerprint: str, build: Build, buckets: int
    ) -> None:
        """Store the progress of a hydration over so many buckets. Errors: Determinate."""
        header = {
            "fingerprint": fingerprint,
            "buckets": buckets,
            "runs": sorted(run_names(build.runs)),
        }
        content = json.dumps(header).encode() + b"\n" + pickle.dumps(build)
        self._write(_build(dataflow), content)

    def delete_build(self, dataflow: CollectionId) -> None:
        """Delete the progress of a hydration."""
        self._discard(self.files.delete, _build(dataflow))

    def forget(self, dataflow: CollectionId) -> None:
        """Delete what is stored of a dataflow; the next collection deletes its run files."""
        self._discard(self.files.delete_folder, _folder(dataflow))

    def named(self, dataflow: CollectionId) -> frozenset[str]:
        """Return the run files that the stored records and the build of a dataflow name."""
        names: set[str] = set()
        for record in self._records(dataflow):
            names |= record.checkpoint.runs
        return frozenset(names | (self._readable(_build(dataflow), _runs_of_build) or set()))

    def run_files(self) -> frozenset[str]:
        """Return the names of all run files."""
        self._listed = self.files.sizes("runs")
        return frozenset(self._listed)

    def run_sizes(self) -> Mapping[str, int]:
        """Return the bytes of all run files by name; of a store, as they were last listed."""
        if isinstance(self.files, DirectoryFiles):
            return self.files.sizes("runs")
        return self._listed

    def delete_runs(self, names: Iterable[str]) -> None:
        """Delete run files; in a store several at a time, since each takes a round trip.

        Errors: Indeterminate while the store is away; some may be deleted.
        """
        paths = [f"runs/{name}" for name in names]
        if isinstance(self.files, DirectoryFiles):
            for path in paths:
                self.files.delete(path)
            return
        with ThreadPoolExecutor(DELETES, "deletes") as pool:
            for _ in pool.map(self.files.delete, paths):
                pass

    def stored(self) -> frozenset[CollectionId]:
        """Return the dataflows of which anything is stored."""
        return frozenset(map(CollectionId, self.files.folders("checkpoints")))

    def _write(self, path: str, content: bytes) -> None:
        try:
            self.files.write(path, content)
        except OSError as cause:
            raise Determinate(f"state file {path}: {cause}") from cause

    def _discard(self, delete: Callable[[str], None], path: str) -> None:
        """Delete what is useless; while the store is away, or another's, it stays there."""
        try:
            if self.is_owner():
                delete(path)
        except Indeterminate as away:
            log.warning("useless state stays", extra={"state": path, "cause": str(away)})

    def _readable(self, path: str, load: Callable[[bytes], T]) -> T | None:
        """The contents of a file for `load`; None without one, or, deleted, if unreadable.

        Errors: Indeterminate while the store is away.
        """
        try:
            return load(self.files.read(path))
        except FileNotFoundError:  # perhaps deleted meanwhile because it was incomplete
            return None
        except Indeterminate:
            raise
        except Exception as cause:  # noqa: BLE001  whatever unpickling raises; it is a cache
            log.warning(
                "dropping unreadable state", extra={"state": path, "cause": repr(cause)}
            )
            self._discard(self.files.delete, path)
            return None


def _folder(dataflow: CollectionId) -> str:
    return f"checkpoints/{dataflow}"


def _record(dataflow: CollectionId, record: Record) -> str:
    return f"{_folder(dataflow)}/{record.checkpoint.frontier}"


def _build(dataflow: CollectionId) -> str:
    return f"{_folder(dataflow)}/build"


def hydration_of(fingerprint: str, build: Build) -> HydrationCheckpoint:
    """Return a stored build as a `Hydration`."""
    pieces = [
        piece for part in build.slices for load in part for piece in getattr(load, "pieces", ())
    ]
    return HydrationCheckpoint(
        fingerprint=fingerprint,
        incarnation=build.incarnation,
        as_of=build.lower,
        slices=len(build.slices),
        done=build.done,
        runs=run_names(build.runs),
        chunks=frozenset(piece.ref.key for piece in pieces),
    )


def record_of(fingerprint: str, state: OwnState, buckets: int) -> Record:
    """Return the record of a state over so many buckets."""
    checkpoint = Checkpoint(
        fingerprint, state.incarnation, state.frontier.time, run_names(state.runs)
    )
    return Record(checkpoint, state, buckets)


def _load_build(content: bytes, fingerprint: str) -> tuple[Build, int] | None:
    header, _, pickled = content.partition(b"\n")
    facts = json.loads(header)
    if facts["fingerprint"] != fingerprint:
        return None
    build = pickle.loads(pickled)  # noqa: S301  written by our own driver, of this version
    assert isinstance(build, Build)
    return build, facts["buckets"]


def _runs_of_build(content: bytes) -> frozenset[str]:
    header, _, _ = content.partition(b"\n")
    return frozenset(json.loads(header)["runs"])


def _dump(record: Record) -> bytes:
    state, offsets = record.state, record.state.offsets
    facts = {
        "fingerprint": record.checkpoint.fingerprint,
        "buckets": record.buckets,
        "incarnation": state.incarnation,
        "frontier": state.frontier.time,
        "runs": {str(bucket): runs for bucket, runs in state.runs.items()},
        "offsets": None if offsets is None else {str(p): o for p, o in offsets.items()},
    }
    return json.dumps(facts).encode()


def _load(content: bytes) -> Record:
    facts = json.loads(content)
    runs: Mapping[int, Runs] = {
        int(bucket): bucket_runs for bucket, bucket_runs in facts["runs"].items()
    }
    offsets = facts["offsets"]
    state = OwnState(
        facts["incarnation"],
        frontier(Timestamp(facts["frontier"])),
        runs,
        None if offsets is None else {int(p): o for p, o in offsets.items()},
    )
    return record_of(facts["fingerprint"], state, facts["buckets"])
