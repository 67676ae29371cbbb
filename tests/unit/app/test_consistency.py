"""The judge of the bank's books finds what is wrong, and nothing else."""

import io
import json
from collections.abc import Mapping

import pytest
from rich.console import Console
from typer.testing import CliRunner

from streams.bench import command
from streams.bench.consistency.bank import CHECKS, IN_TIME, VIEWS, Transfers
from streams.bench.consistency.command import table
from streams.bench.consistency.subscription_check import (
    Row,
    SubscriptionState,
    SubscriptionStates,
    Tally,
)
from streams.bench.figures import Figure, Outcome, at_most

Changes = Mapping[str, list[tuple[Row, int]]]

FIRST: Changes = {
    "accepted": [((1,), 1)],
    "outer_join": [((1, 1), 1)],
    "credits": [((7, 1), 1)],
    "debits": [((7, 1), 1)],
    "balance": [((7, 0), 1)],
    "total": [((0,), 1)],
    "confirmed": [((1, None), 1)],
}
"""Account 7 pays itself."""

SECOND: Changes = {
    "accepted": [((2,), 1)],
    "outer_join": [((2, 2), 1)],
    "credits": [((7, 1), -1), ((7, 2), 1)],
    "debits": [((7, 1), -1), ((7, 2), 1)],
    "confirmed": [((2, None), 1)],
}
CONFIRMED: Changes = {
    "confirmations": [((1,), 1)],
    "confirmed": [((1, None), -1), ((1, 1), 1)],
}


def books(*steps: Changes) -> SubscriptionStates:
    """The books after these steps, at times 10, 11, ...; the first is the snapshot."""
    states = SubscriptionStates(
        {name: SubscriptionState() for name in (*VIEWS, "confirmations")}
    )
    for time, step in enumerate(steps, 10):
        for view in states.books:
            for row, diff in step.get(view, []):
                states.heard(view, time, diff, row)
            states.complete(view, time + 1)
        states.judge()
    return states


def wrong(states: SubscriptionStates) -> dict[str, int]:
    return {name: tally.wrong for name, tally in states.tallies.items() if tally.wrong}


def test_right_books_are_right() -> None:
    states = books(FIRST, SECOND, CONFIRMED)
    assert wrong(states) == {}
    assert {states.tallies[name].observations for name in CHECKS} == {3}


@pytest.mark.parametrize(
    ("changed", "check"),
    [
        ({"total": [((0,), -1), ((1,), 1)]}, "total = 0"),
        ({"total": [((0,), -1)]}, "total = 0"),
        ({"total": [((1,), 1)]}, "total = 0"),
        ({"accepted": []}, "credits = debits"),
        ({"debits": []}, "credits = debits"),
        ({"credits": [((7, 2), 1)]}, "credits = debits"),
        ({"balance": [((7, 0), -1), ((7, 1), 1)]}, "balance = credits - debits"),
        ({"balance": [((7, 0), 1)]}, "balance = credits - debits"),
        ({"outer_join": [((2, None), 1)]}, "outer join"),
        ({"outer_join": []}, "outer join"),
        ({"confirmed": [((2, 2), 1)]}, "confirmed once"),
        ({"confirmations": [((2,), 1)]}, "confirmed once"),
    ],
)
def test_each_kind_of_wrong_book_is_found(changed: Changes, check: str) -> None:
    assert check in wrong(books(FIRST, {**SECOND, **changed}))


def test_what_passes_is_found_though_it_heals() -> None:
    """Only at 11 one view is ahead of the others."""
    ahead: Changes = {"total": [((0,), -1), ((5,), 1)]}
    healed: Changes = {"total": [((5,), -1), ((0,), 1)]}
    states = books(FIRST, ahead, healed)
    assert wrong(states) == {"total = 0": 1}
    assert states.tallies["total = 0"].observations == 3


def test_books_that_were_opened_later_are_not_missed_before() -> None:
    states = SubscriptionStates(
        {name: SubscriptionState() for name in (*VIEWS, "confirmations")}
    )
    for view in states.books:
        late = view == "debits"
        first = [] if late else [(10, FIRST)]
        for time, step in [*first, (11, FIRST if late else {})]:
            for row, diff in step.get(view, []):
                states.heard(view, time, diff, row)
            states.complete(view, time + 1)
    for view in states.books:
        for row, diff in SECOND.get(view, []):
            states.heard(view, 12, diff, row)
        states.complete(view, 13)
    states.judge()
    assert wrong(states) == {}
    assert states.tallies["credits = debits"].observations == 2


def test_an_update_after_its_progress_is_found() -> None:
    states = books(FIRST, SECOND)
    states.heard("total", 11, 1, (0,))
    assert wrong(states) == {IN_TIME: 1}


def test_nothing_is_judged_before_all_are_complete() -> None:
    states = books(FIRST)
    for view in list(states.books)[1:]:
        states.complete(view, 99)
    states.heard("total", 50, 1, (5,))
    states.judge()
    assert states.tallies["total = 0"].observations == 1


def test_transfers_are_confirmed_once_and_out_of_order() -> None:
    transfers = Transfers()
    sent = [json.loads(text)["id"] for text in transfers.transactions(500)]
    assert sent != sorted(sent)
    assert sorted(sent) == list(range(500))
    confirmed = [json.loads(text)["id"] for text in transfers.confirmations(300)]
    more = [json.loads(text)["id"] for text in transfers.confirmations(300)]
    assert len(confirmed) == 300
    assert sorted(confirmed + more) == list(range(500))
    assert Transfers().transactions(5) == Transfers().transactions(5)


def test_the_table_has_both_ways_beside_each_other() -> None:
    out = io.StringIO()
    seen = {name: Tally(1234, 0) for name in (*CHECKS, IN_TIME)}
    Console(file=out, width=100).print(
        table({"SUBSCRIBE": seen, "SELECT": {"total = 0": Tally(55, 3)}})
    )
    line = next(line for line in out.getvalue().splitlines() if "total = 0" in line)
    assert [part.strip() for part in line.split("│")][1:-1] == [
        "total = 0",
        "1,234",
        "0",
        "55",
        "3",
    ]


@pytest.mark.parametrize(("count", "code"), [(0, 0), (2, 1)])
def test_the_exit_code_says_whether_anything_was_wrong(monkeypatch, count, code) -> None:
    figures = (at_most("consistency_wrong", count, "", 0), Figure("seen", 9))
    outcome = Outcome("consistency", figures)
    monkeypatch.setattr(command, "measure_consistency", lambda *_, **__: outcome)
    assert CliRunner().invoke(command.app, ["consistency"]).exit_code == code
