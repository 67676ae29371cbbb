"""Signals that come while a command is still being imported, or is at work."""

import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

START = """
import os, signal, sys
from streams.app import main, signals
sys.argv = ["slackwater", *sys.argv[1:]]
os.environ["COLUMNS"] = "200"
from types import SimpleNamespace
real = main.importlib.import_module

def slow(name, *more):
    os.kill(os.getpid(), signal.{name})  # while the command is imported
    return real(name, *more)

main.importlib = SimpleNamespace(import_module=slow)
main.app()
"""


def started(name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A command that is told to end by this signal before its modules are there."""
    command = [sys.executable, "-c", START.format(name=name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


SUBMITTED = """
import os, signal, sys
from types import SimpleNamespace
from streams.app import compact

def slow(name):
    os.kill(os.getpid(), signal.SIGTERM)  # while the command is imported

compact.importlib = SimpleNamespace(import_module=slow)
compact.main()
"""


def submitted() -> "subprocess.CompletedProcess[str]":
    """A round that `spark-submit` runs, ended before its modules are there."""
    command = [sys.executable, "-c", SUBMITTED]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    "run", [lambda: started("SIGTERM", "compact", "--brokers", "127.0.0.1:1"), submitted]
)
def test_a_command_that_is_ended_early_says_so(
    run: "Callable[[], subprocess.CompletedProcess[str]]",
) -> None:
    done = run()
    assert done.returncode == 128 + signal.SIGTERM
    assert done.stderr == "error: ended by SIGTERM before it was done\n"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_an_environment_that_is_told_to_end_early_is_never_started(
    tmp_path: Path, name: str
) -> None:
    directory = tmp_path / "environment"
    done = started(name, "up", "--directory", str(directory))
    assert (done.returncode, done.stderr) == (0, "stopped\n")
    assert not directory.exists()


@pytest.mark.parametrize("service", ["storage", "compaction", "coordinator", "replica"])
def test_a_service_that_is_told_to_end_early_ends_in_order(service: str) -> None:
    """It is imported, and finds when it is ready that it was told to end."""
    script = textwrap.dedent(f"""
        import os, signal, sys
        from streams.app import signals
        signals.listen(["{service}"])
        os.kill(os.getpid(), signal.SIGTERM)
        from streams.app.services import until_signalled
        assert until_signalled().is_set()
        print("in order")
    """)
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "in order\n", "")
