"""`/metrics` of one materialization that runs without an environment."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from connectors.runtime.runner import Status
from connectors.service.status import Rate, reported
from schemas.materializations import State
from streams.adapter.catalog_materializations import Materialization
from streams.adapter.metrics import CONTENT_TYPE, metrics
from streams.adapter.show_materializations import Shown
from streams.app.service_process import now_ms
from streams.errors import InvalidUsage

PATH = "/metrics"
_STOP_S = 0.05  # how long a stop may wait for the server


@dataclass(slots=True)
class LatestReport:
    """What a runner has reported last. Thread-safe."""

    task: str
    connector: str
    state: State = field(init=False)
    _begun: State = field(init=False)
    _rate: Rate = field(default_factory=Rate)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        owner = f"{socket.gethostname()}:{os.getpid()}"
        self.state = self._begun = State(id=self.task, owner=owner)

    def report(self, status: Status) -> None:
        """A status that differs from the one before."""
        with self._lock:
            self.state = reported(self.state, status, self._begun)

    def text(self) -> str:
        """As `streams.adapter.metrics` has those of an environment."""
        with self._lock:
            self._rate = self._rate.at(now_ms(), self.state.rows)
            state = replace(self.state, rows_per_s=self._rate.per_s)
        made = Materialization(id=self.task, name=self.task, statement="", task="", inputs=())
        shown = Shown(made, self.connector, (), state.state, state, state.behind_ms, "")
        return metrics([shown])


def place_of(text: str) -> tuple[str, int]:
    """A host and a port, of HOST:PORT. Errors: InvalidUsage."""
    host, colon, port = text.rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise InvalidUsage(f"--metrics: expected HOST:PORT, as 127.0.0.1:9464, got {text!r}")
    return host.strip("[]"), int(port)


@contextmanager
def served(measured: LatestReport, place: tuple[str, int]) -> Iterator[int]:
    """Answer GET /metrics meanwhile; yield the port. Errors: InvalidUsage if it is taken."""

    class Handler(BaseHTTPRequestHandler):
        timeout: ClassVar[float | None] = 10.0

        def do_GET(self) -> None:
            is_there = self.path.partition("?")[0] == PATH
            body = (measured.text() if is_there else f"there is only {PATH}\n").encode()
            self.send_response(HTTPStatus.OK if is_there else HTTPStatus.NOT_FOUND)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's
            """Do not log requests."""

    class Server(ThreadingHTTPServer):
        address_family: int = socket.AF_INET6 if ":" in place[0] else socket.AF_INET

    try:
        server = Server(place, Handler)
    except OSError as error:
        where = f"{place[0]}:{place[1]}"
        raise InvalidUsage(f"--metrics: cannot listen at {where}: {error}") from error
    thread = threading.Thread(
        target=server.serve_forever, args=(_STOP_S,), name="metrics", daemon=True
    )
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
