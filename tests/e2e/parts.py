"""One container, and what may happen to it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PATIENCE_S = 300.0


def eventually(what: str, done: Callable[[], bool], patience_s: float = PATIENCE_S) -> float:
    """Wait until it is so; the seconds that it took. Errors: AssertionError."""
    began = time.monotonic()
    while not done():
        gone = time.monotonic() - began
        assert gone < patience_s, f"not in {patience_s:.0f} s: {what}"
        time.sleep(0.2)
    return time.monotonic() - began


@dataclass
class Part:
    """One container, and what may happen to it."""

    name: str
    container: Any
    network: Any
    port: int = 0
    """Where it is reached from outside; 0 if nowhere."""

    @property
    def _docker(self) -> Any:
        return self.container.get_wrapped_container()

    @property
    def health(self) -> str:
        """What HEALTHCHECK said last; of an image without one whether it runs."""
        self._docker.reload()
        state = self._docker.attrs["State"]
        return str(state.get("Health", {}).get("Status", state["Status"]))

    def kill(self) -> None:
        """`kill -9` of its first process, and of all others with it."""
        self._docker.kill("KILL")

    def stop(self) -> int:
        """SIGTERM, and a minute to end; the exit code."""
        self._docker.stop(timeout=60)
        return int(self._docker.wait()["StatusCode"])

    def run(self, *command: str) -> tuple[int, str]:
        """The exit code of a command in the container, and what it printed."""
        code, said = self._docker.exec_run(list(command))
        return int(code), said.decode(errors="replace")

    def ahead_s(self) -> float:
        """How far its clock is ahead of this machine's."""
        _, said = self.run("date", "+%s")
        return float(said) - time.time()

    def start(self) -> None:
        """The same container once more, with what it has written."""
        self._docker.start()

    def pause(self) -> None:
        """No process of it runs on, and none ends.

        Where processes start all the time, as those of a health check, runc may be unable to
        freeze a control group of version 1, and leaves it as it was.
        """
        eventually(f"{self.name} is paused", self._is_paused, 60)

    def _is_paused(self) -> bool:
        try:
            self._docker.pause()
        except Exception as error:  # the library's class is shadowed by our directory
            if "unable to freeze" not in str(error):
                raise
            return False
        return True

    def resume(self) -> None:
        """After `pause`."""
        self._docker.unpause()

    def cut(self) -> None:
        """Its network cable is pulled."""
        self.network.disconnect(self._docker, force=True)

    def heal(self) -> None:
        """After `cut`."""
        self.network.connect(self._docker, aliases=[self.name])

    @property
    def log(self) -> str:
        """All that it has said since it was made."""
        return str(self._docker.logs().decode(errors="replace"))
