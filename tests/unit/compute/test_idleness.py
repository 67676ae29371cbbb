"""Which partitions are said to hold a watermark back."""

from dataclasses import replace

from streams.compute import idleness
from streams.compute.event_time import Partition
from streams.plan.metadata import Watermark

DECLARED = Watermark(
    column="ts", delay_ms=10, late_rows="place", idle_ms=30_000, ahead_ms=10**9
)
AHEAD = Partition(read=5, bound=5, released=5, greatest=1_000, read_ms=9_000, time_ms=9_000)
SILENT = replace(AHEAD, greatest=500, time_ms=1_000)


def held(*parts: Partition, upper: int = 490, now_ms: int = 9_500) -> list[int]:
    return list(idleness.holding(dict(enumerate(parts)), upper, now_ms, DECLARED))


def test_a_partition_that_gives_no_event_times_is_named():
    assert held(AHEAD, SILENT) == [1]
    assert held(AHEAD, SILENT, replace(SILENT, greatest=None)) == [1, 2]


def test_no_partition_is_named_where_upper_does_not_wait_for_it():
    assert held(SILENT, SILENT) == [], "none has given more"
    assert held(AHEAD, replace(SILENT, time_ms=5_000)) == [], "just now it did"
    assert held(AHEAD, replace(SILENT, greatest=900)) == []
    assert held(AHEAD, SILENT, now_ms=31_000) == [], "it is idle"


def test_a_partition_with_more_than_was_read_is_never_idle():
    assert held(AHEAD, replace(SILENT, is_behind=True), now_ms=31_000) == [1]
