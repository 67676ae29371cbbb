"""Workers of Spark's daemon: one whose socket is closed ends without a stack trace."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

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


def address_of(output: IO[bytes]) -> str:
    """The path of its socket, which it prints first, after a length of four bytes."""
    return output.read(int.from_bytes(output.read(4), "big")).decode()


@pytest.mark.timeout(120)
def test_a_socket_that_spark_closes_before_the_fork_answers_leaves_no_trace(
    tmp_path: Path,
) -> None:
    environment = os.environ | {
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": str(tmp_path),
    }
    with subprocess.Popen(
        [sys.executable, "-c", DAEMON],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        address = address_of(process.stdout)
        for _ in range(3):
            with socket.socket(socket.AF_UNIX) as spark:
                spark.connect(address)
        with socket.socket(socket.AF_UNIX) as spark:
            spark.connect(address)  # answered after the others were accepted
            assert int.from_bytes(spark.recv(4), "big") > 0
        process.stdin.close()
        assert process.stderr.read() == b""
