"""Stores checkpoint records and run files of a replica in its state directory.

    plans/<hash>                           plans, read by workers
    runs/<name>                            run files, written by workers alone
    steps/<lane>-<seq>-<unique>.pickle     descriptors of running micro-batches
    lanes/<lane>-<unique>                  Spark's own checkpoints, fresh at every start
    checkpoints/<dataflow>/<frontier>      records, written by the driver alone (rule 19)
    checkpoints/<dataflow>/build           progress of a hydration (rule 20)
    boot                                   the boot id of the machine that wrote all this

`streams.compute.checkpoints` decides what is needed; this module has only the file operations.
Each file appears atomically. Files are not synced to disk: they survive the death of our
processes, and are deleted after a reboot, or if another machine uses the directory now, as is
all state that lost a part. Nothing else in the directory may be deleted: it has the lock, and
the files of the running Spark session.
"""

import json
import logging
import pickle
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from streams.compute.checkpoints import Checkpoint, HydrationCheckpoint
from streams.ids import CollectionId, Timestamp
from streams.progress import frontier
from streams.replica.driver.dataflow_state import Build, OwnState, Record, run_names
from streams.replica.tasks.descriptor import Runs, make_folder, write_state

log = logging.getLogger(__name__)

T = TypeVar("T")

PASSING = ("plans", "steps", "lanes")
LASTING = ("runs", "checkpoints")
BOOT = Path("/proc/sys/kernel/random/boot_id")


class CheckpointStore:
    """The state directory of one replica; created before anything that uses it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._folders: set[CollectionId] = set()
        directory.mkdir(parents=True, exist_ok=True)
        self._settle_boot()
        self._delete(PASSING)  # of an earlier process: useless without its driver
        for name in (*PASSING, *LASTING):
            (directory / name).mkdir(exist_ok=True)

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

    def put_plan(self, name: str, plan: str) -> None:
        """Write a plan for the workers."""
        path = self.directory / "plans" / name
        if not path.exists():
            write_state(path, plan.encode())

    def records(self, dataflow: CollectionId) -> tuple[Record, ...]:
        """Return the records of a dataflow whose run files all exist, oldest first.

        Incomplete records are useless and are deleted; so are unreadable ones: another version
        may have written them, and all of them are a cache.
        """
        run_files = self.run_files()
        paths = [path for path in self._folder(dataflow).iterdir() if path.name[0].isdigit()]
        read = [record for path in paths if (record := _readable(path, _load)) is not None]
        self.delete_records(dataflow, [r for r in read if not r.checkpoint.runs <= run_files])
        whole = [record for record in read if record.checkpoint.runs <= run_files]
        return tuple(sorted(whole, key=lambda record: record.checkpoint.frontier))

    def put_record(self, dataflow: CollectionId, record: Record) -> None:
        """Write a record."""
        write_state(self._record(dataflow, record), _dump(record))

    def delete_records(self, dataflow: CollectionId, records: Iterable[Record]) -> None:
        """Delete these records of a dataflow."""
        for record in records:
            self._record(dataflow, record).unlink(missing_ok=True)

    def _record(self, dataflow: CollectionId, record: Record) -> Path:
        return self._folder(dataflow) / str(record.checkpoint.frontier)

    def build(self, dataflow: CollectionId, fingerprint: str) -> Build | None:
        """Return the stored progress of a hydration under this fingerprint.

        One of another fingerprint is useless, and its classes may be of another version: it is
        not unpickled.
        """
        path = self._folder(dataflow) / "build"
        if not path.exists():
            return None
        return _readable(path, lambda file: _load_build(file, fingerprint))

    def put_build(self, dataflow: CollectionId, fingerprint: str, build: Build | None) -> None:
        """Store the progress of a hydration, or that there is none."""
        path = self._folder(dataflow) / "build"
        if build is None:
            path.unlink(missing_ok=True)
        else:
            header = {"fingerprint": fingerprint, "runs": sorted(run_names(build.runs))}
            write_state(path, json.dumps(header).encode() + b"\n" + pickle.dumps(build))

    def forget(self, dataflow: CollectionId) -> None:
        """Delete what is stored of a dataflow; the next collection deletes its run files."""
        shutil.rmtree(self._folder(dataflow), ignore_errors=True)
        self._folders.discard(dataflow)

    def named(self, dataflow: CollectionId) -> frozenset[str]:
        """Return the run files that the stored records and the build of a dataflow name."""
        names: set[str] = set()
        for path in (self.directory / "checkpoints" / dataflow).glob("[0-9]*"):
            with suppress(FileNotFoundError):  # deleted meanwhile because it was incomplete
                record = _readable(path, _load)
                names |= frozenset() if record is None else record.checkpoint.runs
        build = self.directory / "checkpoints" / dataflow / "build"
        with suppress(FileNotFoundError):
            names |= _readable(build, _runs_of_build) or frozenset()
        return frozenset(names)

    def run_files(self) -> frozenset[str]:
        """Return the names of all run files."""
        return frozenset(path.name for path in (self.directory / "runs").iterdir())

    def delete_runs(self, names: Iterable[str]) -> None:
        """Delete run files."""
        for name in names:
            (self.directory / "runs" / name).unlink(missing_ok=True)

    def stored(self) -> frozenset[CollectionId]:
        """Return the dataflows of which anything is stored."""
        folders = (self.directory / "checkpoints").iterdir()
        return frozenset(CollectionId(path.name) for path in folders)

    def _folder(self, dataflow: CollectionId) -> Path:
        folder = self.directory / "checkpoints" / dataflow
        if dataflow not in self._folders:
            make_folder(folder)
            self._folders.add(dataflow)
        return folder


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


def record_of(fingerprint: str, state: OwnState) -> Record:
    """Return the record of a state."""
    checkpoint = Checkpoint(
        fingerprint, state.incarnation, state.frontier.time, run_names(state.runs)
    )
    return Record(checkpoint, state)


def _readable(path: Path, load: Callable[[Path], T]) -> T | None:
    """The contents of a file for `load`; None, with the file deleted, if unreadable."""
    try:
        return load(path)
    except FileNotFoundError:
        raise
    except Exception as cause:  # noqa: BLE001  whatever unpickling raises; the file is a cache
        log.warning("dropping unreadable state", extra={"state": path, "cause": repr(cause)})
        path.unlink(missing_ok=True)
        return None


def _load_build(path: Path, fingerprint: str) -> Build | None:
    header, _, pickled = path.read_bytes().partition(b"\n")
    if json.loads(header)["fingerprint"] != fingerprint:
        return None
    build = pickle.loads(pickled)  # noqa: S301  written by our own driver, of this version
    assert isinstance(build, Build)
    return build


def _runs_of_build(path: Path) -> frozenset[str]:
    header, _, _ = path.read_bytes().partition(b"\n")
    return frozenset(json.loads(header)["runs"])


def _dump(record: Record) -> bytes:
    state, offsets = record.state, record.state.offsets
    facts = {
        "fingerprint": record.checkpoint.fingerprint,
        "incarnation": state.incarnation,
        "frontier": state.frontier.time,
        "runs": {str(bucket): runs for bucket, runs in state.runs.items()},
        "offsets": None if offsets is None else {str(p): o for p, o in offsets.items()},
    }
    return json.dumps(facts).encode()


def _load(path: Path) -> Record:
    facts = json.loads(path.read_bytes())
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
    return record_of(facts["fingerprint"], state)
