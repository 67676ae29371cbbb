"""The decisions of a rebase: which event times are bound next, and to which time."""

import pytest

from streams.compute import rebasing
from streams.compute.reclocking import Clock, Follow, Ingest, Pause, Position, Rebuild, Tick
from streams.compute.stepping import Input, InputBatch, Overtaken
from streams.ids import CollectionId, Timestamp
from streams.progress import EMPTY, END, Antichain, frontier

NOW = 1_000
CLOCK = Clock(NOW, tick_ms=100, skew_ms=0)


def at(time: int, bound: int | None = None) -> Position:
    return Position(frontier(time), {} if bound is None else {rebasing.FRONTIER: bound})


def read(
    upper: Antichain, *batches: tuple[int, int], since: Antichain | None = None, size: int = 10
) -> Input:
    """The import; of each batch lower and upper."""
    present = tuple(InputBatch(frontier(low), frontier(high), size) for low, high in batches)
    return Input(CollectionId("s1"), since or frontier(0), upper, present)


def decide(
    position: Position, of: Input, clock: Clock = CLOCK, budget: int = 1_000
) -> rebasing.Rebasing:
    return rebasing.next_interval(position, position, of, clock, budget)


def ingest(lower: int, upper: int, time: int, bound: int | None, to: int) -> Ingest:
    before = at(lower, bound)
    bounds = frontier(lower), frontier(upper)
    return Ingest(*bounds, Timestamp(time), before.offsets, {rebasing.FRONTIER: to})


def test_the_snapshot_is_at_the_first_time() -> None:
    assert decide(at(900), read(frontier(50), (0, 50))) == ingest(900, 1_001, 900, None, 50)


def test_a_source_without_messages_has_no_contents_and_can_be_read() -> None:
    assert decide(at(900), read(frontier(0))) == ingest(900, 1_001, 900, None, 0)


def test_a_view_without_contents_is_waited_for() -> None:
    """Its first contents are at its since, and would not be told from what is bound."""
    unborn = read(frontier(50), since=frontier(50))
    assert decide(at(900), unborn) == Pause(None)
    assert isinstance(decide(at(900), read(frontier(51), since=frontier(50))), Ingest)


def test_what_is_new_is_at_the_time_of_the_clock() -> None:
    step = decide(at(900, 50), read(frontier(80), (50, 70), (70, 80)))
    assert step == ingest(900, 1_001, 1_000, 50, 80)


def test_time_does_not_go_back_with_the_clock() -> None:
    """Rule 27."""
    step = decide(at(5_000, 50), read(frontier(80), (50, 80)))
    assert step == ingest(5_000, 5_001, 5_000, 50, 80)
    ahead = Clock(NOW, tick_ms=100, skew_ms=300)
    assert decide(at(5, 50), read(frontier(80), (50, 80)), ahead) == ingest(5, 701, 700, 50, 80)


def test_a_step_takes_whole_batches_within_the_budget() -> None:
    """Rule 26."""
    of = read(frontier(80), (50, 60), (60, 70), (70, 80))
    assert decide(at(900, 50), of, budget=25) == ingest(900, 1_001, 1_000, 50, 70)
    assert decide(at(900, 50), of, budget=1) == ingest(900, 1_001, 1_000, 50, 60)


def test_time_goes_on_without_updates() -> None:
    bound, reached = {rebasing.FRONTIER: 50}, {rebasing.FRONTIER: 80}
    for upper, to in ((80, reached), (50, bound)):
        tick = Tick(frontier(900), frontier(1_001), bound, to)
        assert decide(at(900, 50), read(frontier(upper))) == tick
    assert decide(at(950, 50), read(frontier(80))) == Pause(1_050)


@pytest.mark.parametrize("skew_ms", [None, 6_000, -6_000])
def test_no_wrong_clock_moves_time(skew_ms: int | None) -> None:
    """Rule 27."""
    clock = Clock(NOW, tick_ms=100, skew_ms=skew_ms)
    assert decide(at(100, 50), read(frontier(80)), clock) == Pause(None)
    step = decide(at(100, 50), read(frontier(80), (50, 80)), clock)
    assert step == Pause(None) if skew_ms is None else isinstance(step, Ingest)


@pytest.mark.parametrize("since", [frontier(50), frontier(79), EMPTY])
def test_history_that_is_gone_is_noticed(since: Antichain) -> None:
    """Rule 5."""
    assert isinstance(decide(at(900, 50), read(frontier(80), since=since)), Overtaken)
    held = rebasing.hold({rebasing.FRONTIER: 50})
    assert held == frontier(49)
    assert isinstance(decide(at(900, 50), read(frontier(80), (50, 80), since=held)), Ingest)


def test_the_end_of_the_input_is_the_end() -> None:
    step = decide(at(900, 50), read(EMPTY, (50, 80)))
    assert step == ingest(900, 1_001, 1_000, 50, END)
    bound = {rebasing.FRONTIER: END}
    assert decide(at(1_001, END), read(EMPTY, (50, 80))) == Tick(frontier(1_001), EMPTY, bound)
    assert decide(Position(EMPTY, bound), read(EMPTY)) == Pause(None)
    assert rebasing.hold(bound) == EMPTY


def test_who_lost_goes_on_where_the_shard_is() -> None:
    """Rule 18."""
    own, of = at(900, 50), read(frontier(80), (50, 80))
    moved, ticked = at(950, 60), at(950, 50)
    assert rebasing.next_interval(own, moved, of, CLOCK, 9) == Rebuild(moved)
    assert rebasing.next_interval(own, ticked, of, CLOCK, 9) == Follow(ticked)


def test_nothing_is_held_otherwise_before_the_first_binding() -> None:
    assert rebasing.hold({}) is None
    assert rebasing.hold({rebasing.FRONTIER: 0}) == frontier(0)
