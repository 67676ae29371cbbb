"""Resident tasks in this process: two ends of a connection, and tasks that fail when told."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Literal

import pytest

from streams.replica.driver.batch_timings import Timings
from streams.replica.driver.micro_batch import LaneName
from streams.replica.driver.resident_steps import ResidentSteps, TaskTurn
from streams.replica.tasks import resident
from streams.replica.tasks.authenticated_frames import Door, Frames
from tests.support.sparkless import Replica

End = Literal["done", "failed", "late", "died", "never ran", "nonsense"]


@contextmanager
def listening(token: bytes = b"secret") -> Iterator[tuple[socket.socket, Door]]:
    """A listening socket, and the door to it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        yield listener, Door("127.0.0.1", listener.getsockname()[1], token)


@contextmanager
def pair() -> Iterator[tuple[Frames, Frames]]:
    """Two ends of a connection."""
    with listening() as (listener, door):
        one = socket.create_connection((door.host, door.port))
        other, _ = listener.accept()
        with Frames(one) as near, Frames(other) as far:
            yield near, far


@contextmanager
def in_thread(work: Callable[[], object]) -> Iterator[threading.Thread]:
    """Run something beside the block; it has ended when the block has."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield thread
    thread.join(10)
    assert not thread.is_alive()


@dataclass
class FakeTask:
    """The connection of a task that runs in this process and ends as it is told."""

    state: str
    end: End = "done"
    wanted: resident.ResidentStep | None = None

    def send(self, body: bytes, _: float) -> None:
        self.wanted = resident.ResidentStep(**json.loads(body))

    def receive(self, _: int, __: float | None = None) -> bytes | None:
        assert self.wanted is not None
        if self.end == "never ran":
            raise ConnectionResetError("the connection is reset")
        answer = resident.answer(self.state, self.wanted)
        match self.end:
            case "failed":
                return b"\1Traceback (most recent call last):\nOSError: no"
            case "late":
                raise TimeoutError("no answer in time")
            case "died":
                return None
            case "nonsense":
                return b"\0nonsense"
            case _:
                return answer


@dataclass
class ResidentReplica:
    """A replica without Spark that has a resident task."""

    replica: Replica
    monkeypatch: pytest.MonkeyPatch
    turn: TaskTurn = field(default_factory=TaskTurn)
    lanes: list[LaneName] = field(default_factory=list)
    """Of the micro-batches that the task has run to their end."""

    def __post_init__(self) -> None:
        self.monkeypatch.setattr(resident, "killed_after", lambda _: nullcontext())
        replica = self.replica
        self.steps = ResidentSteps(replica.scheduler, replica.committer, Timings(None))
        replica.scheduler.fast_path.connected = 1

    def step(self, end: End = "done") -> bool:
        """Let the task take a micro-batch, if there is one for it."""
        self.replica.sync()
        batch = self.steps.take(self.turn)
        if batch is None:
            return False
        self.steps.run(FakeTask(str(self.replica.state), end), batch)  # type: ignore[arg-type]
        if end == "done":
            self.lanes.append(batch.lane)
        return True

    def leave(self) -> None:
        """Let the task be gone."""
        self.steps.leave(self.turn)
