"""Which consumer reads which log: nothing is missed or told twice while logs change hands."""

import random

import pytest

from streams.errors import InvalidUsage
from streams.ids import Offset, Topic
from streams.kafka.client.consumer_assignment import FEW, REST_S, ConsumerSlot, ConsumerSlots

LOG = Topic("log")
OTHERS = [Topic(f"other.{number}") for number in range(FEW + 1)]


def moves(slots: ConsumerSlots) -> dict[ConsumerSlot, list[tuple[Topic, Offset | None]]]:
    return {slot: list(slots.taken(slot)) for slot in ConsumerSlot}


def filled() -> ConsumerSlots:
    """Many logs, all idle."""
    slots = ConsumerSlots()
    slots.add(dict.fromkeys(OTHERS, Offset(0)), 0.0)
    moves(slots)
    return slots


def test_the_first_logs_are_idle_for_no_fetch_is_under_way() -> None:
    slots = ConsumerSlots()
    slots.add({LOG: Offset(3)}, 0.0)
    assert moves(slots) == {ConsumerSlot.IDLE: [(LOG, 3)], ConsumerSlot.BUSY: []}
    assert not slots.is_busy


def test_a_log_added_later_is_busy_until_nothing_has_come_for_long() -> None:
    slots = filled()
    assert [slots.is_moving] == [False]
    slots.add({LOG: Offset(3)}, 0.0)
    assert [slots.is_moving] == [True]
    assert moves(slots) == {ConsumerSlot.IDLE: [], ConsumerSlot.BUSY: [(LOG, 3)]}
    assert [slots.is_moving] == [False]
    assert slots.record(ConsumerSlot.BUSY, LOG, 3, 1.0)
    slots.rest(REST_S)
    assert moves(slots) == {ConsumerSlot.IDLE: [], ConsumerSlot.BUSY: []}
    slots.rest(REST_S + 1)
    assert moves(slots) == {ConsumerSlot.IDLE: [(LOG, 4)], ConsumerSlot.BUSY: []}
    assert slots.is_busy, "both follow it until the idle one is known to"
    slots.rest(REST_S + 2)
    assert moves(slots) == {ConsumerSlot.IDLE: [], ConsumerSlot.BUSY: []}
    slots.reached_end(ConsumerSlot.BUSY, LOG, 4)
    assert moves(slots) == {ConsumerSlot.IDLE: [], ConsumerSlot.BUSY: []}
    slots.reached_end(ConsumerSlot.IDLE, LOG, 4)
    assert moves(slots) == {ConsumerSlot.IDLE: [], ConsumerSlot.BUSY: [(LOG, None)]}
    assert not slots.is_busy


def test_what_both_consumers_read_is_told_once() -> None:
    slots = filled()
    slots.add({LOG: Offset(3)}, 0.0)
    slots.rest(REST_S)
    moves(slots)
    assert slots.record(ConsumerSlot.IDLE, LOG, 3, REST_S)
    assert not slots.record(ConsumerSlot.BUSY, LOG, 3, REST_S)
    assert moves(slots)[ConsumerSlot.BUSY] == [(LOG, None)]
    assert slots.next(LOG) == 4


def test_a_log_that_is_handed_over_stays_when_a_record_comes() -> None:
    slots = filled()
    slots.add({LOG: Offset(3)}, 0.0)
    slots.rest(REST_S)
    moves(slots)
    assert slots.record(ConsumerSlot.BUSY, LOG, 3, REST_S)
    assert moves(slots) == {ConsumerSlot.IDLE: [(LOG, None)], ConsumerSlot.BUSY: []}
    assert slots.is_busy


def test_two_records_soon_after_each_other_make_a_log_of_many_busy() -> None:
    slots = filled()
    slots.add({LOG: Offset(0)}, 0.0)
    slots.rest(REST_S)
    slots.reached_end(ConsumerSlot.IDLE, LOG, 4)
    moves(slots)
    assert slots.record(ConsumerSlot.IDLE, LOG, 0, 60.0)
    assert moves(slots) == {ConsumerSlot.IDLE: [], ConsumerSlot.BUSY: []}, (
        "one record is no stream of them"
    )
    assert slots.record(ConsumerSlot.IDLE, LOG, 1, 60.0 + REST_S / 2)
    assert moves(slots) == {ConsumerSlot.IDLE: [], ConsumerSlot.BUSY: [(LOG, 2)]}
    assert slots.record(ConsumerSlot.BUSY, LOG, 2, 63.0)
    assert moves(slots) == {ConsumerSlot.IDLE: [(LOG, None)], ConsumerSlot.BUSY: []}


def test_history_that_is_read_by_one_poll_makes_no_log_busy() -> None:
    slots = ConsumerSlots()
    logs = [Topic(f"log.{number}") for number in range(10 * FEW)]
    slots.add(dict.fromkeys(logs, Offset(0)), 0.0)
    moves(slots)
    for topic in logs:
        for offset in range(20):
            assert slots.record(ConsumerSlot.IDLE, topic, offset, 1.0)
    assert moves(slots) == {ConsumerSlot.IDLE: [], ConsumerSlot.BUSY: []}
    assert not slots.is_busy


def test_a_first_record_soon_after_it_was_added_makes_no_log_busy() -> None:
    """As when a coordinator begins to hold all it has opened: one record to each."""
    slots = filled()
    for topic in OTHERS:
        assert slots.record(ConsumerSlot.IDLE, topic, 0, REST_S / 2)
    assert moves(slots) == {ConsumerSlot.IDLE: [], ConsumerSlot.BUSY: []}


def test_where_there_are_few_logs_the_idle_consumer_keeps_them() -> None:
    slots = ConsumerSlots()
    slots.add({LOG: Offset(0)}, 0.0)
    moves(slots)
    for offset in range(10):
        assert slots.record(ConsumerSlot.IDLE, LOG, offset, offset / 10)
    assert moves(slots) == {ConsumerSlot.IDLE: [], ConsumerSlot.BUSY: []}


def test_of_few_logs_the_idle_consumer_gets_one_that_receives_records_too() -> None:
    """The busy one would fetch it twenty times a second for a record in each second."""
    slots = ConsumerSlots()
    slots.add({OTHERS[0]: Offset(0)}, 0.0)
    slots.add({LOG: Offset(0)}, 0.0)
    assert slots.readers(LOG) == {ConsumerSlot.BUSY}
    assert slots.record(ConsumerSlot.BUSY, LOG, 0, 0.9)
    slots.rest(1.0)
    moves(slots)
    assert slots.record(ConsumerSlot.BUSY, LOG, 1, 1.1)
    assert slots.readers(LOG) == set(ConsumerSlot)
    slots.reached_end(ConsumerSlot.IDLE, LOG, 2)
    assert moves(slots) == {ConsumerSlot.IDLE: [], ConsumerSlot.BUSY: [(LOG, None)]}
    assert not slots.is_busy
    slots.add(dict.fromkeys(OTHERS[1:], Offset(0)), 1.0)
    assert slots.record(ConsumerSlot.IDLE, LOG, 2, 2.0)
    assert slots.readers(LOG) == set(ConsumerSlot), "of many it is busy"


def test_a_log_that_is_left_is_taken_from_whoever_reads_it() -> None:
    slots = filled()
    slots.add({LOG: Offset(3)}, 0.0)
    slots.rest(REST_S)
    moves(slots)
    slots.remove(LOG)
    slots.remove(LOG)
    assert moves(slots) == {ConsumerSlot.IDLE: [(LOG, None)], ConsumerSlot.BUSY: [(LOG, None)]}
    assert not slots.is_busy
    assert not slots.record(ConsumerSlot.BUSY, LOG, 3, 9.0)
    slots.reached_end(ConsumerSlot.IDLE, LOG, 4)
    assert LOG not in slots.topics
    assert slots.next(LOG) is None


def test_no_log_is_followed_twice() -> None:
    slots = filled()
    with pytest.raises(InvalidUsage, match="already followed"):
        slots.add({LOG: Offset(0), OTHERS[0]: Offset(0)}, 0.0)
    assert LOG not in slots.topics


@pytest.mark.parametrize("seed", range(200))
def test_every_record_is_told_once_and_in_order(seed: int) -> None:
    """Consumers that fetch when they like, moves that are made late, writers at random."""
    chance = random.Random(seed)
    slots = filled() if seed % 2 else ConsumerSlots()
    written, offsets, now = 0, list[int](), 0.0
    at: dict[ConsumerSlot, int] = {}
    slots.add({LOG: Offset(0)}, now)
    for _ in range(400):
        now += chance.choice([0.0, 0.1, 1.0, REST_S])
        match chance.randrange(5):
            case 0:
                written += chance.randrange(3)
            case 1:
                slots.rest(now)
            case 2:
                for slot, target in moves(slots).items():
                    for topic, start in target:
                        if topic == LOG and start is None:
                            del at[slot]
                        elif topic == LOG and start is not None:
                            assert slot not in at
                            at[slot] = start
            case _:
                for slot in chance.sample(list(at), len(at)):
                    stop = chance.randint(at[slot], written)
                    offsets += [
                        n for n in range(at[slot], stop) if slots.record(slot, LOG, n, now)
                    ]
                    at[slot] = stop
                    if stop == written:
                        slots.reached_end(slot, LOG, stop)
    assert offsets == list(range(len(offsets)))
    assert max(at.values(), default=0) <= len(offsets)
    assert slots.places()[LOG] == len(offsets)


def test_marks_of_transactions_behind_the_last_record_are_read_too() -> None:
    slots = filled()
    slots.add({LOG: Offset(3)}, 0.0)
    assert slots.places()[LOG] == 3
    assert slots.record(ConsumerSlot.BUSY, LOG, 3, 1.0)
    assert slots.places()[LOG] == 4
    slots.reached_end(ConsumerSlot.BUSY, LOG, 6)
    assert slots.places()[LOG] == 6
    assert slots.record(ConsumerSlot.BUSY, LOG, 6, 2.0)
    assert slots.places()[LOG] == 7


def test_a_log_has_one_reader_or_two_while_it_moves() -> None:
    slots = filled()
    slots.add({LOG: Offset(3)}, 0.0)
    assert slots.readers(LOG) == {ConsumerSlot.BUSY}
    slots.rest(REST_S)
    assert slots.readers(LOG) == set(ConsumerSlot)
    slots.remove(LOG)
    assert slots.readers(LOG) == set()
