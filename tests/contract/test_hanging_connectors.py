"""A connector that hangs, over every transport: it is reported, and holds no task for ever."""

import itertools
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors import answer_timeouts
from connectors.answer_timeouts import Patience
from connectors.driver import Driver, Stream, Transport
from connectors.protocol import messages
from connectors.protocol.messages import Extensions, Tuples
from connectors.runtime.runner import Runner, Status, can_pass
from connectors.runtime.task import Materialization
from connectors.transport.errors import ConnectorFailed
from connectors.transport.local import Local
from connectors.transport.rpc import Rpc, server
from connectors.transport.stdio import Command
from schemas import materialize_pb2 as wire
from tests.contract.test_transports import COMMAND, ROOT, one_transaction
from tests.support import file_connector
from tests.support.collections import Collections
from tests.support.file_connector import FileConnector
from tests.support.materialization_tasks import task

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(params=["local", "stdio", "grpc"])
def transport(request: Any, monkeypatch: Any) -> Iterator[Transport]:
    monkeypatch.chdir(ROOT)
    for module in ("connectors.transport.local", "connectors.transport.stdio"):
        monkeypatch.setattr(f"{module}.GRACE_S", 0.5)
    match request.param:
        case "local":
            yield Local(FileConnector())
        case "stdio":
            yield Command(COMMAND, os.environ)
        case "grpc":
            running, port = server(FileConnector(), "127.0.0.1:0")
            rpc = Rpc(f"127.0.0.1:{port}")
            yield rpc
            rpc.close()
            release()
            running.stop(0).wait()
        case _:
            raise AssertionError(request.param)
    release()


def release() -> None:
    """Have all that hangs in this process go on, and what comes after it hang again."""
    file_connector.RELEASED.set()
    file_connector.RELEASED = threading.Event()


def hanging(path: Path, at: str) -> Any:
    spec = task(endpoint={"path": str(path)})
    Driver(Local(FileConnector())).apply(wire.ApplyRequest(materialization=spec, version="v1"))
    return task(endpoint={"path": str(path), "fail": f"hang at {at}"})


class Clock:
    """It stands still until it is `fast`: each look is then 1,000 s later."""

    def __init__(self) -> None:
        self.now, self.fast = 0.0, False

    def now_s(self) -> float:
        self.now += 1_000 * self.fast
        return self.now

    @property
    def patience(self) -> Patience:
        return Patience(answer_s=1_500, now_s=self.now_s)


@pytest.mark.parametrize("at", ["flush", "commit"])
def test_an_answer_is_waited_for_so_long(transport: Transport, tmp_path: Path, at: str) -> None:
    message = messages.Open(materialization=hanging(tmp_path / "tables", at), version="v1")
    clock = Clock()
    with Driver(transport, clock.patience).open(message, Extensions()) as stream:
        clock.fast = True
        with pytest.raises(ConnectorFailed, match=r"no answer of .* for 1500 s") as caught:
            one_transaction(stream)
    assert can_pass(caught.value)


def test_a_call_is_waited_for_so_long(transport: Transport, tmp_path: Path) -> None:
    spec, clock = hanging(tmp_path / "tables", "apply"), Clock()
    clock.fast = True
    driver = Driver(transport, clock.patience)
    with pytest.raises(ConnectorFailed, match=r"no answer .* for 1500 s: the c") as caught:
        driver.apply(wire.ApplyRequest(materialization=spec, version="v1"))
    assert can_pass(caught.value)


def test_a_connector_that_reads_nothing_takes_no_more(
    transport: Transport, tmp_path: Path
) -> None:
    message = messages.Open(materialization=hanging(tmp_path / "tables", "load"), version="v1")
    clock = Clock()

    def send_for_ever(stream: Stream) -> None:
        for first in itertools.count(step=5_000):
            keys = Tuples.of([(key,) for key in range(first, first + 5_000)])
            stream.send(messages.Load(0, keys))

    with Driver(transport, clock.patience).open(message, Extensions()) as stream:
        clock.fast = True
        with pytest.raises(ConnectorFailed, match="reads no requests for 1500 s") as caught:
            send_for_ever(stream)
    assert can_pass(caught.value)


def test_a_wait_is_reported_and_a_stop_ends_it(transport: Transport, tmp_path: Path) -> None:
    message = messages.Open(
        materialization=hanging(tmp_path / "tables", "commit"), version="v1"
    )
    clock, stopping, reported = Clock(), threading.Event(), list[str]()

    def waits(text: str) -> None:
        reported.append(text)
        stopping.set()

    patience = Patience(now_s=clock.now_s, is_stopping=stopping.is_set, waits=waits)
    with Driver(transport, patience).open(message, Extensions()) as stream:
        clock.fast = True
        with pytest.raises(ConnectorFailed, match="for 2000 s, and the task is to stop"):
            one_transaction(stream)
    assert [text[-11:] for text in reported] == [" for 1000 s", ""]


COLUMNS = (("id", "BIGINT"), ("name", "VARCHAR"))


class Running:
    """A task whose connector hangs in its commit."""

    def __init__(self, path: Path) -> None:
        self.collections = Collections()
        self.collections.create("u1", COLUMNS, keys=("id",))
        self.collections.append("u1", 12, [(1, "a", 11, 1)])
        self.statuses = list[Status]()
        self.stopping = threading.Event()
        config = {"path": str(path), "fail": "hang at commit"}
        bindings = [{"collection": "u1", "resource": {"table": "t"}}]
        self.task = Materialization.model_validate(
            {"task": "shop", "connector": "./file", "config": config, "bindings": bindings}
        )
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        Runner(
            self.task,
            Driver(Local(FileConnector())),
            self.collections.client(),
            now_ms=lambda: int(time.monotonic() * 1000),
            stopping=self.stopping,
            report=self.statuses.append,
        ).run()

    def await_state(self, state: str, message: str = "") -> None:
        deadline = time.monotonic() + 30
        while not any(
            status.state == state and message in status.message for status in self.statuses
        ):
            assert time.monotonic() < deadline, [status.state for status in self.statuses]
            time.sleep(0.02)

    def close(self) -> None:
        self.stopping.set()
        release()
        self.thread.join()
        self.collections.close()


@pytest.fixture
def running(tmp_path: Path, monkeypatch: Any) -> Iterator[Running]:
    monkeypatch.setattr(answer_timeouts, "REPORT_S", 0.3)
    monkeypatch.setattr(answer_timeouts, "STOP_S", 0.5)
    monkeypatch.setattr("connectors.transport.local.GRACE_S", 0.5)
    running_ = Running(tmp_path / "tables")
    yield running_
    running_.close()


def test_a_task_that_waits_is_stalled_until_there_is_an_answer(running: Running) -> None:
    running.await_state("stalled", "no answer of the connector for")
    stalled = len(running.statuses)
    release()
    running.await_state("running")
    deadline = time.monotonic() + 30
    while running.statuses[-1].commits == 0:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert {status.state for status in running.statuses[stalled:]} <= {"running"}
    assert running.statuses[-1].message == ""


def test_a_task_that_waits_ends_when_it_is_to_stop(running: Running) -> None:
    running.await_state("stalled")
    running.stopping.set()
    running.thread.join(20)
    assert not running.thread.is_alive()
    assert "and the task is to stop" in running.statuses[-1].message
