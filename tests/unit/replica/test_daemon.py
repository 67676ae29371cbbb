"""Workers of Spark's daemon: whose socket is closed ends without a stack trace."""

import subprocess
import sys

import pytest

SCRIPT = """
import importlib, os, socket, sys
from streams.replica.spark import daemon

module = importlib.import_module("pyspark.daemon")
module.manager = lambda: None
daemon.PRELOADED = ("pyspark.worker",)
daemon.main()

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
