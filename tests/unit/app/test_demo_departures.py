"""What the demo expects of its source of event times."""

import json
from collections.abc import Sequence

import pyarrow as pa
import pytest

from streams.demo import departures
from streams.demo.feed import load
from streams.demo.views import DELAY_MS, EVENT_VIEWS, SOURCES
from streams.plan.sql import statements
from streams.plan.sql.statements import CreateMaterializedView, CreateSource
from streams.trace.kernel.kernel import Kernel

MIDNIGHT_MS = 1_357_862_400_000  # 11 January 2013


def messages(*scheduled: str) -> pa.Table:
    """Departures scheduled at these times of a day, and a flight that is none."""
    values = [json.dumps({"sched_dep": f"2013-01-11 {time}"}) for time in scheduled]
    return pa.table(
        {"topic": [*["departures"] * len(values), "flights"], "value": [*values, "{}"]}
    )


@pytest.mark.parametrize(
    ("scheduled", "upper"),
    [((), 0), (("05:00:00",), 2), (("09:00:00", "05:00:00"), 6), (("01:00:00",), -2)],
)
def test_upper_is_behind_the_greatest_time(scheduled: Sequence[str], upper: int) -> None:
    kernel = Kernel()
    times = departures.event_times(messages(*scheduled), kernel)
    expected = MIDNIGHT_MS + upper * 3_600_000 if scheduled else 0
    assert departures.final_upper(times, kernel) == expected


def test_what_is_at_upper_is_not_in_the_source_yet() -> None:
    kernel = Kernel()
    times = departures.event_times(messages("05:00:00", "06:00:00", "06:00:00.001"), kernel)
    at_six = MIDNIGHT_MS + 6 * 3_600_000
    assert departures.below(times, at_six, kernel) == 1  # type: ignore[arg-type]  # a timestamp
    assert departures.below(times, at_six + 1, kernel) == 2  # type: ignore[arg-type]  # as above


def test_the_feed_has_departures_out_of_order_and_late_ones() -> None:
    """Else the demo would show nothing of watermarks."""
    kernel = Kernel()
    times = departures.event_times(load(kernel).first(60_000).messages, kernel)
    seen = kernel.query(
        "SELECT ms, max(ms) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before"
        " FROM times",
        times=times,
    )
    counted = kernel.query(
        f"SELECT count(*) FILTER (WHERE ms < before) AS disordered,"
        f" count(*) FILTER (WHERE ms < before - {DELAY_MS}) AS late FROM seen",
        seen=seen,
    )
    (row,) = counted.to_pylist()
    assert row["disordered"] > 1_000
    assert row["late"] > 10


def test_its_statements_are_of_event_time_and_keep_the_year() -> None:
    (source,) = [
        statement
        for text in SOURCES
        for statement in statements.parse(text)
        if isinstance(statement, CreateSource) and statement.watermark is not None
    ]
    assert source.topic == departures.TOPIC
    assert source.watermark is not None
    assert source.watermark.delay_ms == DELAY_MS
    for view in EVENT_VIEWS:
        assert view.reads == (departures.TOPIC,)
        (created,) = statements.parse(view.statement)
        assert isinstance(created, CreateMaterializedView)
        assert created.retain == source.retain
