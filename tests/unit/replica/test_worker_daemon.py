"""The process that forks Spark's Python workers is silent when Spark closes their sockets."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

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
