"""The coordinator as a process: what comes before it takes over from its predecessor."""

import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streams.adapter.catalog import Catalog
from streams.adapter.cluster_status import Observed
from streams.adapter.results import Complete
from streams.adapter.sessions import Sessions
from streams.app import coordinator
from streams.app.client import Client
from streams.app.service_config import Service
from streams.app.signals import Stop
from streams.errors import Determinate, InvalidUsage
from tests.support.processes import eventually


class Successor:
    """A coordinator that has taken over once it is made, when the test lets it."""

    taken_over: list["Successor"]
    may_go_on: threading.Event
    is_alive, epoch, failure, observed = True, 2, None, Observed()

    def __init__(self, *_: object, **__: object) -> None:
        self.sessions = Sessions(lambda: 0.0)
        self.audits = SimpleNamespace(audit_any=lambda: None)
        self.catalog = SimpleNamespace(state=Catalog())
        self.taken_over.append(self)
        assert self.may_go_on.wait(30)

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def conditions(self) -> tuple[()]:
        return ()

    def system_state(self) -> None: ...

    def materialized(self) -> tuple[()]:
        return ()

    def execute(self, *_: object, **__: object) -> Iterator[Complete]:
        yield Complete("SELECT 0")


@pytest.fixture
def taken_over(monkeypatch: pytest.MonkeyPatch) -> list[Successor]:
    """What has taken over; brokers and workers are stand-ins."""
    taken = list[Successor]()
    monkeypatch.setattr(Successor, "taken_over", taken, raising=False)
    monkeypatch.setattr(Successor, "may_go_on", threading.Event(), raising=False)

    def nothing(*_: object, **__: object) -> None: ...

    broker = SimpleNamespace(logs=None, chunks=None, topics=None, close=nothing)
    workers = SimpleNamespace(start=nothing, close=nothing)
    monkeypatch.setattr(coordinator, "KafkaBroker", lambda *_: broker)
    monkeypatch.setattr(coordinator, "Workers", lambda *_: workers)
    monkeypatch.setattr(coordinator, "Coordinator", Successor)
    return taken


def at(port: int, directory: Path, **more: Any) -> Service:
    return Service(
        bootstrap="a:1", directory=str(directory), listen=f"127.0.0.1:{port}", **more
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_one_whose_port_is_in_use_takes_nothing_over(
    taken_over: list[Successor], tmp_path: Path
) -> None:
    Successor.may_go_on.set()
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(InvalidUsage, match="cannot listen at 127"),
    ):
        coordinator.run(at(other.getsockname()[1], tmp_path), Stop())
    assert taken_over == []


def test_one_whose_certificate_is_none_takes_nothing_over(
    taken_over: list[Successor], tmp_path: Path
) -> None:
    Successor.may_go_on.set()
    pem = tmp_path / "none.pem"
    pem.write_text("nothing")
    service = at(free_port(), tmp_path, certificate=str(pem), key=str(pem))
    with pytest.raises(InvalidUsage, match="expected a certificate and its key"):
        coordinator.run(service, Stop())
    assert taken_over == []


def answer(port: int, path: str) -> tuple[int, object]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def test_while_it_takes_over_it_listens_and_is_not_ready(
    taken_over: list[Successor], tmp_path: Path
) -> None:
    port, stopping = free_port(), Stop()
    running = threading.Thread(
        target=coordinator.run, args=(at(port, tmp_path), stopping), daemon=True
    )
    running.start()
    eventually(lambda: bool(taken_over))
    client = Client(f"http://127.0.0.1:{port}")
    starting = "the coordinator is starting"
    assert answer(port, "/healthz")[0] == 200, "a restart would only delay it"
    assert answer(port, "/readyz") == (503, {"ready": False, "why": starting})
    assert answer(port, "/metrics")[0] == 200
    assert answer(port, "/status") == (503, {"error": starting})
    assert not client.is_ready()
    with pytest.raises(Determinate, match=starting):
        client.run("SELECT 1;" * 20_000)
    Successor.may_go_on.set()
    eventually(client.is_ready)
    assert client.run("SELECT 1")[0].tag == "SELECT 0"
    stopping.set()
    running.join(30)
    assert not running.is_alive()
