"""What was answered, as the responses say, and what is done with what comes."""

import contextlib
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import codec
from streams.ids import CapabilityId, CollectionId, Offset
from streams.progress import EMPTY, frontier
from streams.storage.capabilities import ReadCapability, WriteCapability
from streams.storage.commands import wire
from streams.storage.commands.answering import NAMED
from streams.storage.commands.ledger import (
    BLOCK,
    REMEMBERED,
    Answered,
    Ledger,
    Report,
    read_answer,
    sort,
    waves,
)
from streams.storage.commands.service import BATCH
from streams.storage.window import KEPT, WINDOW

HERE = "topic"


def answered(command: str, offset: int, checksum: int = 7, origin: str = HERE) -> Answered:
    return Answered(command, origin, Offset(offset), checksum)


def heartbeat(id_: str, offset: int, checksum: int = 7, of: str = "t1") -> wire.Request:
    held = ReadCapability(CollectionId(of), frontier(0), CapabilityId("r"))
    return wire.Request(id_, Offset(offset), checksum, wire.Heartbeat(held))


def test_reports_go_along_with_what_is_asked_for() -> None:
    report = Report(Offset(1), 0, wire.Outcome(status=wire.Status.REPEATED))
    first, second = about(create("a"), 0), about(update("a"), 2)
    assert waves([first, report, second]) == [[first, report], [second]]
    assert waves([report]) == [[report]]


def test_the_bound_that_makes_a_zombie_harmless_holds() -> None:
    services = 3  # in the middle of a batch at once
    assert KEPT - services * NAMED * BATCH > WINDOW


def test_the_position_is_behind_the_last_answer() -> None:
    ledger = Ledger(HERE).answered([answered("a", 3), answered("", 4)])
    assert ledger.position == 5
    assert ledger.find("a") == 7
    assert ledger.find("") is None
    assert not ledger.is_overtaken(answered("b", 4))
    assert ledger.is_overtaken(answered("b", 5))


def test_a_topic_made_anew_begins_anew_and_ids_are_remembered() -> None:
    ledger = Ledger(HERE).answered([answered("a", 300, origin="the former")])
    assert ledger.position == 0
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
    told = [each.outcome for each in done if isinstance(each, Report)]
    assert [each.status.value for each in told] == [
        "REPEATED",
        "REPEATED",
        "MALFORMED",
        "MALFORMED",
    ]
    assert [each.code for each in told] == ["", "", "ReusedId", "ReusedId"]


def test_ids_are_remembered_for_so_many_records_and_not_for_ever() -> None:
    ledger = Ledger(HERE).answered([answered("first", 0)])
    for start in range(1, REMEMBERED, BLOCK // 2):
        ledger = ledger.answered(answered(f"{n}", n) for n in range(start, start + BLOCK // 2))
    assert ledger.find("first") == 7
    for start in range(REMEMBERED, REMEMBERED + 2 * BLOCK, BLOCK):
        ledger = ledger.answered(answered(f"{n}", n) for n in range(start, start + BLOCK))
    assert ledger.find("first") is None
    assert ledger.find(f"{2 * BLOCK + 1}") == 7
    assert sum(len(each) for each in (*ledger.blocks, ledger.newest)) <= REMEMBERED + 2 * BLOCK


@given(st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=4)))
def test_how_answers_are_batched_does_not_matter(batches: list[list[tuple[str, int]]]) -> None:
    answers = [
        [answered(id_, n, checksum) for n, (id_, checksum) in enumerate(batch)]
        for batch in batches
    ]
    one = Ledger(HERE).answered(each for batch in answers for each in batch)
    many = Ledger(HERE)
    for batch in answers:
        many = many.answered(batch)
    assert one == many


def about(command: wire.Command, offset: int) -> wire.Request:
    return wire.Request(f"c{offset}", Offset(offset), 0, command)


def create(id_: str) -> wire.Command:
    return wire.Create(CollectionId(id_), "{}", 0, id_, None, is_critical=False)


def drop(id_: str, *, whole: bool = True) -> wire.Command:
    held = ReadCapability(CollectionId(id_), frontier(0))
    return wire.Drop(CollectionId(id_), held, whole)


def update(*ids: str) -> wire.UpdateAndDowngrade:
    shares = tuple(
        wire.Share(WriteCapability(CollectionId(each), frontier(0)), None, (), frontier(1))
        for each in ids
    )
    return wire.UpdateAndDowngrade(shares, checks_counts=False)


def seal(id_: str) -> wire.Command:
    share = wire.Share(WriteCapability(CollectionId(id_), frontier(0)), None, (), EMPTY)
    return wire.UpdateAndDowngrade((share,), checks_counts=False)


def subscribe(id_: str) -> wire.Command:
    return wire.SubscribeAt(ReadCapability(CollectionId(id_), frontier(0)), None, None, ())


def cut(*commands: wire.Command) -> list[int]:
    requests = [about(each, number) for number, each in enumerate(commands)]
    made = waves(requests)
    assert [each for wave in made for each in wave] == list(requests)
    return [len(wave) for wave in made]


def test_what_does_not_depend_on_one_another_goes_together() -> None:
    assert cut(update("a"), update("a", "b"), update("b")) == [3]
    assert cut(create("a"), create("b"), update("c")) == [3]
    assert cut() == []


def test_what_is_looked_up_waits_for_what_comes_before() -> None:
    assert cut(create("a"), update("a")) == [1, 1]
    assert cut(update("a"), drop("a"), create("a"), update("b")) == [1, 1, 2]
    assert cut(update("a"), subscribe("a"), update("a")) == [1, 2]
    assert cut(update("a", "b"), update("c"), subscribe("b")) == [2, 1]
    assert cut(update("a"), drop("a", whole=False), update("a")) == [1, 1, 1]
    assert cut(update("a"), replace(update("a"), checks_counts=True), update("a")) == [1, 1, 1]
    assert cut(update("a"), seal("a"), update("a"), update("b")) == [1, 1, 2]


def test_a_response_says_what_it_answers() -> None:
    outcome = wire.Outcome(status=wire.Status.DONE)
    value = wire.encode(wire.Response("c1", HERE, Offset(9), 77, outcome))
    assert read_answer(value) == Answered("c1", HERE, Offset(9), 77)


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
    held = {"collection": "t", "right": "READ", "frontier": 0, "name": "n", "token": ""}
    return codec.encode("command_heartbeat", {"id": id_, "capability": held})
