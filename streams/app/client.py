"""A client of the coordinator's HTTP endpoint: statements out, results in, as they come.

An answer that breaks off before its end is a failure, however much of it has come: rows may be
missing, and statements may not have been executed, or may have been.
"""

import http.client
import json
import ssl
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from streams.errors import Determinate, Indeterminate, InvalidStatement

Message = Mapping[str, object]
_CONNECT_TIMEOUT_S = 3600.0

_SESSION_TIMES = {
    "session_time": "Slackwater-Session-Time",
    "session_event_time": "Slackwater-Session-Event-Time",
}
"""Facts of a completed statement, and the headers in which they are sent back."""


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

        Errors: Determinate when no server answers, Indeterminate when the answer has no end.
        """
        session = self.session
        headers = {"Content-Type": "text/plain", **(session.headers if session else {})}
        try:
            response = self._open("/sql", _CONNECT_TIMEOUT_S, text.encode(), headers)
        except urllib.error.HTTPError as cause:
            said = cause.read().decode(errors="replace")
            raise Determinate(
                f"the coordinator at {self.url} refused the request: {said}"
            ) from cause
        except (urllib.error.URLError, ConnectionError, TimeoutError) as cause:
            raise Determinate(self._unanswered(cause)) from cause
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
        objects = self._status()["objects"]
        assert isinstance(objects, list)
        return objects

    def replicas(self) -> list[str]:
        """The replicas that serve. Errors: Determinate when no server answers."""
        replicas = self._status()["replicas"]
        assert isinstance(replicas, list)
        return replicas

    def _status(self) -> Message:
        try:
            with self._open("/status") as response:
                status: Message = json.load(response)
        except urllib.error.HTTPError as cause:
            said = cause.read().decode(errors="replace")
            raise Determinate(
                f"the coordinator at {self.url} refused the request: {said}"
            ) from cause
        except (urllib.error.URLError, ConnectionError, TimeoutError) as cause:
            raise Determinate(self._unanswered(cause)) from cause
        return status

    def _open(
        self,
        path: str,
        timeout_s: float = 5.0,
        data: bytes | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> http.client.HTTPResponse:
        """The answer to a request. Errors: those of urllib."""
        given = {"Authorization": f"Bearer {self.password}"} if self.password else {}
        request = urllib.request.Request(  # noqa: S310  http or https: checked where it comes in
            f"{self.url}{path}", data=data, headers={**headers, **given}
        )
        response = urllib.request.urlopen(request, timeout=timeout_s, context=self.context)  # noqa: S310
        assert isinstance(response, http.client.HTTPResponse)
        return response

    def _unanswered(self, cause: Exception) -> str:
        """Why there is no answer: with TLS it may be who does not trust whom."""
        reason = getattr(cause, "reason", cause)
        why = f": {reason}" if isinstance(reason, ssl.SSLError) else ""
        return f"no coordinator answers at {self.url}{why}"

    def is_ready(self) -> bool:
        """Whether the coordinator answers statements."""
        try:
            with self._open("/readyz"):
                return True
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False


def _received(lines: Iterable[bytes]) -> Iterator[Message]:
    """The messages that came whole, up to wherever the connection ends."""
    try:
        for line in lines:
            if line.endswith(b"\n"):
                yield json.loads(line)
    except (ConnectionError, TimeoutError, http.client.HTTPException):
        return
