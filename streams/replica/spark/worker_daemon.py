"""The process from which Spark forks its Python workers (`spark.python.daemon.module`).

It imports everything a stage needs before the first fork, so that workers start warm and share
those pages, and then freezes the collector: PySpark's worker loop runs `gc.collect()` after
every task, 50 to 100 ms with these libraries loaded and not frozen. Nothing here may start a
thread: the children would inherit its locks without it.

Spark closes the socket of a worker whose task is no longer needed (a query that ends, a task
that is killed, a replica that stops). PySpark prints a stack trace for that and continues; here
the worker exits, in the middle of a task as well as before its first one.
"""

import gc
import importlib
import os
import socket
import sys
import traceback
from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace

PRELOADED = (
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.ipc",
    "pyarrow.json",
    "duckdb",
    "confluent_kafka",
    "pyspark.worker",
    "pyspark.sql.types",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.pandas.types",
    "pyspark.sql.worker.plan_data_source_read",
    "streams.replica.spark.source",
    "streams.replica.tasks.rounds",
)


RAISE_ON_FLUSH = "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"
"""The variable that makes PySpark raise write errors instead of printing a trace."""

CLOSED = (BrokenPipeError, ConnectionResetError, EOFError)
"""Errors of writing, and of reading Spark's secret, when Spark has closed the socket."""

Worker = Callable[[socket.socket, bool], int]
"""Serves one task over a socket, authenticated or not yet; returns the exit code."""


def ending_quietly(worker: Worker) -> Worker:
    """Wrap the worker so that its process exits silently when Spark has closed the socket.

    It exits at once: unwritten output would fail again when it is finalised.
    """

    @wraps(worker)
    def served(connection: socket.socket, authenticated: bool) -> int:  # noqa: FBT001  PySpark's call
        try:
            return worker(connection, authenticated)
        except CLOSED:
            os._exit(0)

    return served


def print_exc() -> None:
    """Print the stack trace of the exception being handled, but not of a closed socket.

    PySpark calls it in a fork that has failed, before it exits. The fork acknowledges its start
    before it calls `worker`, and Spark may wait neither for that nor to send its secret.
    """
    if not isinstance(sys.exc_info()[1], CLOSED):
        traceback.print_exc()


def main() -> None:
    """Import, freeze, and serve Spark until it closes our standard input."""
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    serve()


def serve() -> None:
    """Run PySpark's daemon, whose forks exit silently when Spark closes their sockets."""
    os.environ[RAISE_ON_FLUSH] = "1"
    daemon = importlib.import_module("pyspark.daemon")
    daemon.worker = ending_quietly(daemon.worker)  # type: ignore[attr-defined]  # untyped
    daemon.traceback = SimpleNamespace(  # type: ignore[attr-defined]
        print_exc=print_exc, format_exc=traceback.format_exc
    )
    daemon.manager()


if __name__ == "__main__":
    main()
