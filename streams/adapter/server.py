"""The HTTP endpoint of the coordinator, beside the paths of every service (`streams.http`).

    POST /sql      statements as text (UTF-8); NDJSON, one result a line, as they come
                   (`streams.adapter.results`); an answer without its end was cut off
                   header Slackwater-Session: a token, so that reads of several texts are
                   at times that never decrease (`streams.adapter.sessions`);
                   headers Slackwater-Session-Time and Slackwater-Session-Event-Time: the last
                   `session_time` and `session_event_time` that were told
    GET  /status   JSON: epoch, replicas, every object with its frontiers and condition
    GET  /clusters JSON: every cluster, with the replicas that are wanted and live

Until the coordinator has taken over, all but the probes are answered with 503. Any client that
is let in may do anything. Requests that a browser sends on behalf of some other page are
refused.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Protocol

from streams.adapter import show_materializations
from streams.adapter.audit_verdicts import Counts, of_audits
from streams.adapter.catalog import NAMES
from streams.adapter.cluster_status import Observed
from streams.adapter.metrics import of_materializations
from streams.adapter.object_metrics import of_clusters, of_objects
from streams.adapter.request_metrics import RequestCounts, of_requests
from streams.adapter.results import END, Failed, Progress, Result, line
from streams.adapter.sessions import Session, Sessions, session_of
from streams.adapter.show import UNITS, ShownObject, row
from streams.adapter.show_clusters import ShownCluster
from streams.adapter.show_statements import REPLICA_COLUMNS, replica_rows
from streams.adapter.timelines import Timeline
from streams.errors import Determinate, InvalidUsage
from streams.http.listening import Listening
from streams.http.metrics import Family, exposition
from streams.http.server import Endpoint, Exchange, Probes

log = logging.getLogger(__name__)

SESSION = "Slackwater-Session"
SESSION_TIMES: Mapping[Timeline, str] = {
    "wall": "Slackwater-Session-Time",
    "event": "Slackwater-Session-Event-Time",
}

LONGEST_TEXT = 16 << 20
"""Most bytes of statements in one request."""

STARTING = "the coordinator is starting"


class StatementExecutor(Protocol):
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
    def audit_counts(self) -> Counts:
        """The numbers of audits since it began."""

    @property
    def sessions(self) -> Sessions:
        """The named sessions of clients."""

    def execute(self, text: str, session: Session | None = None) -> Iterator[Result]:
        """Yield the results of the statements of the text, in a session."""

    def conditions(self) -> tuple[ShownObject, ...]:
        """Every object."""

    def clusters(self) -> Sequence[ShownCluster]:
        """Every cluster."""

    def materialized(self) -> tuple[show_materializations.ShownMaterialization, ...]:
        """Every materialization."""


Execute = Callable[[str], Iterator[Result]]
"""Yields the results of the statements of a text, in the session of its client."""

DRAIN_S = 5.0
"""How long statements in progress may take once the coordinator is asked to end."""


class Server:
    """The coordinator's endpoint. Errors: InvalidUsage if it cannot listen there.

    It listens from the beginning, and answers statements once there is an `answering`: so a
    coordinator knows that it can be reached before it takes over from its predecessor.
    """

    def __init__(
        self, listening: Listening, answering: StatementExecutor | None = None
    ) -> None:
        probes = Probes(
            is_alive=lambda: self.answering is None or self.answering.is_alive,
            why_not_ready=lambda: why_not_ready(self.answering),
            metrics=self.metrics,
        )
        routes = {
            "GET /status": self._status,
            "GET /clusters": self._clusters,
            "POST /sql": self._sql,
        }
        self.answering = answering
        self.endpoint = Endpoint(listening, probes, routes)
        self.is_draining = False
        self.in_progress = 0
        """How many requests' statements are being answered."""
        self.requests = RequestCounts()
        self._changed = threading.Condition()

    def drain(self, timeout_s: float = DRAIN_S) -> bool:
        """Take no more requests, and wait for those in progress; whether all have ended.

        The endpoint must be served. A subscription has no end of its own: it is cut off at its
        next frontier.
        """
        self.is_draining = True
        self.endpoint.shutdown()
        self.endpoint.server_close()
        with self._changed:
            return self._changed.wait_for(lambda: not self.in_progress, timeout_s)

    @contextmanager
    def _progressing(self) -> Iterator[None]:
        """Count a request whose statements are being answered."""
        began = time.monotonic()
        with self._changed:
            self.in_progress += 1
        try:
            yield
        finally:
            with self._changed:
                self.in_progress -= 1
                self.requests.answered += 1
                self.requests.seconds += time.monotonic() - began
                self._changed.notify_all()

    def _count_failure(self) -> None:
        with self._changed:
            self.requests.failed_statements += 1

    def metrics(self) -> str:
        """Return the body of /metrics but for what every service has."""
        requests = of_requests(self.requests, self.in_progress)
        shown = () if self.answering is None else families(self.answering)
        return exposition((*requests, *shown))

    def _status(self, exchange: Exchange) -> None:
        if self.answering is None:
            raise Determinate(STARTING)
        exchange.answer(HTTPStatus.OK, status(self.answering))

    def _clusters(self, exchange: Exchange) -> None:
        if self.answering is None:
            raise Determinate(STARTING)
        clusters = [cluster.as_json() for cluster in self.answering.clusters()]
        exchange.answer(HTTPStatus.OK, {"clusters": clusters})

    def _sql(self, exchange: Exchange) -> None:
        length = exchange.length
        if exchange.headers.get("Origin") or exchange.headers.get("Sec-Fetch-Site"):
            exchange.refuse(HTTPStatus.FORBIDDEN, "not for browsers")
        elif self.answering is None:
            exchange.refuse(HTTPStatus.SERVICE_UNAVAILABLE, STARTING)
        elif length is None:
            code = HTTPStatus.LENGTH_REQUIRED
            exchange.answer(code, {"error": "expected the bytes' number in Content-Length"})
        elif length > LONGEST_TEXT:
            code = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            exchange.answer(code, {"error": f"more than {LONGEST_TEXT} bytes of statements"})
        else:
            text = exchange.body(length)
            if text is None:
                return
            exchange.connection.settimeout(None)  # a reader may be as slow as it likes
            if len(text) == length:
                with self._progressing():
                    self._in_session(self.answering, exchange, text)
            else:
                message = f"expected {length} bytes of statements, actual {len(text)}"
                exchange.answer(HTTPStatus.BAD_REQUEST, {"error": message})

    def _in_session(
        self, answering: StatementExecutor, exchange: Exchange, text: bytes
    ) -> None:
        token = exchange.headers.get(SESSION)
        times = {line: exchange.headers.get(header) for line, header in SESSION_TIMES.items()}
        try:
            session = session_of(answering.sessions, token, times)
        except InvalidUsage as error:
            exchange.answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        else:
            self._stream(exchange, text, partial(answering.execute, session=session))

    def _stream(self, exchange: Exchange, text: bytes, execute: Execute) -> None:
        exchange.send_response(HTTPStatus.OK)
        exchange.send_header("Content-Type", "application/x-ndjson; charset=utf-8")
        exchange.end_headers()
        is_whole = True
        try:
            is_whole = self._send_all(exchange, text.decode(), execute)
        except UnicodeDecodeError:
            _send(exchange, Failed("statements are not valid UTF-8"))
        if is_whole:
            _send_line(exchange, END)

    def _send_all(self, exchange: Exchange, text: str, execute: Execute) -> bool:
        """Send the results; False if a subscription was cut off, because this process ends."""
        results = execute(text)
        try:
            for result in results:
                _send(exchange, result)
                if isinstance(result, Failed):
                    self._count_failure()
                if self.is_draining and isinstance(result, Progress):
                    return False
        except ConnectionError:
            raise
        except Exception as defect:
            log.exception("a statement could not be answered")
            self._count_failure()
            hint = "this is a bug; the coordinator's log has more"
            _send(exchange, Failed("the statement could not be answered", repr(defect), hint))
        finally:
            closing = getattr(results, "close", None)
            if closing is not None:
                closing()  # a read whose client is gone releases its hold
        return True


def _send(exchange: Exchange, result: Result) -> None:
    _send_line(exchange, line(result))


def _send_line(exchange: Exchange, text: str) -> None:
    exchange.wfile.write(text.encode() + b"\n")
    exchange.wfile.flush()


def why_not_ready(answering: StatementExecutor | None) -> str:
    """Return why statements cannot be answered; empty if they can."""
    if answering is None:
        return STARTING
    return "" if answering.is_alive else "the coordinator has failed and has to be restarted"


def families(answering: StatementExecutor) -> tuple[Family, ...]:
    """Return the metrics of objects, clusters, materializations and audits."""
    now_ms = time.time_ns() // 1_000_000
    objects = of_objects(answering.conditions(), len(answering.observed.replicas), now_ms)
    audits = of_audits(answering.audit_counts)
    clusters = of_clusters(answering.clusters())
    return (*objects, *clusters, *of_materializations(answering.materialized()), *audits)


def status(answering: StatementExecutor) -> dict[str, object]:
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
            "letters": condition.letters,
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
        "cluster_replicas": _replicas(answering),
        "objects": objects,
        "materializations": [
            {
                **dict(zip(names, show_materializations.row(materialization), strict=True)),
                **_by_binding(materialization),
                "errors": materialization.state.errors,
                "backfill": materialization.state.backfill,
            }
            for materialization in answering.materialized()
        ],
    }


def _replicas(answering: StatementExecutor) -> list[dict[str, str | int | None]]:
    """Return what SHOW CLUSTER REPLICAS says."""
    names = [column.name for column in REPLICA_COLUMNS]
    now_ms = time.time_ns() // 1_000_000
    rows = replica_rows(answering.observed, answering.conditions(), now_ms)
    return [dict(zip(names, row_, strict=True)) for row_ in rows]


def _by_binding(
    shown: show_materializations.ShownMaterialization,
) -> dict[str, dict[str, str] | dict[str, int]]:
    """Return what is known of single bindings."""
    state = shown.state
    return {
        "stalls": dict(state.stalls),
        "dead_letters": dict(state.dead_letters),
        "left_out": dict(state.left_out),
    }


def _in_numbers(shown: ShownObject) -> dict[str, int | str | None] | None:
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
