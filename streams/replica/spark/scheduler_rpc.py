"""RPC from a lane's source process to the scheduler in the driver, over a unix socket.

The source process is Spark's and has no state of ours: each request is one line of JSON, and so
is each response. A response may be late, which is how `latestOffset` waits for work without
polling. When the driver dies the connection breaks, and the source ends with it.
"""

import json
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from typing import IO, Any, cast

from streams.errors import Indeterminate
from streams.temporary import temporary_directory

log = logging.getLogger(__name__)

Question = Mapping[str, Any]  # type: ignore[explicit-any]  # JSON
Answer = Callable[[Question], object]
"""Maps a request to its response, another JSON value."""


_STOP_S = 0.05  # how long a stop may wait for the server


class SchedulerServer:
    """The server; each connection has its own thread."""

    def __init__(self, answer: Answer) -> None:
        # a state directory's path may be longer than the hundred bytes of a socket's name
        self._stack = ExitStack()
        self.path = self._stack.enter_context(temporary_directory("slackwater-")) / "door"
        self._server = ThreadingUnixStreamServer(str(self.path), _handler(answer))
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_STOP_S,), name="door", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._stack.close()


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
    """Send a request; block until the response.

    Errors: Indeterminate if the driver is gone.
    """
    stream = _connection(path)
    stream.write(json.dumps(question).encode() + b"\n")
    line = stream.readline()
    if not line:
        raise Indeterminate(f"scheduler at {path}: expected an answer, actual end of stream")
    answer: object = json.loads(line)
    return answer
