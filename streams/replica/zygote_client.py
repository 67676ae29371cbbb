"""The "python" executable that Spark starts on this machine: forwards to the zygote.

    python -S zygote_client.py SOCKET -m MODULE ...

Spark starts a new Python for each of several small tasks of a query's source, ten of them
before three lanes run, and gives each ten seconds. Importing PySpark takes a second of CPU
every time. The zygote (`streams.replica.spark.zygote`) has imported it once and forks; this
program passes it our arguments, environment and standard files, and becomes a shell that waits:
a Python that waits takes 10 MB, and there is one for each process of Spark. Other modules it
runs itself, as a plain Python.

It is run by its path and without site packages, for speed: it imports only the standard
library. It passes on the whole environment on purpose.
"""

import contextlib
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

DAEMON = "pyspark.daemon"
FORKED = (
    "streams.replica.spark.worker_daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
)
"""The modules that the zygote runs: directly, or in PySpark's stock daemon."""

STARTED_BY = "SLACKWATER_STARTED_BY"
"""The variable with the pid of the process that started a nursed one: a JVM of Spark's."""

SERVE = "from streams.replica.spark.worker_daemon import serve; serve()"
"""PySpark's stock daemon, as the zygote runs it, for a Python of its own: without a zygote, as
while a replica stops, its forks too end silently."""

FAILED = 1

SHELL = "/bin/sh"
WAIT = """trap 'kill "$1"' TERM; \
read -r code <&"$2" || read -r code <&"$2" || code=1; exit "$code\""""
"""The program that waits for the exit code of the process $1, a line of the descriptor $2.

It forwards Spark's kill to that process. The signal ends the first read.
"""


def main(zygote: str, arguments: Sequence[str]) -> NoReturn:
    """Run what Spark asked for."""
    command = [argument for argument in arguments if argument not in {"-m", DAEMON}]
    if command and command[0] in FORKED:
        with contextlib.suppress(OSError):
            _forked(zygote, arguments[1:])
        if DAEMON in arguments:
            arguments = ["-c", SERVE, *command]
    os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606  Spark's own


def _forked(zygote: str, command: Sequence[str]) -> NoReturn:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(zygote)
    environment = {**os.environ, STARTED_BY: str(os.getppid())}
    request = json.dumps([list(command), environment]).encode()
    socket.send_fds(connection, [len(request).to_bytes(4, "big")], [0, 1, 2])
    connection.sendall(request)
    child, number = _line(connection) or _gone(), str(connection.fileno())
    connection.set_inheritable(True)
    name = " ".join(command)  # for people, in the list of processes
    os.execv(SHELL, [SHELL, "-c", WAIT, name, child, number])  # noqa: S606  ours


def _line(connection: socket.socket) -> str:
    """The line that comes next, and no byte of the one after it."""
    line = b""
    while (byte := connection.recv(1)) not in {b"", b"\n"}:
        line += byte
    return line.decode()


def _gone() -> NoReturn:
    raise ConnectionResetError("the zygote ended before it answered")


def adopt(environment: Mapping[str, str]) -> None:
    """Replace this process's environment by the one that was passed on."""
    os.environ.clear()
    os.environ.update(environment)


def starter() -> int:
    """Return the pid of the process that started this nursed one: a JVM of Spark's."""
    return int(os.environ[STARTED_BY])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
