"""Who works in a round: what every driver of rounds decides alike."""

from streams.operators.context import Packet
from streams.operators.rounds import inbox, scheduled_levels
from streams.plan.physical import Aggregate, Bound, Expression, Reduce, Temporal
from streams.progress import interval_of
from tests.support.flows import dataflow, running, table

TYPES = ["INTEGER", "BIGINT"]
KEY, UNTIL = Expression("c0", "INTEGER", "x0"), Expression("c1", "BIGINT", "x1")
VISIBLE = Temporal(0, (), (Bound("<=", UNTIL),), (KEY,))
COUNT = Reduce(1, (0,), (Aggregate("count", None, "BIGINT"),))
FLOW = dataflow([TYPES], (VISIBLE, ["INTEGER"], 1), (COUNT, ["INTEGER", "BIGINT"], 2))


def test_a_birth_wakes_every_level() -> None:
    assert list(scheduled_levels(FLOW, {}, interval_of(3, 4, as_of=True))) == [1, 2]


def test_nothing_wakes_a_bucket_without_pending_updates() -> None:
    assert not scheduled_levels(FLOW, {}, interval_of(3, 4))


def test_what_is_pending_wakes_its_level_when_the_interval_reaches_it() -> None:
    with running(FLOW, buckets=1) as local:
        local.step(interval_of(0, 1, as_of=True), {0: table([((7, 5), 0, 1)], TYPES)})
        runs = local.runs[0]
        # the row goes at 6, the first time that `time <= 5` does not hold
        assert not scheduled_levels(FLOW, runs, interval_of(1, 6))
        assert list(scheduled_levels(FLOW, runs, interval_of(1, 7))) == [1]


def test_an_inbox_keeps_the_order_of_the_packets_of_a_port() -> None:
    tables = [table([((number, 0), 0, 1)], TYPES) for number in range(3)]
    packets = [
        Packet(0, 1, 2, "in", tables[0]),
        Packet(0, 1, 2, "right", tables[1]),
        Packet(0, 1, 2, "in", tables[2]),
    ]
    assert inbox(packets) == {(2, "in"): [tables[0], tables[2]], (2, "right"): [tables[1]]}
