"""Questions of a lane's source process to the scheduler in the driver, over a unix socket.

The source process is Spark's and holds no state of ours: each question is one line of JSON,
each answer another. A question may be answered late, which is how `latestOffset` waits for
news without spinning. When the driver dies the connection breaks, and the source with it.
"""

import json
import logging
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from typing import IO, Any, cast

from streams.errors import Indeterminate

log = logging.getLogger(__name__)

Question = Mapping[str, Any]  # type: ignore[explicit-any]  # JSON
Answer = Callable[[Question], object]
"""From a question to its answer, another JSON value."""


class Door:
    """The server: answers questions, each connection in a thread of its own."""

    def __init__(self, answer: Answer) -> None:
        # a state directory's path may be longer than the hundred bytes of a socket's name
        self._directory = Path(tempfile.mkdtemp(prefix="slackwater-"))
        self.path = self._directory / "door"
        self._server = ThreadingUnixStreamServer(str(self.path), _handler(answer))
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="door", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        shutil.rmtree(self._directory, ignore_errors=True)


def _handler(answer: Answer) -> type[StreamRequestHandler]:
    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            try:
                for line in self.rfile:
                    reply = answer(json.loads(line))
                    self.wfile.write(json.dumps(reply).encode() + b"\n")
            except (BrokenPipeError, ConnectionResetError):
                log.debug("a source left")  # its query was stopped in the middle of a poll

    return Handler


@cache
def _connection(path: str) -> IO[bytes]:
    with socket.socket(socket.AF_UNIX) as connected:  # it is closed when its stream is, too
        connected.connect(path)
        return cast("IO[bytes]", connected.makefile("rwb", buffering=0))


def ask(path: str, question: Question) -> object:
    """Put a question; blocks until it is answered.

    Errors: Indeterminate when the driver is gone.
    """
    stream = _connection(path)
    stream.write(json.dumps(question).encode() + b"\n")
    line = stream.readline()
    if not line:
        raise Indeterminate(f"scheduler at {path}: expected an answer, got end of stream")
    answer: object = json.loads(line)
    return answer
