"""Which consumer reads which log: nothing is missed or told twice while logs change hands."""

import random

import pytest

from streams.errors import InvalidUsage
from streams.ids import Offset, Topic
from streams.kafka.client.consumer_assignment import FEW, REST_S, Seat, Seats

LOG = Topic("log")
OTHERS = [Topic(f"other.{number}") for number in range(FEW + 1)]


def moves(seats: Seats) -> dict[Seat, list[tuple[Topic, Offset | None]]]:
    return {seat: list(seats.taken(seat)) for seat in Seat}


def filled() -> Seats:
    """Many logs, all idle."""
    seats = Seats()
    seats.add(dict.fromkeys(OTHERS, Offset(0)), 0.0)
    moves(seats)
    return seats


def test_the_first_logs_are_idle_for_no_fetch_is_under_way() -> None:
    seats = Seats()
    seats.add({LOG: Offset(3)}, 0.0)
    assert moves(seats) == {Seat.IDLE: [(LOG, 3)], Seat.BUSY: []}
    assert not seats.is_busy


def test_a_log_added_later_is_busy_until_nothing_has_come_for_long() -> None:
    seats = filled()
    assert [seats.is_moving] == [False]
    seats.add({LOG: Offset(3)}, 0.0)
    assert [seats.is_moving] == [True]
    assert moves(seats) == {Seat.IDLE: [], Seat.BUSY: [(LOG, 3)]}
    assert [seats.is_moving] == [False]
    assert seats.record(Seat.BUSY, LOG, 3, 1.0)
    seats.rest(REST_S)
    assert moves(seats) == {Seat.IDLE: [], Seat.BUSY: []}
    seats.rest(REST_S + 1)
    assert moves(seats) == {Seat.IDLE: [(LOG, 4)], Seat.BUSY: []}
    assert seats.is_busy, "both follow it until the idle one is known to"
    seats.rest(REST_S + 2)
    assert moves(seats) == {Seat.IDLE: [], Seat.BUSY: []}
    seats.reached_end(Seat.BUSY, LOG)
    assert moves(seats) == {Seat.IDLE: [], Seat.BUSY: []}
    seats.reached_end(Seat.IDLE, LOG)
    assert moves(seats) == {Seat.IDLE: [], Seat.BUSY: [(LOG, None)]}
    assert not seats.is_busy


def test_what_both_consumers_read_is_told_once() -> None:
    seats = filled()
    seats.add({LOG: Offset(3)}, 0.0)
    seats.rest(REST_S)
    moves(seats)
    assert seats.record(Seat.IDLE, LOG, 3, REST_S)
    assert not seats.record(Seat.BUSY, LOG, 3, REST_S)
    assert moves(seats)[Seat.BUSY] == [(LOG, None)]
    assert seats.next(LOG) == 4


def test_a_log_that_is_handed_over_stays_when_a_record_comes() -> None:
    seats = filled()
    seats.add({LOG: Offset(3)}, 0.0)
    seats.rest(REST_S)
    moves(seats)
    assert seats.record(Seat.BUSY, LOG, 3, REST_S)
    assert moves(seats) == {Seat.IDLE: [(LOG, None)], Seat.BUSY: []}
    assert seats.is_busy


def test_two_records_soon_after_each_other_make_a_log_of_many_busy() -> None:
    seats = filled()
    seats.add({LOG: Offset(0)}, 0.0)
    seats.rest(REST_S)
    seats.reached_end(Seat.IDLE, LOG)
    moves(seats)
    assert seats.record(Seat.IDLE, LOG, 0, 60.0)
    assert moves(seats) == {Seat.IDLE: [], Seat.BUSY: []}, "one record is no stream of them"
    assert seats.record(Seat.IDLE, LOG, 1, 60.0 + REST_S / 2)
    assert moves(seats) == {Seat.IDLE: [], Seat.BUSY: [(LOG, 2)]}
    assert seats.record(Seat.BUSY, LOG, 2, 63.0)
    assert moves(seats) == {Seat.IDLE: [(LOG, None)], Seat.BUSY: []}


def test_history_that_is_read_by_one_poll_makes_no_log_busy() -> None:
    seats = Seats()
    logs = [Topic(f"log.{number}") for number in range(10 * FEW)]
    seats.add(dict.fromkeys(logs, Offset(0)), 0.0)
    moves(seats)
    for topic in logs:
        for offset in range(20):
            assert seats.record(Seat.IDLE, topic, offset, 1.0)
    assert moves(seats) == {Seat.IDLE: [], Seat.BUSY: []}
    assert not seats.is_busy


def test_a_first_record_soon_after_it_was_added_makes_no_log_busy() -> None:
    """As when a coordinator begins to hold all it has opened: one record to each."""
    seats = filled()
    for topic in OTHERS:
        assert seats.record(Seat.IDLE, topic, 0, REST_S / 2)
    assert moves(seats) == {Seat.IDLE: [], Seat.BUSY: []}


def test_where_there_are_few_logs_the_idle_consumer_keeps_them() -> None:
    seats = Seats()
    seats.add({LOG: Offset(0)}, 0.0)
    moves(seats)
    for offset in range(10):
        assert seats.record(Seat.IDLE, LOG, offset, offset / 10)
    assert moves(seats) == {Seat.IDLE: [], Seat.BUSY: []}


def test_a_log_that_is_left_is_taken_from_whoever_reads_it() -> None:
    seats = filled()
    seats.add({LOG: Offset(3)}, 0.0)
    seats.rest(REST_S)
    moves(seats)
    seats.remove(LOG)
    seats.remove(LOG)
    assert moves(seats) == {Seat.IDLE: [(LOG, None)], Seat.BUSY: [(LOG, None)]}
    assert not seats.is_busy
    assert not seats.record(Seat.BUSY, LOG, 3, 9.0)
    seats.reached_end(Seat.IDLE, LOG)
    assert LOG not in seats.topics
    assert seats.next(LOG) is None


def test_no_log_is_followed_twice() -> None:
    seats = filled()
    with pytest.raises(InvalidUsage, match="already followed"):
        seats.add({LOG: Offset(0), OTHERS[0]: Offset(0)}, 0.0)
    assert LOG not in seats.topics


@pytest.mark.parametrize("seed", range(200))
def test_every_record_is_told_once_and_in_order(seed: int) -> None:
    """Consumers that fetch when they like, moves that are made late, writers at random."""
    chance = random.Random(seed)
    seats = filled()
    written, told, now = 0, list[int](), 0.0
    at: dict[Seat, int] = {}
    seats.add({LOG: Offset(0)}, now)
    for _ in range(400):
        now += chance.choice([0.0, 0.1, 1.0, REST_S])
        match chance.randrange(5):
            case 0:
                written += chance.randrange(3)
            case 1:
                seats.rest(now)
            case 2:
                for seat, wanted in moves(seats).items():
                    for topic, start in wanted:
                        if topic == LOG and start is None:
                            del at[seat]
                        elif topic == LOG and start is not None:
                            assert seat not in at
                            at[seat] = start
            case _:
                for seat in chance.sample(list(at), len(at)):
                    stop = chance.randint(at[seat], written)
                    told += [
                        n for n in range(at[seat], stop) if seats.record(seat, LOG, n, now)
                    ]
                    at[seat] = stop
                    if stop == written:
                        seats.reached_end(seat, LOG)
    assert told == list(range(len(told)))
    assert max(at.values(), default=0) <= len(told)
