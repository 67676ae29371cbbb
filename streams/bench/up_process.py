"""`slackwater up` as a user starts it: a process of its own, and the clients to use it."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from streams.app.client import Client
from streams.app.die_with_parent import guarded
from streams.app.environment_access import find
from streams.errors import Determinate, InvalidUsage
from streams.kafka.settings import ClientSettings

START_S, STOP_S = 180.0, 40.0
LOOK_EVERY_S = 0.02


@dataclass(frozen=True, slots=True)
class UpProcess:
    """An environment that answers statements. `began_s` is on the performance counter."""

    pid: int
    client: Client
    kafka: ClientSettings
    began_s: float

    @property
    def age_s(self) -> float:
        """Seconds since `slackwater up` was started."""
        return time.perf_counter() - self.began_s


@contextmanager
def up_process(directory: Path) -> Iterator[UpProcess]:
    """An environment in a directory, from its start to its end.

    Errors: Determinate when no statements are answered in time; it says what was printed.
    """
    program = [sys.executable, "-m", "streams.app.main", "up", "--directory", str(directory)]
    printed = directory.with_name(f"{directory.name}.log")
    began_s = time.perf_counter()
    with (
        printed.open("wb") as out,
        subprocess.Popen(  # noqa: S603  our own command, no shell
            guarded(program), stdout=out, stderr=out, start_new_session=True
        ) as process,
    ):
        try:
            client, kafka = _answering(directory, process, printed)
            yield UpProcess(process.pid, client, kafka, began_s)
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
            process.kill()


def _answering(
    directory: Path, process: "subprocess.Popen[bytes]", printed: Path
) -> tuple[Client, ClientSettings]:
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(InvalidUsage):
            client, kafka, _ = find(directory)
            return client, kafka
        time.sleep(LOOK_EVERY_S)
    raise Determinate(f"'slackwater up' did not start: {printed.read_text(errors='replace')}")


def wait_until(done: Callable[[], bool], what: str, seconds: float = START_S) -> None:
    """Look often whether something is so. Errors: Determinate when it takes too long."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise Determinate(f"{what} within {seconds:.0f} s")
        time.sleep(LOOK_EVERY_S)
