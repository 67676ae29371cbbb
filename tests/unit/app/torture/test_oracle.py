"""The judge: what may be is passed, and everything that may not be is named."""

from dataclasses import replace

from streams.torture.journal import (
    Answer,
    Entry,
    Event,
    Followed,
    ReadResult,
    Share,
    Wrong,
    Wrote,
)
from streams.torture.oracle import judge

A, B = ("w", 1), ("w", 2)
FIRST = Share("c", "cap", 0, 5, ((A, 1, 1), (B, 3, 1)))
SECOND = Share("c", "cap", 5, 9, ((("w", 3), 6, 1), (B, 7, -1)))
LAST = ReadResult("judge", "c", 8, None, ((A, 1), (("w", 3), 1)), is_last=True)
SOUND: list[Entry] = [
    Wrote("1", (FIRST,)),
    Answer("1", counted=True),
    Wrote("2", (SECOND,)),  # in doubt, and it counted
    Wrote("3", (replace(FIRST, updates=((("w", 9), 2, 1),)),)),
    Answer("3", counted=False),
    ReadResult("r", "c", 4, None, ((A, 1), (B, 1))),
    ReadResult("r", "c", 4, 2, ((A, 1),)),
    Followed("r", "c", 3, 9, None, ((B, 3, 1), (("w", 3), 6, 1), (B, 7, -1))),
    LAST,
]


def wrong(*entries: Entry, without: int | None = None) -> str:
    records = [entry for number, entry in enumerate(SOUND) if number != without]
    return "; ".join(judge([*records, *entries]).wrong)


def test_what_may_be_is_not_wrong() -> None:
    verdict = judge([*SOUND, Event("r", "kills", 2), Event("r", "races lost")])
    assert verdict.wrong == ()
    assert verdict.figures == {
        "appends": 1,
        "races lost": 1,
        "in doubt": 1,
        "reads checked": 4,
        "kills": 2,
    }


def test_a_row_too_many_and_one_too_few() -> None:
    message = wrong(ReadResult("x", "c", 4, None, ((A, 1), (("w", 7), 2))))
    assert message == "x read c as of 4: missing ('w', 2) x 1, too much ('w', 7) x 2"
    message = wrong(Followed("x", "c", 5, 7, None, ()))
    assert message == "x followed c in [5, 7): missing (('w', 3), 6) x 1, too much nothing"


def test_a_write_that_is_not_what_its_writer_was_told() -> None:
    message = wrong(Answer("2", counted=False))
    assert "write 2 of c [5, 9): told that it did not count, and it is there" in message
    lost = Share("c", "other", 0, 2, ((("w", 20), 1, 1),))
    message = wrong(Wrote("4", (lost,)), Answer("4", counted=True))
    assert "write 4 of c [0, 2): told that it counted, and it is not there" in message


def test_half_of_a_write() -> None:
    halves = (SECOND, Share("d", "cap", 0, 1, ((("w", 30), 0, 1),)))
    assert "write 2: half of it is there" in wrong(Wrote("2", halves), without=2)


def test_two_writes_of_one_time_under_one_capability() -> None:
    again = Share("c", "cap", 4, 6, ((A, 4, 0),))
    message = wrong(Wrote("5", (again,)), Answer("5", counted=True))
    assert "collection c: ('w', 1) has [0, 5) and ('w', 1) has [4, 6) as well" in message
    other = replace(again, capability="another")
    assert not wrong(Wrote("5", (other,)), Answer("5", counted=True))


def test_what_an_actor_found_wrong_by_itself() -> None:
    assert wrong(Wrong("keeper1", "since went back")) == "keeper1: since went back"
