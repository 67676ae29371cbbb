"""Where a task finds the descriptor of its micro-batch, plans and run files.

Tasks on the driver's machine, or on hosts that share its state directory, find all of them
there. Others are `Remote`: they ask the driver for descriptors and plans, over a connection
that proves who both are, and have run files in a directory of their own host, a cache of a
store. A file that is not there comes from the store. What a task has written is in the store
before its report names it, so any host can go on from there, and losing a cache costs copies.

Tasks get a place as text, an argument of every function that Spark runs.
"""

import json
import random
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Protocol

from streams.errors import Determinate, Indeterminate
from streams.replica import state_files
from streams.replica.state_files import RunStore
from streams.replica.tasks import descriptor
from streams.replica.tasks.authenticated_frames import Door, Frames
from streams.replica.tasks.run_cache import RunFileCache
from streams.replica.tasks.versions import differences, versions

ANSWER_S = 30.0
PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
"""Between attempts to ask the driver."""

MOST_REQUEST = 4 << 10
MOST_ANSWER = 1 << 30

BOOT = Path("/proc/sys/kernel/random/boot_id")

_FOUND, _GONE = b"\0", b"\1"


@dataclass(frozen=True, slots=True)
class Remote:
    """The place of tasks that share nothing with the driver.

    `versions` are those of the driver, which must be a task's too.
    """

    door: Door
    store: RunStore
    versions: Mapping[str, str]


class Workplace(Protocol):
    """What a task needs of its place."""

    @property
    def runs(self) -> Path:
        """The directory of run files."""

    def descriptor(self, step: str) -> bytes:
        """Return the descriptor of a micro-batch, pickled. Errors: OSError, Indeterminate."""

    def plan(self, name: str) -> str:
        """Return a plan as JSON. Errors: OSError, Indeterminate."""

    def bring(self, file: Path) -> None:
        """Bring a run file that is not in the directory. Errors: OSError."""

    def keep(self, names: Iterable[str]) -> None:
        """Have run files that a task has written where all tasks find them. Errors: OSError."""


@dataclass(frozen=True, slots=True)
class Shared:
    """The driver's state directory."""

    directory: Path

    @property
    def runs(self) -> Path:
        """The directory of run files."""
        return self.directory / "runs"

    def descriptor(self, step: str) -> bytes:
        """Return the descriptor of a micro-batch, pickled."""
        return descriptor.path_of(self.directory, step).read_bytes()

    def plan(self, name: str) -> str:
        """Return a plan as JSON."""
        return (self.directory / "plans" / name).read_text()

    def bring(self, file: Path) -> None:
        """Every file is in the directory, or lost. Errors: FileNotFoundError."""
        raise FileNotFoundError(f"run file {file.name} no longer exists")

    def keep(self, names: Iterable[str]) -> None:
        """They are there."""


@dataclass(slots=True)
class Elsewhere:
    """A host of its own."""

    driver: "DriverConnection"
    cached: RunFileCache

    @property
    def runs(self) -> Path:
        """The directory of run files."""
        return self.cached.directory

    def descriptor(self, step: str) -> bytes:
        """Return the descriptor of a micro-batch, pickled."""
        return self.driver.ask("step", step)

    def plan(self, name: str) -> str:
        """Return a plan as JSON."""
        return self.driver.ask("plan", name).decode()

    def bring(self, file: Path) -> None:
        """Copy a run file from the store."""
        self.cached.bring(file.name)

    def keep(self, names: Iterable[str]) -> None:
        """Copy run files to the store."""
        self.cached.keep(names)


@dataclass(slots=True)
class DriverConnection:
    """A worker's connection to the driver; made when needed, and again when it is lost."""

    door: Door
    _frames: Frames | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, kind: str, name: str) -> bytes:
        """Return what the driver keeps. Errors: Indeterminate, also if it has it no more."""
        with self._lock:
            answer = self._answer(kind, name)
        if answer[:1] != _FOUND:
            raise Indeterminate(f"the replica's driver no longer has {kind} {name}")
        return answer[1:]

    def _answer(self, kind: str, name: str) -> bytes:
        """Ask, and again when the connection is lost: a driver lets in few at a time."""
        for pause_s in (*PAUSES_S, None):
            try:
                return self._asked(kind, name)
            except OSError as cause:
                if pause_s is None or isinstance(cause, PermissionError):
                    raise Indeterminate(f"the replica's driver: {cause}") from cause
                time.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311  no secret
        raise AssertionError("the last attempt answers or fails")

    def _asked(self, kind: str, name: str) -> bytes:
        try:
            if self._frames is None:
                self._frames = self.door.connect()
            self._frames.send(json.dumps([kind, name]).encode(), ANSWER_S)
            answer = self._frames.receive(MOST_ANSWER, ANSWER_S)
        except OSError:
            self._leave()
            raise
        if not answer:
            self._leave()
            raise ConnectionResetError("the driver left")
        return answer

    def _leave(self) -> None:
        if self._frames is not None:
            self._frames.close()
            self._frames = None


class Answers(Protocol):
    """What the driver keeps for tasks."""

    def answer(self, kind: str, name: str) -> bytes | None:
        """Return a `plan` or the descriptor of a `step`; None if there is none."""


def serve(frames: Frames, answers: Answers) -> None:
    """Answer a task's requests, as the driver, until it leaves. Errors: OSError."""
    while (request := frames.receive(MOST_REQUEST)) is not None:
        kind, name = json.loads(request)
        answer = answers.answer(kind, name)
        frames.send(_GONE if answer is None else _FOUND + answer, ANSWER_S)


def dumps(remote: Remote) -> str:
    """Return a place as the text that tasks get; it has secrets."""
    door = remote.door
    return json.dumps(
        {
            "door": [door.host, door.port, door.token.hex()],
            "store": asdict(remote.store),
            "versions": dict(remote.versions),
        }
    )


def _boot() -> str:
    """The id of this machine's boot."""
    return BOOT.read_text().strip() if BOOT.exists() else "boot"


@cache
def of(place: str) -> Workplace:
    """Return the place that the text of a task says: a directory, or one of its own.

    Errors: Determinate if this host's versions are not the driver's.
    """
    if not place.startswith("{"):
        return Shared(Path(place))
    facts = json.loads(place)
    if different := differences(facts["versions"], versions()):
        raise Determinate(
            f"this executor is not as the replica's driver: {different};"
            " give executors the driver's environment"
        )
    host, port, token = facts["door"]
    store = RunStore(**facts["store"])
    base = Path(store.cache) if store.cache else Path.cwd() / "slackwater-runs"
    files = state_files.opened(store.uri).below(store.folder)
    cached = RunFileCache(files, base / store.folder / _boot(), store.cache_bytes)
    return Elsewhere(DriverConnection(Door(host, port, bytes.fromhex(token))), cached)
