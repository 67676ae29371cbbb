"""What was answered, as the responses say, and what is done with what comes."""

import contextlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import codec
from streams.ids import CapabilityId, CollectionId, Offset
from streams.progress import frontier
from streams.storage.client.handles import ReadCapability
from streams.storage.commands import wire
from streams.storage.commands.dedup import (
    BLOCK,
    REMEMBERED,
    SPAN,
    AnsweredRecord,
    Ledger,
    Report,
    read_answer,
    sort,
)
from streams.storage.commands.dispatch import BATCH
from streams.storage.commands.executor import NAMED
from streams.storage.log.dedup_window import KEPT, WINDOW

HERE = "topic"


def answered(
    command: str, offset: int, checksum: int = 7, origin: str = HERE
) -> AnsweredRecord:
    return AnsweredRecord(command, origin, Offset(offset), checksum)


def heartbeat(id_: str, offset: int, checksum: int = 7, of: str = "t1") -> wire.Request:
    read = ReadCapability(CollectionId(of), frontier(0), CapabilityId("r"))
    return wire.Request(id_, Offset(offset), checksum, wire.Heartbeat(read))


def test_the_bound_that_makes_a_zombie_harmless_holds() -> None:
    services = 3  # in the middle of a batch at once
    assert KEPT - services * NAMED * BATCH > WINDOW


def test_what_was_answered_is_known_by_its_offset() -> None:
    """A command that waits for something is answered after others that came later."""
    ledger = Ledger(HERE).answered([answered("a", 3), answered("", 4), answered("b", 1)])
    assert (ledger.end, ledger.position) == (5, 0)
    assert [ledger.is_answered(Offset(n)) for n in range(6)] == [
        *(False, True, False),
        *(True, True, False),
    ]
    assert ledger.find("a") == 7
    assert ledger.find("") is None
    assert not ledger.is_overtaken(answered("b", 4))
    assert ledger.is_overtaken(answered("b", 2))
    assert ledger.is_overtaken(answered("b", 5))


def test_what_lies_too_far_before_the_newest_answer_was_answered() -> None:
    """None is begun that lies so far beyond one that is not answered."""
    ledger = Ledger(HERE).answered([answered("a", 0), answered("b", SPAN + 5)])
    assert ledger.position == 6
    assert len(ledger.recent) == 1
    assert ledger.is_answered(Offset(5))
    assert not ledger.is_answered(Offset(6))


def test_what_came_before_the_responses_that_are_left_counts_as_answered() -> None:
    ledger = Ledger(HERE, floor=Offset(7)).answered([answered("a", 7), answered("b", 9)])
    assert [ledger.is_answered(Offset(n)) for n in (6, 7, 8, 9)] == [True, True, False, True]


def test_a_topic_made_anew_begins_anew_and_ids_are_remembered() -> None:
    ledger = Ledger(HERE).answered([answered("a", 300, origin="the former")])
    assert ledger.end == 0
    assert ledger.find("a") == 7
    assert not ledger.is_overtaken(answered("b", 400, origin="the former"))


def test_a_copy_is_reported_and_another_command_of_the_id_is_a_mistake() -> None:
    ledger = Ledger(HERE).answered([answered("old", 0)])
    records = [
        heartbeat("old", 1),
        heartbeat("new", 2),
        heartbeat("new", 3),
        heartbeat("new", 4, checksum=8),
        heartbeat("old", 5, checksum=8),
    ]
    done = sort(ledger, records)
    assert done[1] is records[1]
    outcomes = [report.outcome for report in done if isinstance(report, Report)]
    assert [outcome.status.value for outcome in outcomes] == [
        "REPEATED",
        "REPEATED",
        "MALFORMED",
        "MALFORMED",
    ]
    assert [outcome.code for outcome in outcomes] == ["", "", "ReusedId", "ReusedId"]


def test_ids_are_remembered_for_so_many_records_and_not_for_ever() -> None:
    ledger = Ledger(HERE).answered([answered("first", 0)])
    for start in range(1, REMEMBERED, BLOCK // 2):
        ledger = ledger.answered(answered(f"{n}", n) for n in range(start, start + BLOCK // 2))
    assert ledger.find("first") == 7
    for start in range(REMEMBERED, REMEMBERED + 2 * BLOCK, BLOCK):
        ledger = ledger.answered(answered(f"{n}", n) for n in range(start, start + BLOCK))
    assert ledger.find("first") is None
    assert ledger.find(f"{2 * BLOCK + 1}") == 7
    assert (
        sum(len(block) for block in (*ledger.blocks, ledger.newest)) <= REMEMBERED + 2 * BLOCK
    )


@given(st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=4)))
def test_how_answers_are_batched_does_not_matter(batches: list[list[tuple[str, int]]]) -> None:
    answers = [
        [answered(id_, n, checksum) for n, (id_, checksum) in enumerate(batch)]
        for batch in batches
    ]
    one = Ledger(HERE).answered(answer for batch in answers for answer in batch)
    many = Ledger(HERE)
    for batch in answers:
        many = many.answered(batch)
    assert one == many


def test_a_response_says_what_it_answers() -> None:
    outcome = wire.Outcome(status=wire.Status.DONE)
    value = wire.encode(wire.Response("c1", HERE, Offset(9), 77, outcome))
    assert read_answer(value) == AnsweredRecord("c1", HERE, Offset(9), 77)


def test_anything_may_be_written_and_is_told_apart() -> None:
    for value in (b"", b"\xc3\x01", b"\xc3\x01" + bytes(8), value_of("x" * 101), value_of("")):
        with pytest.raises(wire.Malformed, match="offset 1"):
            wire.decode(Offset(1), value)
    assert wire.decode(Offset(1), value_of("x")).checksum == zlib.crc32(value_of("x"))


@given(st.binary(max_size=60), st.integers(0, 60), st.integers(0, 255))
def test_damaged_commands_are_commands_or_malformed(tail: bytes, at: int, byte: int) -> None:
    body = bytearray(value_of("x") + tail)
    body[at % len(body)] = byte
    with contextlib.suppress(wire.Malformed):  # and nothing else
        wire.decode(Offset(1), bytes(body))


def value_of(id_: str) -> bytes:
    capability = {"collection": "t", "right": "READ", "frontier": 0, "name": "n", "token": ""}
    return codec.encode("command_heartbeat", {"id": id_, "capability": capability})
