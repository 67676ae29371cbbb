"""The "python" executable that Spark starts on this machine: forwards to the zygote.

    python -S zygote_client.py SOCKET -m MODULE ...

Spark starts a new Python for each of several small tasks of a query's source, ten of them
before three lanes run, and gives each ten seconds. Importing PySpark takes a second of CPU
every time. The zygote (`streams.replica.spark.zygote`) has imported it once and forks; this
program passes it our arguments, environment and standard files, and waits. Other modules it
runs itself, as a plain Python.

It is run by its path and without site packages, for speed: it imports only the standard
library. It passes on the whole environment on purpose.
"""

import contextlib
import json
import os
import signal
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


def main(zygote: str, arguments: Sequence[str]) -> int:
    """Run what Spark asked for; return the exit code."""
    command = [argument for argument in arguments if argument not in {"-m", DAEMON}]
    if command and command[0] in FORKED:
        with contextlib.suppress(OSError):
            return _forked(zygote, arguments[1:])
        if DAEMON in arguments:
            arguments = ["-c", SERVE, *command]
    return os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606  Spark's own


def _forked(zygote: str, command: Sequence[str]) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(zygote)
        environment = {**os.environ, STARTED_BY: str(os.getppid())}
        request = json.dumps([list(command), environment]).encode()
        socket.send_fds(connection, [len(request).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(request)
        answers = connection.makefile("rb")
        child = int(answers.readline() or _gone())
        signal.signal(signal.SIGTERM, lambda *_: _end(child))
        return int(answers.readline() or FAILED)


def _gone() -> NoReturn:
    raise ConnectionResetError("the zygote ended before it answered")


def _end(child: int) -> None:
    """Forward Spark's kill to the child."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGTERM)


def adopt(environment: Mapping[str, str]) -> None:
    """Replace this process's environment by the one that was passed on."""
    os.environ.clear()
    os.environ.update(environment)


def starter() -> int:
    """Return the pid of the process that started this nursed one: a JVM of Spark's."""
    return int(os.environ[STARTED_BY])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
