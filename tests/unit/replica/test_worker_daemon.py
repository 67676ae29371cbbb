"""Workers of Spark's daemon: one whose socket is closed ends without a stack trace."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psutil
import pytest

from streams.replica import zygote_client
from streams.replica.spark.zygote import zygote
from tests.support.processes import eventually

SCRIPT = """
import importlib, os, socket, sys
from streams.replica.spark import worker_daemon

module = importlib.import_module("pyspark.daemon")
module.manager = lambda: None
worker_daemon.PRELOADED = ("pyspark.worker",)
worker_daemon.main()

def late(infile, outfile):
    outfile.write(b"x")  # buffered: the flush fails

def long(infile, outfile):
    outfile.write(b"x" * (1 << 20))

def broken(infile, outfile):
    raise RuntimeError("of its own")

def failed(infile, outfile):
    outfile.write(b"x")
    sys.exit(-1)

def sound(infile, outfile):
    pass

sys.modules["pyspark.worker"].main = locals()[sys.argv[1]]
ours, sparks = socket.socketpair()
if sys.argv[1] != "sound":
    sparks.close()
print("code", module.worker(ours, True))
"""


def ran(how: str) -> "subprocess.CompletedProcess[str]":
    """What a worker does whose main ends so."""
    command = [sys.executable, "-c", SCRIPT, how]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("how", ["late", "long", "failed"])
def test_a_worker_whose_socket_is_closed_ends_without_a_trace(how: str) -> None:
    done = ran(how)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")


def test_a_worker_that_fails_says_so() -> None:
    assert "RuntimeError: of its own" in ran("broken").stderr


def test_a_worker_goes_on_to_the_next_task() -> None:
    done = ran("sound")
    assert (done.stdout, done.stderr) == ("code 0\n", "")


DAEMON = "from streams.replica.spark import worker_daemon as d; d.PRELOADED = (); d.main()"


OF_STAGES = (sys.executable, "-c", DAEMON)


@contextmanager
def daemon(command: Sequence[str], **environment: str) -> Iterator[IO[bytes]]:
    """A daemon's standard output. It has to end without a word on standard error."""
    with subprocess.Popen(
        command,
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        yield process.stdout
        process.stdin.close()
        assert process.stderr.read() == b""


def number(output: IO[bytes]) -> int:
    return int.from_bytes(output.read(4), "big")


@pytest.mark.timeout(120)
def test_a_socket_that_spark_closes_before_the_fork_answers_leaves_no_trace(
    tmp_path: Path,
) -> None:
    with daemon(
        OF_STAGES,
        PYTHON_UNIX_DOMAIN_ENABLED="true",
        PYTHON_WORKER_FACTORY_SOCK_DIR=str(tmp_path),
    ) as output:
        address = output.read(number(output)).decode()
        for _ in range(3):
            with socket.socket(socket.AF_UNIX) as spark:
                spark.connect(address)
        with socket.socket(socket.AF_UNIX) as spark:
            spark.connect(address)  # answered after the others were accepted
            assert int.from_bytes(spark.recv(4), "big") > 0


def expect_no_trace_without_a_secret(command: Sequence[str]) -> None:
    """A fork that Spark has asked for, and to which it never sends its secret."""
    with daemon(command, PYTHON_WORKER_FACTORY_SECRET="of Spark") as output:
        leave_without_a_secret(number(output))


def leave_without_a_secret(port: int) -> None:
    """Ask a daemon for a fork, close its socket, and wait for its end."""
    with socket.create_connection(("127.0.0.1", port)) as spark:
        forked = int.from_bytes(spark.recv(4), "big")
    assert forked > 0
    eventually(lambda: not psutil.pid_exists(forked), 60)


@pytest.mark.timeout(120)
def test_a_socket_that_spark_closes_before_it_sends_the_secret_leaves_no_trace() -> None:
    expect_no_trace_without_a_secret(OF_STAGES)


@pytest.mark.timeout(240)
def test_neither_does_one_of_the_daemon_of_sparks_planner() -> None:
    """It is asked for while the zygote still imports, as when a replica starts."""
    planner = "pyspark.sql.worker.plan_data_source_read"
    with zygote() as python:
        expect_no_trace_without_a_secret([str(python), "-m", "pyspark.daemon", planner])


@pytest.mark.timeout(120)
def test_a_python_whose_zygote_ends_runs_by_itself(tmp_path: Path) -> None:
    """Its forks leave no trace either: the zygote ends before Spark when a replica stops."""
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "zygote"))
        door.listen()
        client = [sys.executable, "-S", zygote_client.__file__, str(tmp_path / "zygote")]
        planner = "pyspark.sql.worker.plan_data_source_read"
        command = [*client, "-m", "pyspark.daemon", planner]
        with daemon(command, PYTHON_WORKER_FACTORY_SECRET="of Spark") as output:
            connection, _ = door.accept()
            connection.close()
            leave_without_a_secret(number(output))


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal (Linux)."""
    status = Path(f"/proc/{pid}/status").read_text()
    mask = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(mask.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.timeout(240)
def test_a_launcher_is_a_shell_that_passes_on_a_kill_and_the_exit_code() -> None:
    """A Python that waits would take ten megabytes, for each process of Spark's."""
    module = "streams.replica.spark.worker_daemon"
    with zygote() as python:
        command = [str(python), "-m", module, "pyspark.worker"]
        environment = {**os.environ, "PYTHON_WORKER_FACTORY_SECRET": "of Spark"}
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        ) as launcher:
            assert launcher.stdout is not None
            number(launcher.stdout)  # its child serves, maybe before it is a shell
            process = psutil.Process(launcher.pid)
            eventually(lambda: process.cmdline()[:1] == [zygote_client.SHELL], 60)
            line = process.cmdline()
            assert module in line[3]
            child = int(line[4])
            assert psutil.pid_exists(child)
            eventually(lambda: catches(launcher.pid, signal.SIGTERM), 60)
            launcher.terminate()
            assert launcher.wait(60) == 1  # PySpark's, of a daemon that is asked to end
            eventually(lambda: not psutil.pid_exists(child), 60)
