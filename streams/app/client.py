"""A client of the coordinator's HTTP endpoint: statements out, results in, as they come.

An answer that breaks off before its end is a failure, however much of it has come: rows may be
missing, and statements may not have been executed, or may have been.
"""

import base64
import http.client
import json
import ssl
import urllib.request
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypedDict

from streams.app.client_errors import NO_ANSWERS, not_a_coordinator, unanswered
from streams.errors import Determinate, Indeterminate, InvalidStatement

Message = Mapping[str, object]
_CONNECT_TIMEOUT_S = 3600.0
RESULTS = "application/x-ndjson"

_SESSION_TIMES = {
    "session_time": "Slackwater-Session-Time",
    "session_event_time": "Slackwater-Session-Event-Time",
}
"""Facts of a completed statement, and the headers in which they are sent back."""


class ClusterStatus(TypedDict):
    """What /clusters says of a cluster, as far as it matters to who runs replicas."""

    name: str
    replicas: int
    master: str | None


@dataclass(frozen=True, slots=True)
class StatementResult:
    """A finished statement: its columns, its rows and the tag it completed with."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    tag: str
    facts: Mapping[str, object]

    def dicts(self) -> list[dict[str, object]]:
        """The rows by column name."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(slots=True)
class ReadSession:
    """Reads at times that never decrease: a token, and the times that were told last.

    `times` is by the names of the facts: one for each timeline.
    """

    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    times: dict[str, int] = field(default_factory=dict)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request. Session times outlive the coordinator that set them."""
        times = {_SESSION_TIMES[name]: str(time) for name, time in self.times.items()}
        return {"Slackwater-Session": self.token, **times}

    def hear(self, message: Message) -> None:
        """Take note of the times in what completes a statement."""
        facts = message.get("facts")
        if message["type"] != "complete" or not isinstance(facts, dict):
            return
        for name in _SESSION_TIMES.keys() & facts.keys():
            self.times[name] = max(int(facts[name]), self.times.get(name, 0))


@dataclass(frozen=True, slots=True)
class Client:
    """`url` is as `http://127.0.0.1:port`; with https, `context` says whom it trusts.

    Reads of one text are at times that do not decrease; those of one `session` are too.
    """

    url: str
    session: ReadSession | None = None
    context: ssl.SSLContext | None = None
    password: str = field(default="", repr=False)

    def in_session(self) -> "Client":
        """A client whose reads are at times that never decrease, text after text."""
        return replace(self, session=ReadSession())

    def stream(self, text: str) -> Iterator[Message]:
        """The messages that answer the text, as they come (`streams.adapter.results`).

        Errors: Determinate, which says why, when no coordinator answers; Indeterminate when the
        answer has no end.
        """
        session = self.session
        headers = {"Content-Type": "text/plain", **(session.headers if session else {})}
        try:
            response = self._open("/sql", _CONNECT_TIMEOUT_S, text.encode(), headers)
        except NO_ANSWERS as cause:
            raise self._unanswered(cause) from cause
        kind = response.headers.get_content_type()
        if kind != RESULTS:
            response.close()
            raise Determinate(not_a_coordinator(self.url, f"an answer of type {kind}"))
        with response:
            for message in _received(response):
                if message["type"] == "end":
                    return
                if session is not None:
                    session.hear(message)
                yield message
        raise Indeterminate(
            f"the answer was cut off: the coordinator at {self.url} closed the connection"
        )

    def run(self, text: str) -> list[StatementResult]:
        """The answers to all statements of the text.

        Errors: InvalidStatement with what the coordinator said; Determinate, Indeterminate.
        """
        answers: list[StatementResult] = []
        columns: tuple[str, ...] = ()
        rows: list[tuple[object, ...]] = []
        for message in self.stream(text):
            match message:
                case {"type": "columns", "columns": list(names)}:
                    columns = tuple(column["name"] for column in names)
                case {"type": "rows", "rows": list(some)}:
                    rows += [tuple(row) for row in some]
                case {"type": "complete", "tag": str(tag)}:
                    facts = message.get("facts", {})
                    assert isinstance(facts, dict)
                    answers.append(StatementResult(columns, tuple(rows), tag, facts))
                    columns, rows = (), []
                case {"type": "error", "error": dict(error)}:
                    raise InvalidStatement(error["message"], error["detail"], error["hint"])
                case _:
                    pass
        return answers

    def objects(self) -> list[Message]:
        """Every object with its condition, as /status has it.

        Errors: Determinate when no server answers.
        """
        objects = self.status()["objects"]
        assert isinstance(objects, list)
        return objects

    def replicas(self) -> list[str]:
        """The replicas that serve. Errors: Determinate when no server answers."""
        replicas = self.status()["replicas"]
        assert isinstance(replicas, list)
        return replicas

    def clusters(self) -> list[ClusterStatus]:
        """Every cluster. Errors: Determinate when no server answers."""
        clusters = self._json("/clusters")["clusters"]
        assert isinstance(clusters, list)
        return clusters

    def status(self) -> Message:
        """What /status says. Errors: Determinate when no server answers."""
        return self._json("/status")

    def _json(self, path: str) -> Message:
        """The JSON at a path. Errors: Determinate when no server answers."""
        try:
            with self._open(path) as response:
                answer: Message = json.load(response)
        except NO_ANSWERS as cause:
            raise self._unanswered(cause) from cause
        except ValueError as cause:
            came = "an answer that is no JSON"
            raise Determinate(not_a_coordinator(self.url, came)) from cause
        return answer

    def _open(
        self,
        path: str,
        timeout_s: float = 5.0,
        data: bytes | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> http.client.HTTPResponse:
        """The answer to a request. Errors: those of urllib."""
        given = {"Authorization": _authorization(self.password)} if self.password else {}
        request = urllib.request.Request(  # noqa: S310  http or https: checked where it comes in
            f"{self.url}{path}", data=data, headers={**headers, **given}
        )
        response = urllib.request.urlopen(request, timeout=timeout_s, context=self.context)  # noqa: S310
        assert isinstance(response, http.client.HTTPResponse)
        return response

    def _unanswered(self, cause: Exception) -> Determinate:
        """The error that says why there is no answer."""
        return Determinate(unanswered(self.url, cause, has_password=bool(self.password)))

    def is_ready(self) -> bool:
        """Whether the coordinator answers statements."""
        try:
            with self._open("/readyz"):
                return True
        except NO_ANSWERS:
            return False


def _authorization(password: str) -> str:
    """The header for a password. That of a bearer is sent as it is: it has to be ASCII."""
    if password.isascii() and password.isprintable():
        return f"Bearer {password}"
    return f"Basic {base64.b64encode(f':{password}'.encode()).decode()}"


def _received(lines: Iterable[bytes]) -> Iterator[Message]:
    """The messages that came whole, up to wherever the connection ends."""
    try:
        for line in lines:
            if line.endswith(b"\n"):
                yield json.loads(line)
    except (ConnectionError, TimeoutError, http.client.HTTPException):
        return
