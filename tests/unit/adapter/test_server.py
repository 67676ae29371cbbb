import http.client
import json
import logging
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from schemas.materializations import State
from streams.adapter import show_materializations
from streams.adapter.audit_verdicts import Counts
from streams.adapter.catalog_materializations import Materialization
from streams.adapter.cluster_status import Observed
from streams.adapter.results import Columns, Complete, Failed, Notice, Progress, Result, Rows
from streams.adapter.server import Server
from streams.adapter.sessions import Session, Sessions
from streams.adapter.show import ShownObject
from streams.adapter.show_clusters import ShownCluster
from streams.app.client import Client
from streams.compute.replica_responses import InstanceStatus
from streams.errors import Determinate
from streams.http.listening import Listening
from streams.http.server import served
from streams.ids import Timestamp
from streams.plan.physical import Column
from streams.progress import EMPTY, frontier
from tests.support.processes import eventually
from tests.unit.adapter.items import source
from tests.unit.adapter.test_metrics import read


class Scripted:
    """Answers a text with the results that were laid down for it."""

    is_alive = True
    epoch = 3
    observed = Observed({"default": InstanceStatus(heard={"r1": 0.0})})

    def __init__(self) -> None:
        self.closed = threading.Event()
        self.sessions = Sessions(time.monotonic)

    def execute(self, text: str, session: Session | None = None) -> Iterator[Result]:
        assert session is not None
        match text:
            case "time":
                yield Complete("SELECT 0", {"session_time": session.time or 0})
                session.note(Timestamp((session.time or 0) + 1))
            case "event time":
                yield Complete("SELECT 0", {"session_event_time": session.event_time or 0})
            case "all":
                yield Columns((Column("a", "BIGINT"),))
                yield Rows(("[1]", '["ä"]'))
                yield Progress(frontier(7))
                yield Progress(EMPTY)
                yield Notice("mind")
                yield Complete("SELECT 2", {"as_of": 6})
            case "fail":
                yield Failed("no", "because", "try")
            case "break":
                raise ZeroDivisionError("defect")
            case _:
                try:
                    while True:
                        yield Progress(frontier(1))
                        time.sleep(0.01)
                finally:
                    self.closed.set()

    def conditions(self) -> tuple[ShownObject, ...]:
        return (ShownObject(source(1, "orders"), frontier(2), EMPTY, "running", "", "fine"),)

    def clusters(self) -> list[ShownCluster]:
        return [ShownCluster(name="default", replicas=2, live=1, objects=1, buckets=4)]

    @property
    def audit_counts(self) -> Counts:
        return Counts(right=3, wrong=1, observations=70, wrong_rows=2, last_ms=1_500)

    def materialized(self) -> tuple[show_materializations.ShownMaterialization, ...]:
        return ()


@pytest.fixture
def answering() -> Scripted:
    return Scripted()


@pytest.fixture
def server(answering) -> Iterator[Server]:
    server = Server(Listening(), answering)
    with served(server.endpoint):
        yield server


def ask(server: Server, method: str, path: str, body: bytes = b"", **headers: str):
    connection = http.client.HTTPConnection(
        "127.0.0.1", server.endpoint.server_port, timeout=10
    )
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    lines = response.read().decode().splitlines()
    connection.close()
    return response.status, [json.loads(line) for line in lines]


def test_results_come_as_lines(server) -> None:
    assert ask(server, "POST", "/sql", b"all") == (
        200,
        [
            {"type": "columns", "columns": [{"name": "a", "type": "BIGINT"}]},
            {"type": "rows", "rows": [[1], ["ä"]]},
            {"type": "progress", "frontier": 7},
            {"type": "progress", "frontier": None},
            {"type": "notice", "message": "mind"},
            {"type": "complete", "tag": "SELECT 2", "facts": {"as_of": 6}},
            {"type": "end"},
        ],
    )


def test_a_failure_carries_detail_and_hint(server) -> None:
    _, lines = ask(server, "POST", "/sql", b"fail")
    error = {"message": "no", "detail": "because", "hint": "try"}
    assert lines == [{"type": "error", "error": error}, {"type": "end"}]


def test_a_defect_is_told_and_the_server_goes_on(server, caplog) -> None:
    _, lines = ask(server, "POST", "/sql", b"break")
    assert "ZeroDivisionError" in lines[0]["error"]["detail"]
    assert lines[1:] == [{"type": "end"}]
    assert ask(server, "GET", "/healthz") == (200, [{"alive": True}])


def test_a_reader_that_goes_away_ends_its_read(server, answering) -> None:
    connection = http.client.HTTPConnection(
        "127.0.0.1", server.endpoint.server_port, timeout=10
    )
    connection.request("POST", "/sql", b"subscribe")
    response = connection.getresponse()
    assert response.readline()
    response.close()
    connection.close()
    assert answering.closed.wait(60)


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /status HTTP/1.1\r\n\r\n",
        b"POST /sql HTTP/1.1\r\nContent-Length: 4\r\nSlackwater-Session: \xff\r\n\r\ntime",
        b"POST /sql HTTP/1.1\r\nContent-Length: 8\r\n\r\nfor",
        b"GET /stat",
    ],
)
def test_a_client_that_goes_away_leaves_no_trace(server, caplog, capfd, request_) -> None:
    closed: list[object] = []
    ended = server.endpoint.shutdown_request

    def end(request: object) -> None:
        ended(request)
        closed.append(request)

    server.endpoint.shutdown_request = end
    for _ in range(20):
        with socket.create_connection(server.endpoint.server_address) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(request_)
    deadline = time.monotonic() + 60
    while len(closed) < 20 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(closed) == 20
    assert capfd.readouterr().err == ""
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG]
    assert ask(server, "GET", "/healthz")[0] == 200


def test_a_defect_outside_of_statements_is_logged(server, answering, caplog) -> None:
    answering.conditions = lambda: 1 / 0
    with pytest.raises(http.client.RemoteDisconnected):
        ask(server, "GET", "/status")
    assert "a request could not be handled" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_bad_requests_are_refused(server) -> None:
    assert ask(server, "POST", "/sql", b"\xff")[1][0]["error"]["message"].endswith("UTF-8")
    assert ask(server, "POST", "/nothing")[0] == 404
    assert ask(server, "GET", "/nothing")[0] == 404
    assert ask(server, "POST", "/sql", b"all", Origin="http://evil.example")[0] == 403


@pytest.mark.parametrize(
    ("length", "code"),
    [
        ("", 411),
        ("-1", 411),
        ("many", 411),
        ("9" * 5000, 411),
        ("\xb2", 411),
        ("9" * 18, 413),
        ("16777217", 413),
        ("70", 400),
    ],
)
def test_lengths_that_cannot_be_are_refused(server, length, code) -> None:
    with socket.create_connection(
        ("127.0.0.1", server.endpoint.server_port), timeout=10
    ) as raw:
        raw.sendall(
            f"POST /sql HTTP/1.0\r\nContent-Length: {length}\r\n\r\nall".encode("latin1")
        )
        raw.shutdown(socket.SHUT_WR)
        assert f" {code} ".encode() in raw.makefile("rb").readline()
    assert ask(server, "GET", "/healthz") == (200, [{"alive": True}])


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\x16\x03\x01\x00",
        b"POST\r\n\r\n",
        b"GET " + b"x" * 70_000 + b" HTTP/1.0\r\n\r\n",
        b"GET /healthz HTTP/1.0\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"POST /sql HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nall\r\n0\r\n\r\n",
        b"BREW /sql HTTP/1.0\r\n\r\n",
    ],
)
def test_what_is_no_request_costs_its_sender_alone(server, sent) -> None:
    with socket.create_connection(
        ("127.0.0.1", server.endpoint.server_port), timeout=10
    ) as raw:
        raw.sendall(sent)
        raw.shutdown(socket.SHUT_WR)
        assert b" 200 " not in raw.makefile("rb").readline()
    assert ask(server, "GET", "/healthz") == (200, [{"alive": True}])


def test_a_request_that_does_not_go_on_is_given_up(server, monkeypatch) -> None:
    monkeypatch.setattr("streams.http.server.REQUEST_S", 0.1)
    with socket.create_connection(
        ("127.0.0.1", server.endpoint.server_port), timeout=10
    ) as raw:
        raw.sendall(b"POST /sql HTTP/1.0\r\nContent-Length: 9\r\n\r\nall")
        assert raw.recv(1000).startswith(b"HTTP/1.0 408 ")


def test_a_session_is_what_a_token_names(server) -> None:
    def told(**headers: str) -> object:
        code, lines = ask(server, "POST", "/sql", b"time", **headers)
        assert code == 200
        return lines[0]["facts"]["session_time"]

    mine, theirs = {"Slackwater-Session": "a-1"}, {"Slackwater-Session": "b"}
    assert [told(**mine), told(**mine), told(**theirs), told(), told()] == [0, 1, 0, 0, 0]
    assert told(**mine, **{"Slackwater-Session-Time": "70"}) == 70
    assert told(**mine, **{"Slackwater-Session-Time": "7"}) == 71


def test_a_session_has_an_event_time_of_its_own(server) -> None:
    header = {"Slackwater-Session": "a", "Slackwater-Session-Event-Time": "5"}
    _, lines = ask(server, "POST", "/sql", b"event time", **header)
    assert lines[0]["facts"] == {"session_event_time": 5}
    _, lines = ask(server, "POST", "/sql", b"time", **header)
    assert lines[0]["facts"] == {"session_time": 0}


@pytest.mark.parametrize(
    "headers",
    [
        {"Slackwater-Session": ""},
        {"Slackwater-Session": "x" * 129},
        {"Slackwater-Session": "a b"},
        {"Slackwater-Session-Time": "-1"},
        {"Slackwater-Session-Time": "9" * 17},
        {"Slackwater-Session-Time": "²"},
        {"Slackwater-Session-Event-Time": "-1"},
    ],
)
def test_what_is_no_session_is_refused(server, headers) -> None:
    code, (answer,) = ask(server, "POST", "/sql", b"time", **headers)
    assert code == 400
    assert answer["error"].startswith("session: expected")


def test_health_follows_the_coordinator(server, answering) -> None:
    assert ask(server, "GET", "/readyz") == (200, [{"ready": True}])
    answering.is_alive = False
    assert ask(server, "GET", "/healthz") == (503, [{"alive": False}])
    code, (answer,) = ask(server, "GET", "/readyz")
    assert (code, answer["ready"]) == (503, False)
    assert "has to be restarted" in answer["why"]


def test_a_coordinator_that_ends_finishes_statements_and_cuts_subscriptions_off(
    answering,
) -> None:
    going_on = threading.Event()

    def execute(text: str, session: Session | None = None) -> Iterator[Result]:
        if text == "slow":
            going_on.wait(60)
            yield Complete("SELECT 0", {})
            return
        while True:
            yield Progress(frontier(1))
            time.sleep(0.01)

    answering.execute = execute
    server = Server(Listening(), answering)
    answers: dict[str, list[dict[str, object]]] = {}

    def send(text: str) -> None:
        answers[text] = ask(server, "POST", "/sql", text.encode())[1]

    with served(server.endpoint):
        senders = [threading.Thread(target=send, args=(text,)) for text in ("slow", "always")]
        for sender in senders:
            sender.start()
        eventually(lambda: server.in_progress == 2)
        assert not server.drain(0.0)
        with pytest.raises(ConnectionRefusedError):
            ask(server, "GET", "/healthz")
        going_on.set()
        assert server.drain(10)
        for sender in senders:
            sender.join()
    assert [line["type"] for line in answers["slow"]] == ["complete", "end"]
    assert {line["type"] for line in answers["always"]} == {"progress"}, "no end: cut off"


def test_metrics_are_text_for_prometheus(server, answering, monkeypatch) -> None:
    materialization = Materialization(id="m1", name="shop", statement="", task="{}", inputs=())
    state = State(id="m1", rows=7)
    shown = show_materializations.ShownMaterialization(
        materialization, "sqlite", (), "running", state, None, ""
    )
    monkeypatch.setattr(answering, "materialized", lambda: (shown,))
    connection = http.client.HTTPConnection(
        "127.0.0.1", server.endpoint.server_port, timeout=10
    )
    connection.request("GET", "/metrics")
    response = connection.getresponse()
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = response.read().decode().splitlines()
    assert 'slackwater_materialization_rows_total{materialization="shop"} 7.0' in lines


@pytest.mark.parametrize("path", ["/metrics", "/status"])
def test_what_cannot_be_read_now_is_unavailable(server, answering, monkeypatch, path) -> None:
    def fail() -> None:
        raise Determinate("no broker")

    monkeypatch.setattr(answering, "materialized", fail)
    assert ask(server, "GET", path) == (503, [{"error": "no broker"}])


def test_clusters_are_told_to_who_runs_replicas(server) -> None:
    code, (said,) = ask(server, "GET", "/clusters")
    assert code == 200
    numbers = {"replicas": 2, "live": 1, "objects": 1, "buckets": 4}
    cluster = {"name": "default", **numbers, "master": None, "parameters": None}
    assert said == {"clusters": [cluster]}
    client = Client(f"http://127.0.0.1:{server.endpoint.server_port}")
    assert client.clusters() == [cluster]


def test_status_lists_every_object(server) -> None:
    code, (status,) = ask(server, "GET", "/status")
    assert code == 200
    assert status["epoch"] == 3
    assert status["replicas"] == ["r1"]
    (replica,) = status["cluster_replicas"]
    assert (replica["replica"], replica["process"]) == ("r1", "r1")
    assert status["objects"] == [
        {
            "kind": "source",
            "name": "orders",
            "id": "s1",
            "since": 2,
            "upper": None,
            "status": "running",
            "progress": "",
            "detail": "fine",
            "retains": None,
            "timeline": "wall",
            "late": None,
            "skipped": None,
            "dead_letters": None,
            "letters": None,
            "hydration": None,
        }
    ]


def test_requests_and_errors_are_counted(server) -> None:
    for text in (b"all", b"fail", b"break"):
        assert ask(server, "POST", "/sql", text)[0] == 200
    eventually(lambda: server.requests.answered == 3)
    samples = read(server.metrics())
    assert samples["slackwater_sql_requests_total", frozenset()] == 3
    assert samples["slackwater_sql_errors_total", frozenset()] == 2
    assert samples["slackwater_sql_requests_in_progress", frozenset()] == 0
    assert samples["slackwater_sql_request_seconds_total", frozenset()] > 0
    assert samples["slackwater_replicas", frozenset()] == 1
    audits = "slackwater_audits_total"
    assert samples[audits, frozenset({("outcome", "right")})] == 3
    assert samples[audits, frozenset({("outcome", "wrong")})] == 1
    assert samples["slackwater_audit_observations_total", frozenset()] == 70
    assert samples["slackwater_audit_last_timestamp_seconds", frozenset()] == 1.5
