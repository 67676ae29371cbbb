"""Where the other systems live: each in an environment of its own.

Their requirements contradict ours and one another's (Arrow, NumPy, protobuf), so that one
environment cannot hold them; the group `bench` of `pyproject.toml` names them all the same.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streams.bench.nexmark import peers
from streams.errors import SlackwaterError

SCRIPTS = Path(peers.__file__).parent
PATIENCE_S = 1_800
SAID = 2_000


class PeerFailed(SlackwaterError):
    """Another system did not come to an answer; the text is the end of what it said."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another system: what to install, the script that speaks for it, and our aim beside it."""

    name: str
    requirement: str
    aim: float

    @property
    def home(self) -> Path:
        """The directory of its environment."""
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(cache) / "slackwater" / "bench" / self.name

    @property
    def python(self) -> Path:
        """Its interpreter, there or not."""
        return self.home / "bin" / "python"

    @property
    def is_installed(self) -> bool:
        """Whether its environment was made to the end."""
        return (self.home / "installed").exists()

    def install(self) -> None:
        """Make its environment. Errors: PeerFailed."""
        for command in commands(self, shutil.which("uv")):
            _run(command)
        (self.home / "installed").touch()

    def run(self, arguments: Sequence[str]) -> "RunCost":
        """Run its script. Errors: PeerFailed."""
        script = str(SCRIPTS / f"on_{self.name}.py")
        said = _run([str(self.python), script, *arguments])
        try:
            report = json.loads(said.strip().splitlines()[-1])
            return RunCost(report["seconds"], report["cpu_seconds"])
        except (IndexError, KeyError, ValueError) as cause:
            raise PeerFailed(f"expected a line of figures, actual: {said[-SAID:]}") from cause


@dataclass(frozen=True, slots=True)
class RunCost:
    """The cost of a run."""

    seconds: float
    cpu_seconds: float


PEERS = {
    peer.name: peer
    for peer in (
        Peer("flink", "apache-flink>=2.3,<2.4", 1.5),
        Peer("pathway", "pathway>=0.33,<0.34", 1.0),
    )
}


def commands(peer: Peer, uv: str | None) -> tuple[list[str], ...]:
    """The commands that create a peer's environment: by uv if installed, else venv and pip."""
    home, python = str(peer.home), str(peer.python)
    if uv is None:
        return (
            [sys.executable, "-m", "venv", "--clear", home],
            [python, "-m", "pip", "install", "--quiet", peer.requirement],
        )
    return (
        [uv, "venv", "--quiet", "--clear", "--python", sys.executable, home],
        [uv, "pip", "install", "--quiet", "--python", python, peer.requirement],
    )


def _run(command: Sequence[str]) -> str:
    """The command's standard output. Errors: PeerFailed with the end of what it said."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(  # noqa: S603 - the commands of this module
        command, env=clean, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    if done.returncode:
        raise PeerFailed(f"{command[0]} failed: {(done.stdout + done.stderr)[-SAID:]}")
    return done.stdout
