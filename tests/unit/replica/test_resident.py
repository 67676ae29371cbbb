"""The connection of a resident task, and the task on it."""

import json
import multiprocessing
import os
import signal
import socket
import struct
import threading
import time
from contextlib import nullcontext

import pyarrow as pa
import pytest

from streams.errors import Indeterminate
from streams.ids import CollectionId
from streams.replica.tasks import resident, rounds
from streams.replica.tasks.authenticated_frames import Door, Frames
from streams.replica.tasks.exchange_blobs import Head, blobs, pack, peek, rows
from streams.replica.tasks.resident import ResidentStep
from tests.support.resident_tasks import in_thread, listening, pair

STEP = ResidentStep(step="steady-1", tasks=2, depth=2, limit_s=5.0)


def head(body: str, bucket: int = 0, level: int = 0) -> Head:
    return Head(
        kind="report", step="s", dataflow=CollectionId("u"), bucket=bucket, level=level,
        body=body,
    )  # fmt: skip


def test_a_task_that_knows_the_token_is_let_in() -> None:
    with listening() as (listener, door):
        far: list[Frames] = []
        with in_thread(lambda: far.append(door.connect())):
            near = Frames(listener.accept()[0])
            near.admit(door.token)
        with near, far[0]:
            far[0].send(b"hello", 1)
            assert near.receive(5, 1) == b"hello"
            far[0].send(b"", 1)
            assert near.receive(5, 1) == b""


def test_a_task_without_the_token_is_refused() -> None:
    with listening() as (listener, door):
        errors: list[BaseException] = []

        def connect() -> None:
            try:
                Door(door.host, door.port, b"other").connect()
            except OSError as error:
                errors.append(error)

        with (
            in_thread(connect),
            Frames(listener.accept()[0]) as near,
            pytest.raises(PermissionError),
        ):
            near.admit(door.token)
        assert errors


def test_a_task_leaves_a_driver_that_does_not_know_the_token() -> None:
    """Else whoever has the port after the driver could tell the task what to run."""
    with listening() as (listener, door):

        def pretend() -> None:
            with Frames(listener.accept()[0]) as near:
                near.send(bytes(32), 1)
                near.receive(64, 1)
                near.send(bytes(32), 1)

        with in_thread(pretend), pytest.raises(PermissionError):
            door.connect()


def test_the_token_is_not_sent_and_not_shown() -> None:
    with listening(b"a token of many bytes") as (listener, door):
        assert "token" not in repr(door)
        heard = bytearray()

        def listen() -> None:
            with Frames(listener.accept()[0]) as near:
                near.send(bytes(32), 1)
                heard.extend(near.receive(64, 1) or b"")

        with in_thread(listen), pytest.raises(OSError):  # noqa: PT011  any way to end
            door.connect()
        assert len(heard) == 64
        assert door.token not in heard


def test_a_frame_that_is_too_long_is_not_read() -> None:
    with pair() as (near, far):
        far.send(bytes(11), 1)
        with pytest.raises(ConnectionAbortedError):
            near.receive(10, 1)


def test_a_frame_that_never_ends_is_late() -> None:
    with pair() as (near, far):
        far._socket.sendall(struct.pack(">I", 5) + b"abc")
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            near.receive(10, 0.2)
        assert time.monotonic() - began < 2
        far.close()
    with pair() as (near, far):
        far._socket.sendall(struct.pack(">I", 5) + b"abc")
        far.close()
        with pytest.raises(ConnectionResetError):
            near.receive(10, 1)
    with pair() as (near, far):
        far._socket.sendall(struct.pack(">I", 5))
        far.close()
        with pytest.raises(ConnectionResetError):
            near.receive(10, 1)


def test_bytes_that_trickle_do_not_extend_the_limit() -> None:
    with pair() as (near, far):

        def trickle() -> None:
            far._socket.sendall(struct.pack(">I", 100))
            try:
                for _ in range(60):
                    far._socket.sendall(b".")
                    time.sleep(0.05)
            except OSError:
                pass

        with in_thread(trickle):
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                near.receive(100, 0.3)
            assert time.monotonic() - began < 2
            near.close()


def test_a_connection_says_whether_it_is_open() -> None:
    with pair() as (near, far):
        assert near.is_open()
        far.close()
        deadline = time.monotonic() + 5
        while near.is_open():
            assert time.monotonic() < deadline
        assert near.receive(10, 1) is None


def test_the_rounds_of_a_micro_batch_run_bucket_by_bucket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As by jobs: each stage has all that came to its bucket, and nothing else."""
    calls: list[object] = []

    def start(state: str, step: str, index: int) -> object:
        calls.append((state, step, index))
        return rows([(bucket, pack(head(f"{index}{bucket}"))) for bucket in (0, 1)])

    def advance(level: int, state: str, batches: object) -> object:
        came = list(blobs(batches))  # type: ignore[arg-type]
        bodies = [peek(blob).body for _, blob in came]
        calls.append((level, {bucket for bucket, _ in came}, bodies))
        return rows([(bucket, blob.to_pybytes()) for bucket, blob in came])

    monkeypatch.setattr(rounds, "start_round", start)
    monkeypatch.setattr(rounds, "advance_round", advance)
    monkeypatch.setattr(resident, "killed_after", lambda _: nullcontext())
    frame = resident.answer("state", STEP)
    assert sorted(answered.body for answered in resident.heads(frame)) == [
        "00",
        "01",
        "10",
        "11",
    ]
    assert calls == [
        ("state", "steady-1", 0),
        ("state", "steady-1", 1),
        *((level, {b}, [f"0{b}", f"1{b}"]) for level in (1, 2) for b in (0, 1)),
    ]


def test_a_micro_batch_that_fails_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> object:
        raise OSError("no broker")

    monkeypatch.setattr(rounds, "start_round", start)
    monkeypatch.setattr(resident, "killed_after", lambda _: nullcontext())
    with pytest.raises(Indeterminate, match="OSError: no broker"):
        resident.heads(resident.answer("state", STEP))


def test_an_answer_that_is_too_long_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "start_round", lambda *_: rows([(0, pack(head("x" * 500)))]))
    monkeypatch.setattr(resident, "killed_after", lambda _: nullcontext())
    monkeypatch.setattr(resident, "MOST_ANSWER", 300)
    with pytest.raises(Indeterminate, match="an answer of"):
        resident.heads(
            resident.answer("state", ResidentStep(step="s", tasks=1, depth=0, limit_s=1))
        )


def test_a_task_answers_until_the_driver_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        resident, "answer", lambda state, wanted: f"{state} {wanted.step}".encode()
    )
    with (
        listening() as (listener, door),
        in_thread(lambda: resident.serve(door, "state")),
        Frames(listener.accept()[0]) as near,
    ):
        near.admit(door.token)
        for _ in range(3):
            near.send(STEP.dumps(), 1)
            assert near.receive(100, 5) == b"state steady-1"


def test_a_task_ends_in_order_when_the_driver_has_left() -> None:
    """As one that starts while its replica stops does: nobody listens, or it is closed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        door = Door("127.0.0.1", listener.getsockname()[1], b"token")

        def leave() -> None:
            connected, _ = listener.accept()
            connected.close()

        leaving = threading.Thread(target=leave)
        leaving.start()
        resident.serve(door, "")
        leaving.join()
    resident.serve(door, "")


def test_nonsense_for_an_answer_is_an_error() -> None:
    for frame in (b"\0nonsense", b"\0"):
        with pytest.raises(pa.ArrowException):
            resident.heads(frame)


def busy(seconds: float, forever: bool) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a test of ours has a handler
    with resident.killed_after(seconds):
        while forever:
            pass
    time.sleep(2 * seconds)
    os._exit(7)


@pytest.mark.parametrize(("forever", "code"), [(True, -signal.SIGALRM), (False, 7)])
def test_the_kernel_ends_a_task_that_is_over_its_limit(forever: bool, code: int) -> None:
    process = multiprocessing.get_context("fork").Process(target=busy, args=(0.1, forever))
    process.start()
    process.join(10)
    assert process.exitcode == code


def test_what_is_asked_for_is_small() -> None:
    assert len(STEP.dumps()) < resident.MOST_REQUEST / 100
    assert ResidentStep(**json.loads(STEP.dumps())) == STEP


def test_the_socket_of_a_stranger_may_be_silent() -> None:
    with listening() as (listener, door), socket.create_connection((door.host, door.port)):
        near = Frames(listener.accept()[0])
        with near, pytest.MonkeyPatch.context() as patch:
            patch.setattr("streams.replica.tasks.authenticated_frames.HANDSHAKE_S", 0.1)
            with pytest.raises(TimeoutError):
                near.admit(door.token)
