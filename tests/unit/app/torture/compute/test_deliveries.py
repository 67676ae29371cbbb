"""Deliveries are compared with the truth: contiguous, each change once, exact at each time."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from streams.compute.description import DataflowDescription
from streams.compute.subscribes import (
    DroppedAt,
    Subscribe,
    SubscribeBatch,
    SubscribeError,
    SubscribeOutcome,
)
from streams.ids import CollectionId, Timestamp
from streams.plan.physical import Column
from streams.progress import EMPTY, frontier
from streams.torture.compute.deliveries import AskedSubscribe, looks
from streams.torture.compute.objects import Maintained
from streams.torture.compute.truth import Changes, Rows
from streams.trace.kernel.kernel import arrow_schema

VIEW = Maintained(
    DataflowDescription(
        export=CollectionId("v1"),
        kind="view",
        name="v1",
        group="v1",
        columns=(Column("k", "BIGINT"),),
        as_of=Timestamp(1),
    )
)
SUBSCRIBE = Subscribe(
    uuid="s",
    collection=CollectionId("v1"),
    group="v1",
    as_of=Timestamp(3),
    plan="",
    project=(0,),
    until=Timestamp(9),
)
HISTORY = [(1, 1, 1), (1, 2, 1), (2, 3, 1), (2, 5, -1), (4, 5, 1), (5, 9, 1)]
"""Key, time and diff: what the view was told."""

Update = tuple[int, int, int]


def interval(lower: int, upper: int | None, *updates: Update) -> SubscribeBatch:
    reached = EMPTY if upper is None else frontier(upper)
    if not updates:
        return SubscribeBatch(Timestamp(lower), reached, 0, b"")
    schema = arrow_schema(["BIGINT"])
    rows = pa.table([list(column) for column in zip(*updates, strict=True)], schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_table(rows)
    return SubscribeBatch(Timestamp(lower), reached, len(updates), bytes(sink.getvalue()))


class Known:
    """The truth of one view."""

    def rows(self, view: Maintained, time: int, where: str) -> Rows:
        assert (view, where) == (VIEW, "true")
        rows: Rows = Counter()
        for key, at, diff in HISTORY:
            if at <= time:
                rows[key,] += diff
        return +rows

    def changes(
        self, view: Maintained, subscribe: Subscribe, reached: int, where: str
    ) -> Changes:
        assert (view, where) == (VIEW, "true")
        changes: Counter[tuple[tuple[object, ...], int]] = Counter()
        for key, at, diff in HISTORY:
            if at < reached and (subscribe.snapshot or at >= subscribe.first):
                changes[(key,), max(at, subscribe.first)] += diff
        return dict(changes)


TRUTH: Any = Known()
FIRST = interval(3, 4, (1, 3, 2), (2, 3, 1))
NEXT = interval(4, 7, (2, 5, -1), (4, 5, 1))
LAST = interval(7, None)
FOREVER = replace(SUBSCRIBE, until=None)
CHANGES = replace(SUBSCRIBE, snapshot=False)


def asked(
    *outcomes: SubscribeOutcome, subscribe: Subscribe = SUBSCRIBE, **more: bool
) -> AskedSubscribe:
    return AskedSubscribe(subscribe, VIEW, "true", "replicas", list(outcomes), **more)


@pytest.mark.parametrize(
    "one",
    [
        asked(FIRST, NEXT, LAST),
        asked(NEXT, LAST, subscribe=CHANGES),
        asked(FIRST, interval(4, 6, *[(1, 3, 2), (2, 5, -1), (4, 5, 1)]), interval(6, None)),
        asked(FIRST, subscribe=FOREVER),
        asked(is_canceled=True),
        asked(FIRST, NEXT, is_canceled=True),
        asked(FIRST, NEXT, is_killed=True),
        asked(FIRST, NEXT, LAST, is_canceled=True),
    ],
    ids=[
        *("whole", "changes-alone", "cut-off-before-lower", "without-an-end", "nothing"),
        *("canceled", "controller-killed", "canceled-behind-its-end"),
    ],
)
def test_what_may_be(one: AskedSubscribe) -> None:
    assert not one.wrong(TRUTH)


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ([FIRST, NEXT], "it is at 7, and has no end"),
        ([FIRST, LAST], "expected an interval from 4 on, actual (7, "),
        ([FIRST, NEXT, NEXT, LAST], "expected an interval from 7 on, actual (4, "),
        ([FIRST, interval(3, 7), LAST], "expected an interval from 4 on, actual (3, "),
        ([FIRST, NEXT, LAST, interval(9, 10)], "something follows the end"),
        ([FIRST, interval(4, None)], "missing [(((2,), 5), -1), (((4,), 5), 1)], too much []"),
        ([FIRST, interval(4, None, (2, 5, -1), (4, 6, 1))], "too much [(((4,), 6), 1)]"),
        ([FIRST, interval(4, None, (2, 5, -1), (4, 5, 2))], "too much [(((4,), 5), 2)]"),
        ([interval(3, None, (1, 3, 1), (1, 3, 1))], "two changes of ((1,), 3)"),
        ([FIRST, interval(4, 7, (2, 7, -1)), LAST], "expected times before 7, actual 7"),
        ([FIRST, NEXT, interval(7, None, (5, 9, 1))], "expected times before 9, actual 9"),
        (
            [FIRST, SubscribeError(Timestamp(4), "why")],
            "expected intervals, actual SubscribeError",
        ),
        ([FIRST, DroppedAt(Timestamp(4))], "expected intervals, actual DroppedAt"),
        ([replace(FIRST, count=3)], "expected 3 rows, as it says, actual 2"),
    ],
    ids=[
        *(
            "no-end",
            "gap",
            "twice",
            "again-from-before",
            "behind-the-end",
            "lost",
            "other-time",
        ),
        *("other-diff", "not-consolidated", "beyond-upper", "beyond-until", "error", "dropped"),
        "another-count",
    ],
)
def test_what_may_not_be(outcomes: Sequence[SubscribeOutcome], said: str) -> None:
    assert said in asked(*outcomes).wrong(TRUTH)


def test_without_until_nothing_ends_it() -> None:
    one = asked(FIRST, NEXT, LAST, subscribe=FOREVER)
    assert "it ended, and the view goes on" in one.wrong(TRUTH)
    with_a_snapshot = asked(FIRST, NEXT, LAST, subscribe=CHANGES)
    assert "expected an interval from 4 on" in with_a_snapshot.wrong(TRUTH)


def test_the_contents_are_compared_with_the_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong_at_six = Counter({(1,): 2})
    rows = Known.rows
    monkeypatch.setattr(
        Known,
        "rows",
        lambda self, view, time, where: (
            wrong_at_six if time == 6 else rows(self, view, time, where)
        ),
    )
    fault = asked(FIRST, NEXT, is_canceled=True).wrong(TRUTH)
    assert "at 6: missing [], too much [((4,), 1)]" in fault


def test_it_is_over_when_nothing_follows_or_nobody_waits() -> None:
    assert not asked().is_over
    assert (asked().reached, asked(FIRST).reached) == (3, 4)
    assert not asked(FIRST).is_over
    for one in (asked(LAST), asked(is_killed=True), asked(SubscribeError(Timestamp(3), ""))):
        assert one.is_over
    assert looks([5, 1, 1, 3]) == [1, 3, 5]
    assert len(looks(range(1000))) <= 4
