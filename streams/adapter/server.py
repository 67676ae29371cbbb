"""SQL over HTTP, for this machine alone: statements in, NDJSON out as it comes.

    POST /sql       the text of one or more statements; a line for each result (see `results`)
    GET  /health    200 while the coordinator looks after everything, else 503
    GET  /status    every object with its frontiers and condition, as JSON

A client that goes away ends its subscription: the next line cannot be written.
"""

import json
import logging
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol

from streams.adapter import show
from streams.adapter.results import Result, line

log = logging.getLogger(__name__)

LONGEST_TEXT_BYTES = 16 << 20


class Executor(Protocol):
    """What the server asks of a coordinator."""

    @property
    def is_alive(self) -> bool:
        """Whether it still looks after everything."""

    def execute(self, text: str) -> Iterator[Result]:
        """The answers to the statements of the text."""

    def conditions(self) -> tuple[show.Shown, ...]:
        """Every object and its condition."""


def serve(executor: Executor, port: int) -> ThreadingHTTPServer:
    """A server on 127.0.0.1, bound already; the caller runs `serve_forever`.

    `port` 0 takes a free one. Errors: OSError when the port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        """One request; the executor is its server's."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:  # noqa: N802  the name is the library's
            """Health and status."""
            match self.path:
                case "/health":
                    alive = executor.is_alive
                    code = HTTPStatus.OK if alive else HTTPStatus.SERVICE_UNAVAILABLE
                    self._answer(code, {"alive": alive})
                case "/status":
                    self._answer(HTTPStatus.OK, {"objects": _objects(executor)})
                case _:
                    self._answer(HTTPStatus.NOT_FOUND, {"error": f"no such page {self.path}"})

        def do_POST(self) -> None:  # noqa: N802  the name is the library's
            """Statements."""
            if self.path != "/sql":
                self._answer(HTTPStatus.NOT_FOUND, {"error": f"no such page {self.path}"})
                return
            length = int(self.headers.get("Content-Length", "0"))
            if length > LONGEST_TEXT_BYTES:
                text = f"expected at most {LONGEST_TEXT_BYTES} bytes, actual {length}"
                self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"error": text})
                return
            try:
                text = self.rfile.read(length).decode()
            except UnicodeDecodeError:
                self._answer(HTTPStatus.BAD_REQUEST, {"error": "expected UTF-8 text"})
                return
            self._stream(text)

        def _stream(self, text: str) -> None:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "application/x-ndjson")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            results = executor.execute(text)
            try:
                for result in results:
                    self.wfile.write(line(result).encode() + b"\n")
                    self.wfile.flush()
            except (BrokenPipeError, ConnectionResetError):
                log.debug("a client went away")

        def _answer(self, code: HTTPStatus, value: object) -> None:
            body = json.dumps(value).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the library's name
            """One request."""
            log.debug(format, *args)

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    return server


def _objects(executor: Executor) -> list[dict[str, object]]:
    names = [column.name for column in show.COLUMNS]
    return [
        {**dict(zip(names, show.row(each), strict=True)), "kind": each.item.kind}
        for each in executor.conditions()
    ]
