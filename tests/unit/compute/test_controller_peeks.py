"""A controller asks replicas over topics in memory."""

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from streams.compute import controller as controllers
from streams.compute.controller import Controller, command_topic, response_topic
from streams.compute.peeks import CancelPeek, PeekRows
from streams.compute.protocol import Alive, Command, CreateInstance
from streams.compute.writer import CommandWriter, ResponseWriter
from streams.errors import Determinate
from streams.kafka.log import Logs
from tests.support.peeking import INSTANCE, NAMESPACE, Peeking, peek, rows_of


class Asked(Controller):
    """A controller that a thread polls."""

    def __init__(self, logs: Logs) -> None:
        numbers = itertools.count()
        settings = CreateInstance(NAMESPACE, 2)
        super().__init__(logs, settings, INSTANCE, 1, lambda: f"n{next(numbers)}")
        self.start([], [])

    @contextmanager
    def polled(self) -> Iterator[None]:
        ended = threading.Event()

        def listen() -> None:
            while not ended.is_set():
                self.poll(20)

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


@pytest.fixture
def peeking() -> Iterator[Peeking]:
    peeking = Peeking()
    peeking.collection("u1")
    peeking.append("u1", 5, (1, "a", 2, 1))
    yield peeking
    peeking.close()


def test_replicas_answer_and_the_first_answer_counts(peeking: Peeking) -> None:
    controller = Asked(peeking.broker.logs)
    for name in ("r1", "r2"):
        peeking.replica(name)
    with controller.polled():
        results = [controller.peek(peek("u1", 3, f"p{number}")) for number in range(20)]
        for result in results:
            assert rows_of(result.result(20)) == [(1, "a")]
    controller.close()


def test_peeks_of_several_threads_go_together(
    monkeypatch: pytest.MonkeyPatch, peeking: Peeking
) -> None:
    controller = Asked(peeking.broker.logs)
    written: list[int] = []
    write, both_asked = controller._writer.write, threading.Barrier(3)

    def slow(commands: Sequence[Command]) -> None:
        written.extend([len(commands)] if commands else [])
        if commands and len(written) == 1:
            both_asked.wait(20)
            while len(controller._asked) < 2:
                time.sleep(0.01)
        write(commands)

    monkeypatch.setattr(controller._writer, "write", slow)
    peeking.replica()

    def ask(uuid: str) -> object:
        if uuid != "p0":
            both_asked.wait(20)
        return controller.peek(peek("u1", 3, uuid)).result(20)

    with controller.polled(), ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(ask, ["p0", "p1", "p2"]))
    assert all(isinstance(answer, PeekRows) for answer in answers)
    assert written[:2] == [1, 2]
    controller.close()


def test_a_replica_that_starts_later_answers(peeking: Peeking) -> None:
    controller = Asked(peeking.broker.logs)
    dead = peeking.replica("r1")
    dead.close()
    peeking.loops.remove(dead)
    result = controller.peek(peek("u1", 3))
    loop = peeking.replica("r2")
    with controller.polled():
        loop._writer.write("n0", [Alive()])
        assert rows_of(result.result(20)) == [(1, "a")]
    controller.close()


def test_an_open_peek_is_sent_again_in_the_next_iteration(peeking: Peeking) -> None:
    controller = Asked(peeking.broker.logs)
    peeking.replica()
    waiting = controller.peek(peek("u1", 6))
    controller._begin_reduced()
    with controller.polled():
        assert not waiting.done()
        peeking.append("u1", 7)
        assert rows_of(waiting.result(20)) == [(1, "a")]
    controller.close()


def test_many_peeks_begin_an_iteration_and_lengthen_no_history(
    monkeypatch: pytest.MonkeyPatch, peeking: Peeking
) -> None:
    monkeypatch.setattr(controllers, "MOST_PASSING", 10)
    controller = Asked(peeking.broker.logs)
    peeking.replica()
    history = list(controller._history)
    with controller.polled():
        for number in range(35):
            controller.peek(peek("u1", 3, f"p{number}")).result(20)
    assert controller._history == history
    low, end = peeking.broker.logs.bounds(command_topic(NAMESPACE, INSTANCE))
    assert end - low < 2 * (10 + len(history) + 3)
    controller.close()


def test_canceled_and_closed(peeking: Peeking) -> None:
    controller = Asked(peeking.broker.logs)
    waiting, left = controller.peek(peek("u1", 6, "p")), controller.peek(peek("u1", 6, "q"))
    controller.cancel_peek("p")
    controller.cancel_peek("p")
    peeking.replica()
    peeking.append("u1", 7)
    with controller.polled():
        pass
    assert not waiting.done()
    controller.close()
    with pytest.raises(Determinate, match="controller has ended"):
        left.result(0)


def test_what_cannot_be_sent_is_not_open(
    monkeypatch: pytest.MonkeyPatch, peeking: Peeking
) -> None:
    controller = Asked(peeking.broker.logs)

    def refuse(_: object) -> None:
        raise Determinate("no broker")

    with monkeypatch.context() as patch:
        patch.setattr(controller._writer, "write", refuse)
        with pytest.raises(Determinate, match="no broker"):
            controller.peek(peek("u1", 3)).result(0)
    assert not controller._peeks.peeks
    peeking.replica()
    with controller.polled():
        assert isinstance(controller.peek(peek("u1", 3)).result(20), PeekRows)
    controller.close()


def test_what_could_not_be_sent_is_not_sent_after_it_was_canceled(
    monkeypatch: pytest.MonkeyPatch, peeking: Peeking
) -> None:
    sent: list[Command] = []

    def refuse(_: CommandWriter, commands: Sequence[Command]) -> None:
        if commands:
            raise Determinate("refused")

    controller = Asked(peeking.broker.logs)
    controller.peek(peek("u1", 3, "p"))
    responses = response_topic(NAMESPACE, INSTANCE)
    ResponseWriter(peeking.broker.logs, responses, "r1-x").write("n0", [Alive()])
    with monkeypatch.context() as patch:
        patch.setattr(CommandWriter, "write", refuse)
        with pytest.raises(Determinate):
            controller.poll(0)
    monkeypatch.setattr(CommandWriter, "write", lambda _, commands: sent.extend(commands))
    controller.cancel_peek("p")
    controller.poll(0)
    assert sent == [CancelPeek("p")]
    controller.close()
