"""What an ingestion decides: rules 18, 27 and the first snapshot."""

from hypothesis import given
from hypothesis import strategies as st

from streams.compute.reclocking import (
    Broken,
    Clock,
    Ends,
    Follow,
    Ingest,
    Pause,
    Position,
    Rebuild,
    Tick,
    next_interval,
    ranges,
)
from streams.progress import frontier


def position(at: int, **offsets: int) -> Position:
    return Position(frontier(at), {int(name[1:]): offset for name, offset in offsets.items()})


def clock(now_ms: int, skew_ms: int | None = 0) -> Clock:
    return Clock(now_ms, tick_ms=50, skew_ms=skew_ms)


def test_an_interval_takes_what_came_at_one_time() -> None:
    own = position(100, p0=5, p1=7)
    topic = {0: Ends(0, 9), 1: Ends(2, 7)}
    ingest = next_interval(own, own, topic, clock(130))
    assert isinstance(ingest, Ingest)
    assert (ingest.lower, ingest.upper, ingest.time) == (frontier(100), frontier(131), 130)
    assert (ingest.from_offsets, ingest.to_offsets) == ({0: 5, 1: 7}, {0: 9, 1: 7})
    assert ranges(ingest, topic) == {0: (5, 9)}


def test_rule_27_a_wall_clock_that_went_back_does_not_take_time_back() -> None:
    own = position(100, p0=5)
    ingest = next_interval(own, own, {0: Ends(0, 9)}, clock(40))
    assert isinstance(ingest, Ingest)
    assert (ingest.time, ingest.upper) == (100, frontier(101))


def test_what_stood_in_the_topic_at_first_is_one_snapshot() -> None:
    own = position(100)
    topic = {0: Ends(3, 900), 1: Ends(0, 50)}
    ingest = next_interval(own, own, topic, clock(130), budget=10)
    assert isinstance(ingest, Ingest)
    assert ingest.to_offsets == {0: 900, 1: 50}
    assert ranges(ingest, topic) == {0: (3, 900), 1: (0, 50)}


def test_the_snapshot_is_there_at_the_first_time_of_the_source() -> None:
    own = position(100)
    for now_ms in (40, 100, 130):
        ingest = next_interval(own, own, {0: Ends(0, 9)}, clock(now_ms))
        assert isinstance(ingest, Ingest)
        assert (ingest.time, ingest.upper) == (100, frontier(max(now_ms, 100) + 1))


def test_a_budget_is_shared_by_the_partitions_that_have_news() -> None:
    own = position(100, p0=0, p1=0, p2=4)
    topic = {0: Ends(0, 900), 1: Ends(0, 3), 2: Ends(0, 4)}
    ingest = next_interval(own, own, topic, clock(130), budget=10)
    assert isinstance(ingest, Ingest)
    assert ingest.to_offsets == {0: 5, 1: 3, 2: 4}


def test_a_new_partition_is_read_from_its_beginning() -> None:
    own = position(100, p0=5)
    topic = {0: Ends(0, 5), 1: Ends(0, 2)}
    ingest = next_interval(own, own, topic, clock(130), budget=10)
    assert isinstance(ingest, Ingest)
    assert ingest.from_offsets == {0: 5}
    assert ranges(ingest, topic) == {1: (0, 2)}


def test_an_idle_source_ticks() -> None:
    own = position(100, p0=5)
    topic = {0: Ends(0, 5)}
    assert next_interval(own, own, topic, clock(149)) == Pause(150)
    assert next_interval(own, own, topic, clock(150)) == Tick(
        frontier(100), frontier(151), {0: 5}
    )


def test_rule_27_a_clock_that_is_off_stops_ticking() -> None:
    own = position(100, p0=5)
    assert next_interval(own, own, {0: Ends(0, 5)}, clock(900, skew_ms=-5_001)) == Pause(None)


def test_rule_27_what_comes_is_bound_by_the_earlier_of_two_clocks() -> None:
    own = position(100, p0=5)
    for now_ms, skew_ms, time in ((9_900, 9_000, 900), (950, 50, 900), (900, -9_000, 900)):
        ingest = next_interval(own, own, {0: Ends(0, 9)}, clock(now_ms, skew_ms))
        assert isinstance(ingest, Ingest)
        assert ingest.time == time


def test_rule_27_a_clock_that_was_not_measured_binds_nothing() -> None:
    own = position(100, p0=5)
    for high in (5, 9):
        assert next_interval(own, own, {0: Ends(0, high)}, clock(900, None)) == Pause(None)
    shard = position(120, p0=8)
    assert next_interval(own, shard, {0: Ends(0, 9)}, clock(900, None)) == Rebuild(shard)


def test_rule_18_who_lost_rebuilds_at_the_binding_of_the_shard() -> None:
    own, shard = position(100, p0=5), position(120, p0=8)
    assert next_interval(own, shard, {0: Ends(0, 9)}, clock(130)) == Rebuild(shard)


def test_rule_18_a_tick_of_another_leaves_the_state_right() -> None:
    own, shard = position(100, p0=5), position(120, p0=5)
    assert next_interval(own, shard, {0: Ends(0, 9)}, clock(130)) == Follow(shard)


def test_messages_that_are_gone_are_never_passed_over_in_silence() -> None:
    own = position(100, p0=5)
    for ends in (Ends(6, 9), Ends(0, 4)):
        assert next_interval(own, own, {0: ends}, clock(130)) == Broken(0, 5, ends)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 3)), max_size=30))
def test_times_only_grow_and_offsets_join(moves: list[tuple[int, int]]) -> None:
    own, high = position(100), 0
    for now_ms, arrived in moves:
        high += arrived
        interval = next_interval(own, own, {0: Ends(0, high)}, clock(now_ms), budget=2)
        match interval:
            case Ingest(lower, upper, time, before, after):
                assert lower == own.frontier
                assert lower.less_equal(time)
                assert not upper.less_equal(time)
                assert before == own.offsets
                own = Position(upper, after)
            case Tick(lower, upper, offsets):
                assert lower.strictly_precedes(upper)
                own = Position(upper, offsets)
            case _:
                assert isinstance(interval, Pause)
