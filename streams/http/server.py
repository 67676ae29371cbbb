"""The HTTP endpoint of a service.

    GET /healthz   200 while the service works, 503 if its process has to be restarted
    GET /readyz    200 once it does what it is for, 503 with the reason otherwise
    GET /metrics   text for Prometheus

A service adds routes of its own. Where the endpoint has a password each request needs it, as
`Authorization: Bearer PASSWORD` or as that of any user in `Authorization: Basic`; the first two
paths tell nothing and need none.

A client that has proven nothing holds little, and not for long. Its handshake, request line and
headers have to be there within seconds, all together and not one by one; of its body at most a
megabyte is read, and nothing is kept. Such clients are few: a new one ends the oldest
(`streams.http.unauthenticated_connections`). Handshakes are made in the thread of their
connection, so a client that is slow at it delays no other client.
"""

import base64
import hmac
import json
import logging
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from streams.errors import InvalidUsage, SlackwaterError
from streams.http.listening import Listening
from streams.http.metrics import CONTENT_TYPE, of_process
from streams.http.timed_reader import TimedReader
from streams.http.unauthenticated_connections import UnauthenticatedConnections

if TYPE_CHECKING:
    from io import BufferedIOBase

log = logging.getLogger(__name__)

UNPROVEN_S = 10.0
"""How long a client may take for all that comes before the body, a handshake included."""

REQUEST_S = 60.0
"""How long a client may take for a body, or to receive an answer."""

HEAD = 128 << 10
"""Most bytes of a request line and headers together."""

BACKLOG = 128
"""Connections that may wait to be accepted, which takes no time."""

LONGEST_NUMBER = 18
"""Most digits of a Content-Length."""

DISCARDED = 1 << 20
"""Most bytes of a refused request that are read."""

JSON = "application/json"
HANDSHAKE = b"\x16"
"""The first byte of TLS. Source: RFC 8446, section 5.1."""
CLEAR = "HTTP_REQUEST"
"""OpenSSL's reason for a handshake that is an HTTP request."""
TOLD_S = 0.5
"""How long a client that speaks another protocol may take to be told."""

POLL_S = 0.05
"""How long a stop may wait for the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """What a service says of itself. They are called by any thread."""

    is_alive: Callable[[], bool] = lambda: True
    why_not_ready: Callable[[], str] = lambda: ""
    """Empty once it does what it is for."""
    metrics: Callable[[], str] = lambda: ""


Route = Callable[["Exchange"], None]
"""Answers a request."""


class Endpoint(ThreadingHTTPServer):
    """One thread per connection; they end with the process.

    `routes` are by method and path, as "GET /status".

    Errors: InvalidUsage if it cannot listen there.
    """

    daemon_threads = True
    request_queue_size = BACKLOG

    def __init__(
        self,
        listening: Listening,
        probes: Probes | None = None,
        routes: Mapping[str, Route] = MappingProxyType({}),
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
        self.listening, self.probes = listening, probes or Probes()
        self.routes = {**routes, "GET /metrics": self._metrics}
        self.unauthenticated = UnauthenticatedConnections()
        self._context = listening.context()
        try:
            super().__init__((listening.host, listening.port), BaseHTTPRequestHandler)
        except OSError as cause:
            where = f"{listening.host}:{listening.port}"
            raise InvalidUsage(f"cannot listen at {where}: {cause}") from cause

    def _metrics(self, exchange: "Exchange") -> None:
        text = f"{self.probes.metrics()}{of_process()}"
        exchange.answer_text(HTTPStatus.OK, CONTENT_TYPE, text)

    def serve_forever(self, poll_interval: float = POLL_S) -> None:
        """Serve until `shutdown`, which waits for at most an interval (seconds)."""
        super().serve_forever(poll_interval)

    def process_request(self, request: object, client_address: object) -> None:
        """Handle one connection, in a thread of its own."""
        connection = cast("socket.socket", request)
        self.unauthenticated.enter(connection)
        super().process_request(connection, client_address)

    def finish_request(self, request: object, client_address: object) -> None:
        """Handle one connection, after its handshake."""
        connection, until_s = cast("socket.socket", request), time.monotonic() + UNPROVEN_S
        if self._context is None:
            Exchange(connection, client_address, self, until_s)
            return
        connection.settimeout(UNPROVEN_S)  # of a handshake it is the whole time
        with self._context.wrap_socket(
            connection, server_side=True, do_handshake_on_connect=False
        ) as secured:
            self.unauthenticated.secured(secured)
            try:
                secured.do_handshake()
                Exchange(secured, client_address, self, until_s)
            except ssl.SSLError as error:
                if error.reason == CLEAR:
                    _tell_in_clear(secured, "expected TLS here: write https instead of http")
                _end_sending(secured)
                raise
            finally:
                self.unauthenticated.leave(secured)

    def shutdown_request(self, request: object) -> None:
        """End one connection."""
        connection = cast("socket.socket", request)
        self.unauthenticated.leave(connection)
        super().shutdown_request(connection)

    def handle_error(self, *_: object) -> None:
        """Ignore clients that disconnected or speak no TLS; log other errors."""
        error = sys.exception()
        if isinstance(error, ConnectionError | TimeoutError | ssl.SSLError):
            log.debug("a client went away", extra={"cause": str(error)})
        else:
            log.error("a request could not be handled", exc_info=error)


class Exchange(BaseHTTPRequestHandler):
    """One connection, one request and its answer."""

    server_version = "slackwater"
    sys_version = ""

    def __init__(
        self, request: socket.socket, client: object, server: Endpoint, until_s: float
    ) -> None:
        """Answer the request, which has to be there by `until_s`, by `time.monotonic`."""
        self._until_s = until_s
        super().__init__(request, client, server)

    def handle_one_request(self) -> None:
        """Answer one request. A client that begins a handshake gets no TLS: it is told."""
        if self._reader.peek(1) == HANDSHAKE:
            _tell_in_clear(self.connection, "expected no TLS here: write http, not https")
            self.close_connection = True
        else:
            super().handle_one_request()

    def setup(self) -> None:
        """Read the request until a moment."""
        super().setup()
        self.rfile.close()
        self._reader = TimedReader(self.connection, self._until_s, HEAD)
        self.rfile = cast("BufferedIOBase", self._reader)

    @property
    def endpoint(self) -> Endpoint:
        """The server of this connection."""
        return cast("Endpoint", self.server)

    @property
    def length(self) -> int | None:
        """The bytes of the body; None if the header is missing or no number that can be."""
        text = self.headers.get("Content-Length", "")
        is_number = text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER
        return int(text) if is_number else None

    def do_GET(self) -> None:
        """Answer a probe, or a route."""
        probes = self.endpoint.probes
        match self.path.partition("?")[0]:
            case "/healthz":
                alive = probes.is_alive()
                self.answer(_code(alive), {"alive": alive})
            case "/readyz":
                why = probes.why_not_ready()
                self.answer(_code(not why), {"ready": not why, **({"why": why} if why else {})})
            case path:
                self._follow(f"GET {path}")

    def do_POST(self) -> None:
        """Answer what is sent."""
        self._follow(f"POST {self.path}")

    def _follow(self, wanted: str) -> None:
        if not self._is_authorized():
            return
        self.endpoint.unauthenticated.leave(self.connection)
        route = self.endpoint.routes.get(wanted)
        try:
            if route is None:
                self.refuse(HTTPStatus.NOT_FOUND, f"there is no {wanted}")
            else:
                route(self)
        except SlackwaterError as error:
            self.answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(error)})

    def _is_authorized(self) -> bool:
        """Whether the client has the password, if there is one; if not, it is answered."""
        password = self.endpoint.listening.password
        if not password or _is_same(_given(self.headers.get("Authorization", "")), password):
            return True
        self.refuse(
            HTTPStatus.UNAUTHORIZED,
            "expected the password in Authorization: Bearer or Basic",
            {"WWW-Authenticate": 'Basic realm="slackwater"'},
        )
        return False

    def refuse(
        self, code: HTTPStatus, message: str, headers: dict[str, str] | None = None
    ) -> None:
        """Answer a request without using its body.

        A short body is read all the same: closed with bytes unread, the connection would be
        reset, and the client might not see the answer.
        """
        length = self.length
        if length is not None and length <= DISCARDED:
            with suppress(TimeoutError):
                self._reader.discard(length)
        self.answer(code, {"error": message}, headers)

    def body(self, length: int) -> bytes | None:
        """The body; less of it if the client has ended it before.

        None if it did not come in time: the client is answered.
        """
        self._reader.extend(time.monotonic() + REQUEST_S)
        try:
            return self._reader.read(length)
        except TimeoutError:
            error = f"expected {length} bytes within {REQUEST_S:g} seconds"
            self.answer(HTTPStatus.REQUEST_TIMEOUT, {"error": error})
            return None

    def answer(
        self, code: HTTPStatus, body: dict[str, object], headers: dict[str, str] | None = None
    ) -> None:
        """Answer with JSON."""
        self.answer_text(code, JSON, json.dumps(body), headers)

    def answer_text(
        self, code: HTTPStatus, kind: str, body: str, headers: dict[str, str] | None = None
    ) -> None:
        """Answer with text of a content type."""
        encoded = body.encode()
        self.connection.settimeout(REQUEST_S)
        self.send_response(code)
        fields = {"Content-Type": kind, "Content-Length": str(len(encoded)), **(headers or {})}
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(encoded)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
        """Do not log requests."""
        log.debug(format, *args)


def _tell_in_clear(connection: socket.socket, error: str) -> None:
    """Answer a client that speaks another protocol; without TLS, whatever the connection is."""
    body = json.dumps({"error": error}).encode()
    head = f"HTTP/1.0 400 Bad Request\r\nContent-Type: {JSON}\r\n\r\n"
    with suppress(OSError):
        connection.settimeout(TOLD_S)
        socket.socket.sendall(connection, head.encode() + body)
    _end_sending(connection)


def _end_sending(connection: socket.socket) -> None:
    """Let the client see what was sent last, in whatever protocol.

    Closed with bytes of the client unread, the connection would be reset, and that be lost.
    """
    until_s = time.monotonic() + TOLD_S
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_WR)
        while (left_s := until_s - time.monotonic()) > 0:
            connection.settimeout(left_s)
            if not socket.socket.recv(connection, HEAD):
                return


@contextmanager
def served(endpoint: Endpoint) -> Iterator[int]:
    """Answer in a thread meanwhile; yield the port."""
    thread = threading.Thread(target=endpoint.serve_forever, name="http", daemon=True)
    thread.start()
    try:
        yield endpoint.server_port
    finally:
        endpoint.shutdown()
        endpoint.server_close()
        thread.join()


def _code(is_well: bool) -> HTTPStatus:  # noqa: FBT001  one question
    return HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE


def _given(header: str) -> str:
    """The password in an Authorization header; empty if there is none."""
    kind, _, text = header.partition(" ")
    match kind.lower():
        case "bearer":
            return text.strip()
        case "basic":
            try:
                pair = base64.b64decode(text, validate=True).decode()
            except ValueError:  # no base64, no ASCII, no UTF-8
                return ""
            return pair.partition(":")[2]
        case _:
            return ""


def _is_same(given: str, password: str) -> bool:
    """Compare in a time that does not tell where they differ."""
    return hmac.compare_digest(given.encode(errors="replace"), password.encode())
