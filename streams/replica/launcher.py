"""What Spark starts as "python" on this machine: hands a start on to the nursery.

    python -S launcher.py NURSERY -m MODULE ...

Spark starts a fresh Python for each of several small duties of a query's source, ten of them
before three lanes run, and gives each ten seconds. Importing PySpark takes a second of a whole
core every time. The nursery (`streams.replica.nursery`) has imported it once and forks; this
program gives it our arguments, environment and standard files, and waits. What the nursery does
not know, it runs itself, as a plain Python.

It is run by its path and without site packages, to be quick: it imports the standard library
alone. Handing on the whole environment is its purpose.
"""

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

DAEMON = "pyspark.daemon"
NURSED = (
    "streams.replica.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
)
"""The modules that the nursery runs: by themselves, or in PySpark's stock daemon."""

STARTED_BY = "SLACKWATER_STARTED_BY"
"""The variable that names the process which started a nursed one: a JVM of Spark's."""

FAILED = 1


def main(nursery: str, arguments: Sequence[str]) -> int:
    """Run what Spark asked for; the exit code."""
    command = [each for each in arguments if each not in {"-m", DAEMON}]
    if command and command[0] in NURSED:
        with contextlib.suppress(OSError):
            return _nursed(nursery, arguments[1:])
    return os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606  Spark's own


def _nursed(nursery: str, command: Sequence[str]) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(nursery)
        environment = {**os.environ, STARTED_BY: str(os.getppid())}
        request = json.dumps([list(command), environment]).encode()
        socket.send_fds(connection, [len(request).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(request)
        answers = connection.makefile("rb")
        child = int(answers.readline())
        signal.signal(signal.SIGTERM, lambda *_: _end(child))
        return int(answers.readline() or FAILED)


def _end(child: int) -> None:
    """Spark ends us: it means the child."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGTERM)


def adopt(environment: Mapping[str, str]) -> None:
    """Make this process's environment the one that was handed on."""
    os.environ.clear()
    os.environ.update(environment)


def starter() -> int:
    """The process that started this one, which was nursed: a JVM of Spark's."""
    return int(os.environ[STARTED_BY])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
