"""The loop of peeks of a replica over topics in memory."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from streams.compute.controller import command_topic, response_topic
from streams.compute.peeks import CancelPeek, PeekCanceled, PeekError, PeekResponse, PeekRows
from streams.compute.protocol import (
    AllowCompaction,
    AllowWrites,
    Command,
    CreateInstance,
    InitializationComplete,
    UpdateConfiguration,
)
from streams.compute.reader import ResponseReader
from streams.compute.writer import CommandWriter, ResponseWriter
from streams.errors import Determinate
from streams.ids import CollectionId
from streams.progress import EMPTY
from tests.support.peeking import INSTANCE, NAMESPACE, Peeking, peek, rows_of

ITERATION = (CreateInstance(NAMESPACE, 2), InitializationComplete(), AllowWrites())


class Asker:
    """Writes commands of one epoch, and reads the answers."""

    def __init__(self, peeking: Peeking) -> None:
        logs = peeking.broker.logs
        self.commands = CommandWriter(logs, command_topic(NAMESPACE, INSTANCE), 1)
        self.responses = ResponseReader(logs, response_topic(NAMESPACE, INSTANCE), "")

    def begin(self, nonce: str, *more: Command) -> None:
        self.responses.restart(nonce)
        self.commands.begin(nonce, (*ITERATION, *more))

    def answers(self, count: int, timeout_s: float = 20) -> dict[str, PeekResponse]:
        """So many answers, by their uuid; none may come twice."""
        got: dict[str, PeekResponse] = {}
        deadline = time.monotonic() + timeout_s
        while len(got) < count and time.monotonic() < deadline:
            for message in self.responses.poll(50):
                assert isinstance(message.response, PeekResponse)
                assert message.response.uuid not in got
                got[message.response.uuid] = message.response
        return got


@pytest.fixture
def peeking() -> Iterator[Peeking]:
    peeking = Peeking()
    yield peeking
    peeking.close()


def test_peeks_wait_read_and_are_canceled(peeking: Peeking) -> None:
    peeking.collection("u1")
    peeking.append("u1", 5, (1, "a", 2, 1), (2, "b", 3, 2), (1, "a", 4, -1))
    asker = Asker(peeking)
    peeking.replica()
    asker.begin("a", peek("u1", 3, "now"), peek("u1", 6, "later"), peek("u1", 6, "never"))
    assert rows_of(asker.answers(1)["now"].outcome) == [(1, "a"), (2, "b"), (2, "b")]
    asker.commands.write([CancelPeek("never"), peek("u9", 3, "nowhere")])
    answers = asker.answers(2)
    assert answers["never"].outcome == PeekCanceled()
    assert answers["nowhere"].outcome == PeekError("group u9: there is no topic sw.u9.log")
    peeking.append("u1", 7, (3, "c", 6, 1))
    assert rows_of(asker.answers(1)["later"].outcome) == [(2, "b"), (2, "b"), (3, "c")]


def test_failures_are_answers_and_stop_nothing(peeking: Peeking) -> None:
    peeking.collection("u1")
    peeking.append("u1", 5, (1, "a", 2, 1), wrong="bad")
    peeking.collection("u2")
    peeking.append("u2", 5, (1, "a", 2, 1))
    asker = Asker(peeking)
    loop = peeking.replica()
    wrong = replace(peek("u2", 3, "wrong"), plan="{}")
    asker.begin("a", peek("u1", 3, "bad"), wrong, peek("u2", 3, "good"))
    answers = asker.answers(3)
    assert answers["bad"].outcome == PeekError("bad")
    assert isinstance(answers["wrong"].outcome, PeekError)
    assert answers["good"].outcome == PeekRows(1, answers["good"].outcome.rows)  # type: ignore[union-attr]
    assert loop.broken is None


def test_the_controller_says_how_large_an_answer_may_be(peeking: Peeking) -> None:
    peeking.collection("u1")
    peeking.append("u1", 5, *((number, "a" * 99, 2, 1) for number in range(100)))
    asker = Asker(peeking)
    peeking.replica()
    asker.begin("a", UpdateConfiguration({"max_result_bytes": 4_096}), peek("u1", 3, "large"))
    outcome = asker.answers(1)["large"].outcome
    assert isinstance(outcome, PeekError)
    assert outcome.message.startswith("expected rows of at most 4096 bytes")
    refused = UpdateConfiguration({"max_result_bytes": 1 << 20, "heartbeat_ms": 0})
    asker.commands.write([refused, peek("u1", 3, "still")])
    assert isinstance(asker.answers(1)["still"].outcome, PeekError)
    asker.begin("b", peek("u1", 3, "later"))
    assert len(rows_of(asker.answers(1)["later"].outcome)) == 100


def test_a_replica_answers_nothing_from_before_its_start(peeking: Peeking) -> None:
    peeking.collection("u1")
    peeking.append("u1", 5, (1, "a", 2, 1))
    asker = Asker(peeking)
    asker.begin("a", peek("u1", 3, "old"))
    peeking.replica("r2")
    asker.commands.write([peek("u1", 3, "new")])
    assert asker.answers(2, timeout_s=2).keys() == {"new"}
    asker.commands.write([replace(peek("u1", 3, "old"), replica="r2")])
    assert asker.answers(1).keys() == {"old"}


def test_an_answer_that_is_refused_ends_the_loop(
    peeking: Peeking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process ends with it, and the next one is sent what is open."""

    def refuse(*_: object) -> None:
        raise Determinate("refused")

    peeking.collection("u1")
    peeking.append("u1", 5, (1, "a", 2, 1))
    asker, loop = Asker(peeking), peeking.replica()
    monkeypatch.setattr(ResponseWriter, "write", refuse)
    asker.begin("a", peek("u1", 3, "p"))
    deadline = time.monotonic() + 10
    while loop.broken is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert isinstance(loop.broken, Determinate)


def test_a_group_is_left_when_its_collection_is_dropped(peeking: Peeking) -> None:
    peeking.collection("u1")
    peeking.append("u1", 5, (1, "a", 2, 1))
    asker = Asker(peeking)
    loop = peeking.replica()
    asker.begin("a", peek("u1", 3, "p"))
    asker.answers(1)
    shards = loop._shards
    assert shards is not None
    assert shards.groups() == ("u1",)
    asker.commands.write([AllowCompaction(CollectionId("u1"), EMPTY)])
    deadline = time.monotonic() + 10
    while shards.groups() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert shards.groups() == ()
