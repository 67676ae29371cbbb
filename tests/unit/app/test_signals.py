"""Signals that come while a command is still being imported, or is at work."""

import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from streams.app import signals
from streams.app.signals import Stop, Stopped

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


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_that_the_shell_had_ignored_ends_a_command(name: str) -> None:
    number = signal.Signals[name]
    done = subprocess.run(
        [sys.executable, "-c", START.format(name=name), "sql"],
        preexec_fn=lambda: signal.signal(number, signal.SIG_IGN),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    message = f"error: ended by {name} before it was done\n"
    assert (done.returncode, done.stderr) == (128 + number, message)


INTERRUPTED = """
import itertools, signal, sys
from streams.app import signals
signals.until_signalled()
for after in range(200):
    signals.stopping = stop = signals.Stop()
    codes = itertools.count()
    def trace(frame, event, _):
        frame.f_trace_opcodes = True
        if event == "opcode" and next(codes) == after:
            signal.raise_signal(signal.SIGTERM)
        return trace
    sys.settrace(trace)
    stop.wait(0)
    sys.settrace(None)
    if next(codes) <= after:
        break
    assert stop.is_set() and stop.wait()
print("never stuck", after)
"""


def test_a_signal_between_any_two_bytecodes_of_a_wait_is_noted() -> None:
    """The handler of a `threading.Event` would wait there for the lock that it interrupts."""
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout.removeprefix("never stuck ")) > 20


def test_ctrl_c_is_noted_and_a_later_one_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "stopping", Stop())
    before = signal.getsignal(signal.SIGINT)
    with signals.noted() as stopping:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)  # as `timeout` sends it: to the group as well
        assert stopping.number == signal.SIGINT
        with pytest.raises(Stopped):
            stopping.check()
        stopping.since_s -= 2 * signals.IMPATIENT_S
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def open_files() -> int:
    return sum(1 for _ in Path("/dev/fd").iterdir())


def test_a_note_that_nobody_keeps_gives_its_pipe_back() -> None:
    files = open_files()
    for _ in range(50):
        Stop()
    assert open_files() < files + 10


def test_who_waits_in_another_thread_is_woken() -> None:
    stop, woken = Stop(), list[bool]()
    waiting = threading.Thread(target=lambda: woken.append(stop.wait()), daemon=True)
    waiting.start()
    assert not stop.wait(0.01)
    stop.set()
    waiting.join(30)
    assert woken == [True]
    assert stop.number == signal.SIGTERM


@pytest.mark.parametrize("service", ["storage", "compaction", "coordinator", "replica"])
def test_a_service_that_is_told_to_end_early_ends_in_order(service: str) -> None:
    """It is imported, and finds when it is ready that it was told to end."""
    script = textwrap.dedent(f"""
        import os, signal, sys
        from streams.app import signals
        signals.listen(["{service}"])
        os.kill(os.getpid(), signal.SIGTERM)
        from streams.app.service_process import until_signalled
        assert until_signalled().is_set()
        print("in order")
    """)
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "in order\n", "")
