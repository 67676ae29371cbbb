"""A zygote process: imports everything once and forks a child for each Python of Spark.

    python -m streams.replica.spark.zygote FILENO

FILENO is a listening socket; there `streams.replica.zygote_client` sends what to run. It exits
when its standard input ends, that is, with the driver; while it imports, at the end of its
imports. It must stay single-threaded: a fork copies one thread and every lock.
"""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from streams.files import directory_of_programs, write_program
from streams.replica import zygote_client
from streams.replica.spark import worker_daemon
from streams.temporary import temporary_directory

PRELOADED = (
    "pandas",
    "pyarrow",
    zygote_client.DAEMON,
    *zygote_client.FORKED,
    *worker_daemon.PRELOADED,
)

INPUT = 0
BACKLOG = 128
"""Requests that may wait for the imports."""


@contextmanager
def zygote() -> Iterator[Path]:
    """Run a zygote; yield the path of the executable that Spark starts as its Python.

    Errors: Determinate if the executable cannot be written.
    """
    with (
        temporary_directory("slackwater-") as short,  # for the hundred bytes of a socket's name
        directory_of_programs("slackwater-python-") as directory,
    ):
        address = Path(short) / "zygote"
        python = directory / "python"
        started = [sys.executable, "-S", zygote_client.__file__, str(address)]
        write_program(python, f'exec {" ".join(map(quote, started))} "$@"')
        with _started(address) as process:
            try:
                yield python
            finally:
                process.kill()


def _started(address: Path) -> "subprocess.Popen[bytes]":
    """Start a zygote that is reached at `address`.

    It is given a socket that listens, so that requests wait for its imports. A Python that ran
    by itself would import as much, and Spark's planner would fork from that one from then on.
    """
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(address))
        door.listen(BACKLOG)
        number = door.fileno()
        command = [sys.executable, "-m", "streams.replica.spark.zygote", str(number)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[number])  # noqa: S603  ours


def serve(listening: int) -> None:
    """Import, then fork for each request that comes to the socket `listening`.

    It returns when standard input ends.
    """
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for our children
    with socket.socket(fileno=listening) as door:
        while _is_asked(door):
            connection, _ = door.accept()
            with connection:
                if os.fork() == 0:
                    door.close()
                    _child(connection)


def _is_asked(door: socket.socket) -> bool:
    """Wait until a request comes; False when the driver is gone."""
    poll = select.poll()
    poll.register(door, select.POLLIN)
    poll.register(INPUT, select.POLLIN)
    return INPUT not in dict(poll.poll())


def _child(connection: socket.socket) -> None:
    """Become the requested program; never returns."""
    code = zygote_client.FAILED
    try:
        size, files, _, _ = socket.recv_fds(connection, 4, 3)
        request = connection.makefile("rb").read(int.from_bytes(size, "big"))
        command, environment = json.loads(request)
        connection.sendall(b"%d\n" % os.getpid())
        for number, file in enumerate(files):
            os.dup2(file, number)
        code = _run(command, environment)
        connection.sendall(b"%d\n" % code)
    finally:
        os._exit(code)


def _run(command: list[str], environment: dict[str, str]) -> int:
    zygote_client.adopt(environment)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    module, sys.argv = command[0], command
    try:
        if module == zygote_client.DAEMON:
            worker_daemon.serve()  # for Spark's planner; its stages have a daemon of ours
        else:
            sys.modules.pop(module)  # to be run, not to be found
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else zygote_client.FAILED
    return 0


def main() -> None:
    """Serve until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the driver
    serve(int(sys.argv[1]))
    os._exit(0)  # to take the interpreter apart makes native libraries report leaks


if __name__ == "__main__":
    main()
