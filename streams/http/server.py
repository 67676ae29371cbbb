"""The HTTP endpoint of a service.

    GET /healthz   200 while the service works, 503 if its process has to be restarted
    GET /readyz    200 once it does what it is for, 503 with the reason otherwise
    GET /metrics   text for Prometheus

A service adds routes of its own. Where the endpoint has a password each request needs it, as
`Authorization: Bearer PASSWORD` or as that of any user in `Authorization: Basic`; the first two
paths tell nothing and need none. Handshakes are made in the thread of their connection: a
client that is slow at it delays no other client.
"""

import base64
import binascii
import hmac
import json
import logging
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import cast

from streams.errors import InvalidUsage, SlackwaterError
from streams.http.listening import Listening
from streams.http.metrics import CONTENT_TYPE, of_process

log = logging.getLogger(__name__)

REQUEST_S = 60.0
"""Longest pause within a request; a thread waits for it."""

LONGEST_NUMBER = 18
"""Most digits of a Content-Length."""

DISCARDED = 1 << 20
"""Most bytes of a refused request that are read."""

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

    def __init__(
        self,
        listening: Listening,
        probes: Probes | None = None,
        routes: Mapping[str, Route] = MappingProxyType({}),
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
        self.listening, self.probes = listening, probes or Probes()
        self.routes = {**routes, "GET /metrics": self._metrics}
        self._context = listening.context()
        try:
            super().__init__((listening.host, listening.port), Exchange)
        except OSError as cause:
            where = f"{listening.host}:{listening.port}"
            raise InvalidUsage(f"cannot listen at {where}: {cause}") from cause

    def _metrics(self, exchange: "Exchange") -> None:
        text = f"{self.probes.metrics()}{of_process()}"
        exchange.answer_text(HTTPStatus.OK, CONTENT_TYPE, text)

    def serve_forever(self, poll_interval: float = POLL_S) -> None:
        """Serve until `shutdown`, which waits for at most an interval (seconds)."""
        super().serve_forever(poll_interval)

    def finish_request(self, request: object, client_address: object) -> None:
        """Handle one connection, after its handshake."""
        connection = cast("socket.socket", request)
        if self._context is None:
            super().finish_request(connection, client_address)
            return
        connection.settimeout(REQUEST_S)
        with self._context.wrap_socket(connection, server_side=True) as secured:
            super().finish_request(secured, client_address)

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

    def setup(self) -> None:
        """Set the read timeout of a request."""
        super().setup()
        self.connection.settimeout(REQUEST_S)

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
            self.rfile.read(length)
        self.answer(code, {"error": message}, headers)

    def answer(
        self, code: HTTPStatus, body: dict[str, object], headers: dict[str, str] | None = None
    ) -> None:
        """Answer with JSON."""
        self.answer_text(code, "application/json", json.dumps(body), headers)

    def answer_text(
        self, code: HTTPStatus, kind: str, body: str, headers: dict[str, str] | None = None
    ) -> None:
        """Answer with text of a content type."""
        encoded = body.encode()
        self.send_response(code)
        fields = {"Content-Type": kind, "Content-Length": str(len(encoded)), **(headers or {})}
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(encoded)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
        """Do not log requests."""
        log.debug(format, *args)


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
            except (binascii.Error, UnicodeDecodeError):
                return ""
            return pair.partition(":")[2]
        case _:
            return ""


def _is_same(given: str, password: str) -> bool:
    """Compare in a time that does not tell where they differ."""
    return hmac.compare_digest(given.encode(errors="replace"), password.encode())
