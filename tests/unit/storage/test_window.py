"""What is remembered of outcomes, and what is stale."""

import pytest

from schemas.codec import Record
from streams.ids import EventId, Offset
from streams.storage.log import outcome_codec, rollup
from streams.storage.log.dedup_window import (
    COMMAND,
    KEPT,
    QUICK_LOOKS,
    WINDOW,
    RecentOutcomes,
    RecordedOutcome,
    RememberedOutcomes,
    Window,
    is_stale,
)
from streams.storage.log.events import Event, Reclaim
from streams.storage.log.machine import step
from streams.storage.log.outcomes import Created, Decision, Dropped, Reclaimed
from streams.storage.log.state import State


def decision(offset: int, outcome: Decision | None = None) -> RecordedOutcome:
    return RecordedOutcome(EventId(f"e{offset}"), Offset(offset), outcome or Created())


def filled(offsets: int, start: int = 0, window: Window | None = None) -> Window:
    window = window or Window()
    for offset in range(start, offsets):
        window = window.record(decision(offset))
    return window


def rolled_up(window: Window, upto: int) -> Window:
    """The window as a Rollup brings it back."""
    remembered = tuple(window.remembered(Offset(upto)))
    return Window(earlier=earlier(remembered, upto))


def earlier(remembered: tuple[RecordedOutcome, ...], upto: int) -> RememberedOutcomes:
    ids = {outcome.id for outcome in remembered}
    return RememberedOutcomes(Offset(upto), lambda: remembered, lambda id_: id_ in ids)


def test_exactly_the_window_is_remembered() -> None:
    window = filled(3_000)
    remembered = list(window.remembered(Offset(2_999)))
    assert [outcome.offset for outcome in remembered] == list(range(2_999 - WINDOW, 3_000))


def test_whatever_is_not_stale_is_found() -> None:
    """A copy whose first was decided after `seen` is found as long as `seen` is not stale."""
    window = filled(3_000)
    at = Offset(3_000)
    for seen in range(at - WINDOW, at - 1):
        assert not is_stale(Offset(seen), at)
        assert window.find(EventId(f"e{seen + 1}"), Offset(seen)) == Created()
    assert is_stale(Offset(at - WINDOW - 1), at)


def test_an_id_decided_before_the_writer_looked_is_another_event() -> None:
    window = filled(10)
    assert window.find(EventId("e5"), Offset(5)) is None
    assert window.find(EventId("e5"), Offset(4)) == Created()


def test_recording_leaves_the_window_before_as_it_was() -> None:
    before = filled(70)
    after = before.record(RecordedOutcome(EventId("new"), Offset(70), Dropped()))
    assert before.find(EventId("new"), Offset(-1)) is None
    assert after.find(EventId("new"), Offset(-1)) == Dropped()


def test_an_id_that_is_decided_anew_is_the_last_of_its_block() -> None:
    """Else a copy would look like one of before, and count again."""
    window = filled(9).record(RecordedOutcome(EventId("e5"), Offset(9), Dropped()))
    assert window.find(EventId("e5"), Offset(8)) == Dropped()


@pytest.mark.parametrize("upto", [0, 63, 1_500, 1_999])
def test_a_window_from_a_rollup_is_the_same(upto: int) -> None:
    window = filled(2_000)
    again = filled(2_000, upto + 1, rolled_up(filled(upto + 1), upto))
    at = Offset(1_999)
    assert list(again.remembered(at)) == list(window.remembered(at))
    for offset in range(at - WINDOW, 2_000, 7):
        for seen in (offset - 1, offset):
            decision_key = EventId(f"e{offset}"), Offset(seen)
            assert again.find(*decision_key) == window.find(*decision_key)


def test_an_id_decided_twice_is_remembered_alike_wherever_one_began() -> None:
    """In the blocks of who has folded from the start both decisions are in one; of who began
    at a Rollup they are in two.
    """

    def later(window: Window, start: int) -> Window:
        for offset in range(start, 1_200):
            is_again = offset == 1_151
            again = decision(1_120, Dropped()) if is_again else decision(offset)
            window = window.record(RecordedOutcome(again.id, Offset(offset), again.outcome))
        return window

    outcomes = later(Window(), 0)
    again = later(rolled_up(filled(1_088), 1_087), 1_088)
    at = Offset(1_199)
    decisions = list(outcomes.remembered(at))
    assert decisions == list(again.remembered(at))
    assert [outcome.offset for outcome in decisions if outcome.id == "e1120"] == [1_151]


@pytest.mark.parametrize("before", [0, 1, 100, KEPT, KEPT + 100])
@pytest.mark.parametrize("after", [0, 1, 63, 64, 65, KEPT - 1, KEPT, KEPT + 65])
def test_what_is_kept_of_commands_is_the_last_of_them(before: int, after: int) -> None:
    outcomes = RecentOutcomes()
    for offset in range(before):
        outcomes = outcomes.record(decision(offset))
    outcomes = RecentOutcomes(earlier=earlier(tuple(outcomes), before - 1))
    for offset in range(before, before + after):
        outcomes = outcomes.record(decision(offset))
    count = before + after
    first = max(0, count - KEPT)
    assert [outcome.offset for outcome in outcomes] == list(range(first, count))
    for offset in {0, first - 1, first, before - 1, before, count - 1} & set(range(count)):
        expected = Created() if offset >= first else None
        assert outcomes.find(EventId(f"e{offset}")) == expected


def test_outcomes_are_read_from_a_rollup_when_somebody_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def event(id_: str, seen: int) -> Event:
        return Event(EventId(id_), "g", Offset(seen), Reclaim({}))

    state = State(group="g")
    for number, id_ in enumerate(["one", COMMAND + "two"]):
        state, _ = step(state, event(id_, number - 1), Offset(number), 1_000)
    requests: list[object] = []
    honest = outcome_codec.from_record

    def watched(record: Record) -> RecordedOutcome:
        requests.append(record["id"])
        return honest(record)

    monkeypatch.setattr(outcome_codec, "from_record", watched)
    loaded = rollup.decode(rollup.encode(state))
    loaded, _ = step(loaded, event("three", 1), Offset(2), 1_000)
    loaded, _ = step(loaded, event(COMMAND + "four", 1), Offset(3), 1_000)
    loaded, _ = step(loaded, event("five", 1), Offset(4), 1_000)
    assert not requests
    _, outcome = step(loaded, event(COMMAND + "two", 4), Offset(5), 1_000)
    assert (outcome, requests) == (Reclaimed(), [COMMAND + "two"])
    _, outcome = step(loaded, event("one", -1), Offset(5), 1_000)
    assert (outcome, requests) == (Reclaimed(), [COMMAND + "two", "one"])


def test_who_asks_a_rollup_often_does_not_read_all_of_it_each_time() -> None:
    class Body(bytes):
        looks = 0

        def __contains__(self, part: object) -> bool:
            Body.looks += 1
            return super().__contains__(part)  # type: ignore[operator]  # bytes

    state = State(group="g", upto=Offset(5), clock_ms=1)
    decision_ = RecordedOutcome(EventId("known"), Offset(3), Created())
    state = state.moved(window=state.window.record(decision_))
    earlier = rollup.remembered_outcomes(Body(rollup.encode(state)), "decided", Offset(5))
    for number in range(200):
        assert not earlier.may_hold(EventId(f"other{number}"))
    assert earlier.may_hold(EventId("known"))
    assert Body.looks == QUICK_LOOKS
