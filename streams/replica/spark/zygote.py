"""A zygote process: imports everything once and forks a child for each Python of Spark.

    python -m streams.replica.spark.zygote SOCKET

`streams.replica.zygote_client` sends it what to run. It exits when its standard input ends,
that is, with the driver. It must stay single-threaded: a fork copies one thread and every lock.
"""

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory

from streams.files import directory_of_programs, write_program
from streams.replica import zygote_client
from streams.replica.spark import worker_daemon

PRELOADED = (
    "pandas",
    "pyarrow",
    zygote_client.DAEMON,
    *zygote_client.FORKED,
    *worker_daemon.PRELOADED,
)


@contextmanager
def zygote() -> Iterator[Path]:
    """Run a zygote; yield the path of the executable that Spark starts as its Python.

    Errors: Determinate if the executable cannot be written.
    """
    with (
        TemporaryDirectory(
            prefix="slackwater-"
        ) as short,  # for the hundred bytes of a socket's name
        directory_of_programs("slackwater-python-") as directory,
    ):
        address = Path(short) / "zygote"
        command = [sys.executable, "-m", "streams.replica.spark.zygote", str(address)]
        python = directory / "python"
        started = [sys.executable, "-S", zygote_client.__file__, str(address)]
        write_program(python, f'exec {" ".join(map(quote, started))} "$@"')
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:  # noqa: S603  ours
            try:
                yield python
            finally:
                process.kill()


def serve(address: str) -> None:
    """Import, then fork for each request."""
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for our children
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(address)
        door.listen()
        while True:
            connection, _ = door.accept()
            with connection:
                if os.fork() == 0:
                    door.close()
                    _child(connection)


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
    sys.modules.pop(module)  # to be run, not to be found
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else zygote_client.FAILED
    return 0


def main() -> None:
    """Serve until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the driver
    # the wait for the end is a child's: we have one thread
    _end_with_input()
    serve(sys.argv[1])


def _end_with_input() -> None:
    """Let a child kill us, and exit, when the driver is gone."""
    parent = os.getpid()
    if os.fork() == 0:
        while os.read(0, 1 << 10):
            pass
        if os.getppid() == parent:  # else it has ended, and its pid may be reused
            os.kill(parent, signal.SIGKILL)
        os._exit(0)


if __name__ == "__main__":
    main()
