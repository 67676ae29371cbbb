"""Which key ranges a backfill writes, and as of which time."""

from connectors.backfill.plan import Gap, gaps_of, time_of
from connectors.runtime.ranges import EVERY_KEY, Reach
from schemas.flow_hash import LAST
from streams.ids import Timestamp

HALF = 0x80000000


def reach(begin: int, end: int, frontier: int | None) -> Reach:
    return Reach(begin, end, None if frontier is None else Timestamp(frontier))


def test_gaps_are_what_is_missing() -> None:
    nothing, whole = [reach(*EVERY_KEY, None)], [reach(*EVERY_KEY, 7)]
    assert gaps_of([nothing, whole], 2) == (
        Gap(0, HALF - 1, frozenset({0})),
        Gap(HALF, LAST, frozenset({0})),
    )
    assert gaps_of([whole, whole], 5) == ()
    assert gaps_of([nothing, whole], 2, stalled={0}) == ()
    (both,) = gaps_of([nothing, nothing], 1, stalled={1})
    assert both.bindings == {0}
    apart = [reach(0, 9, None), reach(10, HALF, 7), reach(HALF + 1, LAST, None)]
    assert gaps_of([apart, whole], 1) == (
        Gap(0, 9, frozenset({0})),
        Gap(HALF + 1, LAST, frozenset({0})),
    )
    assert gaps_of([apart, nothing], 1) == (
        Gap(0, 9, frozenset({0, 1})),
        Gap(10, HALF, frozenset({1})),
        Gap(HALF + 1, LAST, frozenset({0, 1})),
    )


def test_the_time_is_that_of_what_is_there() -> None:
    held, uppers = [Timestamp(3)], [Timestamp(9), Timestamp(8)]
    nothing, some = [reach(*EVERY_KEY, None)], [reach(0, 9, 6), reach(10, LAST, None)]
    assert time_of([nothing], held, uppers) == 7, "the latest that is complete"
    assert time_of([nothing, some], held, uppers) == 5
    assert time_of([nothing], [Timestamp(8)], uppers) is None, "held later than it is complete"
    assert time_of([some], held, [Timestamp(5)]) is None
