"""The embedded broker comes back as services do, and is given up as they are."""

import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from streams.app.broker_supervisor import BrokerKeeper
from streams.app.restart_policy import Excuse, none
from streams.errors import Determinate
from streams.kafka.embedded import EmbeddedBroker
from tests.support.processes import eventually

RUNS = None
"""A life of the broker that ends by `stop` alone."""


Life = int | str | OSError | None


class Scripted:
    """A broker whose lives are a script: each an exit code, an error of its start, or RUNS."""

    log_file = Path("broker.log")

    def __init__(self, lives: Sequence[Life], ports: Sequence[int] = (1,)) -> None:
        self.lives, self.ports = list(lives), list(ports)
        self.starts = 0
        self.stopped = threading.Event()
        self.life: Life = 0

    def start(self) -> str:
        self.life = self.lives.pop(0)
        self.starts += 1
        if isinstance(self.life, str):
            raise Determinate(self.life)
        if isinstance(self.life, OSError):
            raise self.life
        return self.bootstrap

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.ports.pop(0) if len(self.ports) > 1 else self.ports[0]}"

    def wait(self) -> int:
        if isinstance(self.life, int):
            return self.life
        self.stopped.wait()
        return 0

    def said(self) -> str:
        return "INFO started\nerror: the disk is on fire\n"

    def stop(self) -> None:
        self.stopped.set()


def keeper(script: Scripted, excuse: Excuse = none) -> BrokerKeeper:
    return BrokerKeeper(cast("EmbeddedBroker", script), excuse)


def test_a_broker_that_ends_is_started_again_with_the_reason_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = Scripted([3, -signal.SIGKILL, RUNS])
    supervisor = keeper(script)
    assert supervisor.start() == "127.0.0.1:1"
    eventually(lambda: script.starts == 3)
    supervisor.stop()
    assert supervisor.reason == ""
    messages = [record.getMessage() for record in caplog.records]
    tail = "the disk is on fire (log: broker.log); restarting"
    assert messages == [
        f"broker ended with exit code 3: {tail}",
        f"broker was ended by signal SIGKILL: {tail}",
    ]


@pytest.mark.parametrize(
    ("lives", "why"),
    [
        ([3, 3, 3], "ended with exit code 3: the disk is on fire"),
        ([3, "no room", "no room", "no room"], "ended with exit code 1: no room"),
    ],
)
def test_a_broker_that_ends_three_times_alike_is_given_up(lives: list[Life], why: str) -> None:
    script = Scripted(lives)
    supervisor = keeper(script)
    supervisor.start()
    eventually(lambda: bool(supervisor.reason))
    assert supervisor.reason == f"broker {why} (log: broker.log), 3 times in a row; giving up"
    supervisor.stop()


def test_a_broker_without_room_comes_back_when_there_is_some(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = Scripted([3, *["No space left on device"] * 4, OSError("no room"), RUNS])
    supervisor = keeper(script, lambda end: "no room on /x" if "No space" in end.error else "")
    supervisor.start()
    eventually(lambda: script.starts == 7)
    assert supervisor.reason == ""
    supervisor.stop()
    messages = [record.getMessage() for record in caplog.records]
    assert sum("no room on /x; restarting until" in message for message in messages) == 1


def test_a_broker_whose_port_was_taken_is_given_up() -> None:
    script = Scripted([3, RUNS, RUNS, RUNS], ports=[1, 2])
    supervisor = keeper(script)
    supervisor.start()
    eventually(lambda: bool(supervisor.reason))
    assert "its clients look for it at 127.0.0.1:1: that port is taken" in supervisor.reason
    supervisor.stop()
