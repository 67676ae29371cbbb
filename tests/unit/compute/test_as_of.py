"""The as_of is within its hard bounds, and as late as it can be."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from streams.compute.as_of import Bound, ReadableInterval, continued, newborn, select
from streams.ids import Timestamp
from streams.progress import frontier

pairs = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted)


def interval(name: str, pair: Sequence[int]) -> ReadableInterval:
    since, upper = pair
    return ReadableInterval(name, frontier(since), frontier(upper))


def intervals(some: Sequence[Sequence[int]]) -> list[ReadableInterval]:
    return [interval(f"s{number}", pair) for number, pair in enumerate(some)]


@given(st.lists(pairs, min_size=1, max_size=3), st.lists(st.integers(0, 20), max_size=2))
def test_an_object_is_born_at_the_freshest_time_that_its_holds_allow(some, holds) -> None:
    held = [Bound("at least", Timestamp(time), "hold") for time in holds]
    least = max([*(since for since, _ in some), *holds])
    freshest = min(upper for _, upper in some) - 1
    assert select([*newborn(intervals(some)), *held]).time == max(freshest, least)


@given(st.lists(pairs, max_size=3), pairs, st.integers(0, 20))
def test_what_goes_on_lacks_nothing_and_reads_nothing_that_is_lost(some, export, born) -> None:
    since, upper = export
    selected = select(continued(intervals(some), interval("u", export), Timestamp(born)))
    most, least = max(born, upper - 1), max((since for since, _ in some), default=0)
    assert selected.time <= most, "a later one would leave a gap in the export"
    assert (not selected.unmet) == (least <= most)
    if not selected.unmet:
        assert selected.time >= least, "an earlier one cannot be read"
        assert selected.time <= max(since, least), "what nobody lacks is not read"
