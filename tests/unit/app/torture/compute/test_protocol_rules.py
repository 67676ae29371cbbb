"""What a replica says of peeks against the rules: each breach is named."""

from dataclasses import replace

import pytest

from streams.compute.peeks import (
    CancelPeek,
    Peek,
    PeekCanceled,
    PeekOutcome,
    PeekResponse,
    PeekRows,
    PeekTarget,
)
from streams.compute.protocol import (
    AllowWrites,
    Command,
    CommandMessage,
    CreateInstance,
    CreateTimely,
    InitializationComplete,
    ResponseMessage,
)
from streams.compute.subscribes import (
    AcknowledgeSubscribe,
    CancelSubscribe,
    DroppedAt,
    Subscribe,
    SubscribeBatch,
    SubscribeError,
    SubscribeInterrupted,
    SubscribeOutcome,
    SubscribeResponse,
)
from streams.ids import CollectionId, Timestamp
from streams.progress import EMPTY, frontier
from streams.torture.compute.protocol_rules import Breach, check_commands, check_responses

BEGIN = (CreateInstance("sw", 2), InitializationComplete(), AllowWrites())
ROWS = PeekRows(0, b"")


def peek(uuid: str, replica: str = "") -> Peek:
    return Peek(
        uuid=uuid,
        target=PeekTarget(CollectionId("u1"), "u1"),
        time=Timestamp(3),
        plan="",
        project=(0,),
        most_bytes=1,
        replica=replica,
    )


def said(nonce: str, *commands: Command, first: int = 0) -> list[CommandMessage]:
    whole = (CreateTimely(nonce, 1), *commands)
    return [
        CommandMessage(nonce, number, command) for number, command in enumerate(whole, first)
    ]


def answer(
    number: int, uuid: str, outcome: PeekOutcome = ROWS, nonce: str = "a", replica: str = "r1-x"
) -> ResponseMessage:
    return ResponseMessage(nonce, replica, number, PeekResponse(uuid, outcome))


COMMANDS = said("a", *BEGIN, peek("p"), peek("q", "r2"), CancelPeek("q"))


def check(*answers: ResponseMessage) -> None:
    check_responses(answers, check_commands(COMMANDS))


def test_each_process_answers_once() -> None:
    check(
        answer(0, "p"),
        answer(0, "p"),  # a copy of the record
        answer(0, "p", replica="r2-y"),
        answer(1, "q", PeekCanceled(), replica="r2-y"),
    )
    with pytest.raises(Breach, match="a peek has one answer"):
        check(answer(0, "p"), answer(1, "p"))


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        (answer(0, "other"), "an answer is to a peek of the iteration"),
        (answer(0, "q"), "an answer is to a peek of the iteration"),
        (answer(0, "p", PeekCanceled()), "PeekCanceled answers a canceled peek"),
    ],
    ids=["never-asked", "of-another-replica", "canceled-by-itself"],
)
def test_answers_that_may_not_be(wrong: ResponseMessage, rule: str) -> None:
    with pytest.raises(Breach, match=rule):
        check(wrong)


def test_a_copy_is_answered_as_a_copy() -> None:
    copy = answer(0, "p")
    assert isinstance(copy.response, PeekResponse)
    with pytest.raises(Breach, match="an answer is to a peek of the iteration"):
        check(replace(copy, response=replace(copy.response, is_copy=True)))


@pytest.mark.parametrize(
    ("commands", "rule"),
    [
        (
            said("a", CreateInstance("sw", 2), peek("p")),
            "a peek is not in the reduced history",
        ),
        (
            said("a", *BEGIN, peek("p"), CancelPeek("p"), peek("p")),
            "a canceled peek is not sent again",
        ),
        (
            [*COMMANDS, *said("b", *BEGIN, peek("q"), first=len(COMMANDS))],
            "a canceled peek is not sent again",
        ),
        (
            said("a", *BEGIN, peek("p"), replace(peek("p", "r1"), time=Timestamp(4))),
            "a uuid is of one peek",
        ),
    ],
    ids=["in-the-history", "sent-again", "in-the-next-iteration", "another-peek"],
)
def test_commands_that_may_not_be(commands: list[CommandMessage], rule: str) -> None:
    with pytest.raises(Breach, match=rule):
        check_commands(commands)


SUBSCRIBE = Subscribe(
    uuid="s",
    collection=CollectionId("u1"),
    group="u1",
    as_of=Timestamp(3),
    plan="",
    project=(0,),
)
REST = replace(SUBSCRIBE, as_of=Timestamp(9), snapshot=False)
TAKEN = AcknowledgeSubscribe("s", Timestamp(7))


def batch(lower: int, upper: int | None) -> SubscribeBatch:
    return SubscribeBatch(Timestamp(lower), EMPTY if upper is None else frontier(upper), 0, b"")


def delivered(commands: list[Command], *outcomes: SubscribeOutcome) -> None:
    iterations = check_commands(said("a", *BEGIN, *commands))
    messages = [
        ResponseMessage("a", "r1-x", number, SubscribeResponse("s", outcome))
        for number, outcome in enumerate(outcomes)
    ]
    check_responses(messages, iterations)


@pytest.mark.parametrize(
    ("commands", "outcomes"),
    [
        ([SUBSCRIBE], [batch(3, 4), batch(4, 6), batch(6, None)]),
        ([SUBSCRIBE, TAKEN], [batch(3, 4), batch(6, 8)]),
        ([SUBSCRIBE, REST], [batch(3, 4), SubscribeError(Timestamp(4), ""), batch(10, 12)]),
        (
            [SUBSCRIBE, REST],
            [batch(3, 10), SubscribeInterrupted(Timestamp(10), ""), batch(10, 12)],
        ),
        ([SUBSCRIBE, CancelSubscribe("s")], [batch(3, 4), DroppedAt(Timestamp(4))]),
    ],
    ids=["contiguous", "taken", "again", "interrupted", "canceled"],
)
def test_intervals_that_may_be(
    commands: list[Command], outcomes: list[SubscribeOutcome]
) -> None:
    delivered(commands, *outcomes)


@pytest.mark.parametrize(
    ("commands", "outcomes", "rule"),
    [
        ([], [batch(3, 4)], "what is delivered was asked"),
        ([SUBSCRIBE], [batch(4, 5)], "intervals have no gap"),
        ([SUBSCRIBE, TAKEN], [batch(3, 4), batch(8, 9)], "intervals have no gap"),
        ([SUBSCRIBE], [batch(3, 5), batch(3, 5)], "intervals move forward"),
        ([SUBSCRIBE], [batch(3, None), batch(4, 5)], "the end is the last"),
        (
            [SUBSCRIBE],
            [batch(3, 10), SubscribeInterrupted(Timestamp(10), ""), batch(10, 12)],
            "the end is the last",
        ),
        ([SUBSCRIBE], [DroppedAt(Timestamp(3))], "DroppedAt answers a canceled subscribe"),
    ],
    ids=[
        "not-asked",
        "gap",
        "gap-behind-what-was-taken",
        "twice",
        "behind-the-end",
        "interrupted",
        "dropped",
    ],
)
def test_intervals_that_may_not_be(
    commands: list[Command], outcomes: list[SubscribeOutcome], rule: str
) -> None:
    with pytest.raises(Breach, match=rule):
        delivered(commands, *outcomes)


def test_a_peek_is_of_one_controller() -> None:
    successor = said("b", *BEGIN, peek("p"))
    successor[0] = replace(successor[0], command=CreateTimely("b", 2))
    with pytest.raises(Breach, match="a peek is of one controller"):
        check_commands([*COMMANDS, *successor])
