"""Whether others took the machine, and a clock that stands still while they do."""

import subprocess
import sys

import pytest

from streams.torture.hostile.fair_clock import (
    PROC,
    TICKS,
    FairClock,
    Process,
    Use,
    is_taken,
    ours,
    parse,
    used,
)


@pytest.mark.parametrize(
    ("others", "mine", "load", "is_busy"),
    [
        (180, 20, 30.0, True),
        (20, 180, 30.0, False),  # our own load is no excuse
        (180, 20, 1.0, False),  # nobody waits for a core
        (0, 0, 30.0, False),
    ],
)
def test_others_took_the_machine(others: int, mine: int, load: float, *, is_busy: bool) -> None:
    before = Use(1000, 500, 0.0)
    share = TICKS / 100
    after = Use(1000 + int((others + mine) * share), 500 + int(mine * share), load)
    assert is_taken(before, after, 1.0, cores=2) is is_busy


def test_ours_is_what_descends_from_us_and_what_lost_its_parent_in_a_session_of_ours() -> None:
    processes = [
        Process(1, 0, 1, 1_000_000),
        Process(10, 1, 5, 1),  # this process, in the session of a shell
        Process(11, 10, 11, 10),  # a service, which leads a session
        Process(12, 11, 11, 100),
        Process(13, 1, 11, 1_000),  # its parent has ended
        Process(14, 1, 5, 100_000),  # another program of the shell
    ]
    assert ours(processes, 10) == 1_111


def test_a_line_is_read_whatever_the_process_is_called() -> None:
    line = "7 (a) b (c) S 3 7 5 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 1 0 5 6 7"
    assert parse(line) == Process(7, 3, 5, 127)


ROUNDING = 5
"""Ticks: `all` is a sum of three figures, `ours` of four a process, each cut to whole ticks."""


@pytest.mark.skipif(not (PROC / "stat").exists(), reason="not counted here")
def test_a_child_of_ours_that_ended_was_ours() -> None:
    before = used()
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
    after = used()
    assert before is not None
    assert after is not None
    assert after.ours > before.ours
    assert after.all - before.all + ROUNDING >= after.ours - before.ours


def test_the_clock_stands_still_while_others_have_the_machine() -> None:
    clock = FairClock()
    clock.note(2.0, taken=False)
    clock.note(30.0, taken=True)
    assert (clock.now_s(), clock.taken_s, clock.is_taken) == (2.0, 30.0, True)
    clock.note(1.0, taken=False)
    assert (clock.now_s(), clock.is_taken) == (3.0, False)
