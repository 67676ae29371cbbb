"""The HTTP endpoint of the coordinator, on the loopback interface.

    POST /sql      statements as text (UTF-8); NDJSON, one result a line, as they come
                   (`streams.adapter.results`); an answer without its end was cut off
                   header Slackwater-Session: a token, so that reads of several texts are
                   at times that never decrease (`streams.adapter.sessions`);
                   headers Slackwater-Session-Time and Slackwater-Session-Event-Time: the last
                   `session_time` and `session_event_time` that were told
    GET  /health   200 while the coordinator looks after its objects, 503 otherwise
    GET  /status   JSON: epoch, replicas, every object with its frontiers and condition
    GET  /metrics  text for Prometheus: every materialization (`streams.adapter.metrics`)

There is no authentication: any client that reaches the port may do anything, so it listens on
127.0.0.1 alone, and refuses requests that a browser sends on behalf of some other page.
"""

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol, cast

from streams.adapter import show_materializations
from streams.adapter.catalog import NAMES
from streams.adapter.metrics import CONTENT_TYPE, metrics
from streams.adapter.results import END, Failed, Result, line
from streams.adapter.sessions import Session, Sessions, session_of
from streams.adapter.show import UNITS, Shown, row
from streams.adapter.timelines import Timeline
from streams.compute.replica_responses import Observed
from streams.errors import InvalidUsage, SlackwaterError

log = logging.getLogger(__name__)

SESSION = "Slackwater-Session"
SESSION_TIMES: Mapping[Timeline, str] = {
    "wall": "Slackwater-Session-Time",
    "event": "Slackwater-Session-Event-Time",
}

REQUEST_S = 60.0
"""Longest pause within a request; a thread waits for it."""

LONGEST_NUMBER = 18
"""Most digits of a Content-Length."""

LONGEST_TEXT = 16 << 20
"""Most bytes of statements in one request."""


class Answering(Protocol):
    """The coordinator, as the endpoint needs it."""

    @property
    def is_alive(self) -> bool:
        """Whether it looks after its objects."""

    @property
    def epoch(self) -> int:
        """The epoch that it opened."""

    @property
    def observed(self) -> Observed:
        """The state that replicas have reported."""

    @property
    def sessions(self) -> Sessions:
        """The named sessions of clients."""

    def execute(self, text: str, session: Session | None = None) -> Iterator[Result]:
        """Yield the results of the statements of the text, in a session."""

    def conditions(self) -> tuple[Shown, ...]:
        """Every object."""

    def materialized(self) -> tuple[show_materializations.Shown, ...]:
        """Every materialization."""


class Server(ThreadingHTTPServer):
    """One thread per request; they end with the process."""

    daemon_threads = True

    def __init__(self, port: int, answering: Answering) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.answering = answering

    def serve_forever(self, poll_interval: float = 0.05) -> None:
        """Serve until `shutdown`, which waits for at most an interval (seconds)."""
        super().serve_forever(poll_interval)

    def handle_error(self, *_: object) -> None:
        """Ignore clients that disconnected; log other errors."""
        error = sys.exception()
        if isinstance(error, ConnectionError):
            log.debug("a client went away")
        else:
            log.error("a request could not be handled", exc_info=error)


def serve(answering: Answering, port: int = 0) -> Server:
    """Return a server on the port, or on a free one; the caller runs `serve_forever`.

    Errors: OSError if the port is taken.
    """
    return Server(port, answering)


class Handler(BaseHTTPRequestHandler):
    """One connection, one request."""

    server_version = "slackwater"

    def setup(self) -> None:
        """Set the read timeout of a request."""
        super().setup()
        self.connection.settimeout(REQUEST_S)

    @property
    def answering(self) -> Answering:
        """The coordinator."""
        return cast("Server", self.server).answering

    def do_GET(self) -> None:
        """Health, status and metrics."""
        try:
            self._tell()
        except SlackwaterError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(error)})

    def _tell(self) -> None:
        match self.path.partition("?")[0]:
            case "/health":
                alive = self.answering.is_alive
                code = HTTPStatus.OK if alive else HTTPStatus.SERVICE_UNAVAILABLE
                self._answer(code, {"alive": alive})
            case "/status":
                self._answer(HTTPStatus.OK, status(self.answering))
            case "/metrics":
                text = metrics(self.answering.materialized())
                self._answer_text(HTTPStatus.OK, CONTENT_TYPE, text)
            case path:
                self._answer(HTTPStatus.NOT_FOUND, {"error": f"there is no {path}"})

    def do_POST(self) -> None:
        """Statements."""
        length = self._length()
        if self.path != "/sql":
            self._answer(HTTPStatus.NOT_FOUND, {"error": f"there is no {self.path}"})
        elif self.headers.get("Origin") or self.headers.get("Sec-Fetch-Site"):
            self._answer(HTTPStatus.FORBIDDEN, {"error": "not for browsers"})
        elif length is None:
            code = HTTPStatus.LENGTH_REQUIRED
            self._answer(code, {"error": "expected the bytes' number in Content-Length"})
        elif length > LONGEST_TEXT:
            code = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            self._answer(code, {"error": f"more than {LONGEST_TEXT} bytes of statements"})
        else:
            text = self.rfile.read(length)
            self.connection.settimeout(None)  # an answer may take as long as its reader likes
            if len(text) == length:
                self._in_session(text)
            else:
                message = f"expected {length} bytes of statements, got {len(text)}"
                self._answer(HTTPStatus.BAD_REQUEST, {"error": message})

    def _length(self) -> int | None:
        """Return the length of the body; None if the header is missing or invalid."""
        said = self.headers.get("Content-Length", "")
        is_number = said.isascii() and said.isdigit() and len(said) <= LONGEST_NUMBER
        return int(said) if is_number else None

    def _in_session(self, text: bytes) -> None:
        token = self.headers.get(SESSION)
        times = {line: self.headers.get(header) for line, header in SESSION_TIMES.items()}
        try:
            session = session_of(self.answering.sessions, token, times)
        except InvalidUsage as error:
            self._answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        else:
            self._stream(text, session)

    def _stream(self, text: bytes, session: Session) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/x-ndjson; charset=utf-8")
        self.end_headers()
        try:
            self._send_all(text.decode(), session)
        except UnicodeDecodeError:
            self._send(Failed("statements are not valid UTF-8"))
        self._send_line(END)

    def _send_all(self, text: str, session: Session) -> None:
        results = self.answering.execute(text, session)
        try:
            for result in results:
                self._send(result)
        except ConnectionError:
            raise
        except Exception as defect:
            log.exception("a statement could not be answered")
            hint = "this is a bug; the coordinator's log has more"
            self._send(Failed("the statement could not be answered", repr(defect), hint))
        finally:
            closing = getattr(results, "close", None)
            if closing is not None:
                closing()  # a read whose client is gone releases its hold

    def _send(self, result: Result) -> None:
        self._send_line(line(result))

    def _send_line(self, text: str) -> None:
        self.wfile.write(text.encode() + b"\n")
        self.wfile.flush()

    def _answer(self, code: HTTPStatus, body: dict[str, object]) -> None:
        self._answer_text(code, "application/json", json.dumps(body))

    def _answer_text(self, code: HTTPStatus, kind: str, body: str) -> None:
        text = body.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
        """Do not log requests."""
        log.debug(format, *args)


def status(answering: Answering) -> dict[str, object]:
    """Return the body of /status."""
    fields = ("name", "id", "since", "upper", "status", "progress", "detail", "retains")
    objects = [
        {
            "kind": NAMES[condition.item.kind],
            **dict(zip(fields, row(condition), strict=True)),
            "timeline": condition.timeline,
            "dead_letters": None
            if (letters := condition.item.dead_letters) is None
            else letters.name,
            "late": condition.late,
            "skipped": condition.skipped,
            "hydration": _in_numbers(condition),
        }
        for condition in answering.conditions()
    ]
    names = [column.name for column in show_materializations.COLUMNS]
    return {
        "epoch": answering.epoch,
        "replicas": sorted(answering.observed.replicas),
        "objects": objects,
        "materializations": [
            {
                **dict(zip(names, show_materializations.row(materialization), strict=True)),
                **_by_binding(materialization),
                "errors": materialization.state.errors,
            }
            for materialization in answering.materialized()
        ],
    }


def _by_binding(
    shown: show_materializations.Shown,
) -> dict[str, dict[str, str] | dict[str, int]]:
    """Return what is known of single bindings."""
    state = shown.state
    return {
        "stalls": dict(state.stalls),
        "dead_letters": dict(state.dead_letters),
        "left_out": dict(state.left_out),
    }


def _in_numbers(shown: Shown) -> dict[str, int | str | None] | None:
    """Return the progress of a hydration; `done` and `total` are in units of `unit`."""
    hydration = shown.hydration
    if hydration is None:
        return None
    return {
        "done": hydration.done,
        "total": hydration.total,
        "unit": UNITS[shown.item.kind],
        "seconds_left": hydration.seconds_left,
    }
