"""A sink's decision against a reader of the topic who keeps the last value of each key."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streams.storage.sinks.sink import (
    NO_KEYS,
    ErrorUpdates,
    ImpossibleRetraction,
    SinkChanges,
    SoundTimes,
    assign_sound_times,
    changes,
)

Row = tuple[int, str]
Update = tuple[Row, int, int]  # row, time, diff
Mistake = tuple[int, int, int]  # error, time, diff


def hashes_of(rows: Sequence[Row]) -> np.ndarray:
    return np.array([key * 7919 + 11 for key, _ in rows], np.uint64)


def arrays(updates: Sequence[Update]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        hashes_of([row for row, _, _ in updates]),
        np.array([time for _, time, _ in updates], np.int64),
        np.array([diff for _, _, diff in updates], np.int64),
    )


def consolidate(updates: Sequence[Update]) -> list[Update]:
    total: Counter[tuple[Row, int]] = Counter()
    for row, time, diff in updates:
        total[(row, time)] += diff
    return [(row, time, diff) for (row, time), diff in total.items() if diff]


class Topic:
    """What a reader has after each record: key → value, and every record."""

    def __init__(self) -> None:
        self.live = NO_KEYS
        self.pending: list[Update] = []
        self.errors: list[Mistake] = []
        self.records: list[tuple[int, int, str | None]] = []

    def write(self, updates: Sequence[Update], errors: Sequence[Mistake]) -> SoundTimes:
        """One interval, as the runner does it: settle, move, consolidate, decide."""
        every = [*self.pending, *updates]
        wrong = [*self.errors, *errors]
        settled = assign_sound_times(
            self.live,
            *arrays(every),
            ErrorUpdates(
                np.array([name for name, _, _ in wrong], np.uint64),
                np.array([time for _, time, _ in wrong], np.int64),
                np.array([diff for _, _, diff in wrong], np.int64),
            ),
        )
        moved = [
            (row, int(time), diff)
            for (row, _, diff), time in zip(every, settled.times, strict=True)
        ]
        ready = consolidate([update for update in moved if update[1] >= 0])
        self.pending = [
            update for update, time in zip(every, settled.times, strict=True) if time < 0
        ]
        stalled_at = settled.stall.time if settled.stall else 1 << 60
        self.errors = [row for row in wrong if row[1] >= stalled_at]
        decided = changes(self.live, *arrays(ready))
        assert isinstance(decided, SinkChanges), decided
        self.live = decided.live
        for position, tombstones in zip(decided.rows, decided.tombstones, strict=True):
            (key, value), time, _ = ready[position]
            self.records.append((time, key, None if tombstones else value))
        return settled


def contents(updates: Sequence[Update], time: int) -> Counter[Row]:
    total: Counter[Row] = Counter()
    for row, at, diff in updates:
        if at <= time:
            total[row] += diff
    return Counter({row: count for row, count in total.items() if count})


def is_sound(updates: Sequence[Update], errors: Sequence[Mistake], time: int) -> bool:
    keys: Counter[int] = Counter()
    for (key, _), count in contents(updates, time).items():
        keys[key] += count
    alive: Counter[int] = Counter()
    for name, at, diff in errors:
        alive[name] += diff if at <= time else 0
    in_error = any(alive.values())
    return not in_error and all(count in {0, 1} for count in keys.values())


def read(records: Sequence[tuple[int, int, str | None]], time: int) -> dict[int, str]:
    values: dict[int, str] = {}
    for at, key, value in records:
        if at <= time:
            if value is None:
                del values[key]  # a tombstone of a key that is not there is a wrong record
            else:
                values[key] = value
    return values


@st.composite
def collections(draw: st.DrawFn) -> tuple[list[list[Update]], list[list[Mistake]]]:
    """Intervals of updates to a collection that never holds a row a negative number of times.

    Keys collide now and then; errors come and go.
    """
    present: list[Row] = []
    wrong = Counter[int]()
    intervals: list[list[Update]] = []
    errors: list[list[Mistake]] = []
    for start in range(0, 12, 3):
        updates: list[Update] = []
        mistakes: list[Mistake] = []
        for time in range(start, start + 3):
            for _ in range(draw(st.integers(0, 3))):
                drop = draw(st.booleans())
                if present and drop:
                    row = present.pop(draw(st.integers(0, len(present) - 1)))
                    updates.append((row, time, -1))
                else:
                    row = (draw(st.integers(0, 4)), draw(st.sampled_from("ab")))
                    present.append(row)
                    updates.append((row, time, 1))
            if draw(st.integers(0, 5)) == 0:
                name = draw(st.integers(0, 2))
                diff = -wrong[name] or draw(st.sampled_from([1, 1, 1, -1]))
                mistakes.append((name, time, diff))
                wrong[name] += diff
        intervals.append(updates)
        errors.append(mistakes)
    return intervals, errors


@given(collections())
def test_a_reader_of_the_topic_has_the_rows_of_every_sound_time(given) -> None:
    intervals, errors = given
    topic = Topic()
    for updates, mistakes in zip(intervals, errors, strict=True):
        topic.write(updates, mistakes)
    everything = [update for updates in intervals for update in updates]
    mistakes = [row for some in errors for row in some]
    for time in range(12):
        if is_sound(everything, mistakes, time):
            expected = dict(contents(everything, time).keys())
            assert read(topic.records, time) == expected, time
    written = {time for time, _, _ in topic.records}
    assert all(is_sound(everything, mistakes, time) for time in written)


@given(collections())
def test_each_change_is_one_record_and_the_order_is_of_the_contents(given) -> None:
    intervals, errors = given
    in_steps, at_once = Topic(), Topic()
    for updates, mistakes in zip(intervals, errors, strict=True):
        in_steps.write(updates, mistakes)
    at_once.write(
        [update for updates in reversed(intervals) for update in updates],
        [row for some in errors for row in some],
    )
    assert len({(time, key) for time, key, _ in at_once.records}) == len(at_once.records)
    assert in_steps.records == at_once.records


def test_a_second_row_with_a_key_stalls_and_heals() -> None:
    topic = Topic()
    settled = topic.write([((1, "a"), 1, 1), ((2, "b"), 2, 1), ((1, "c"), 5, 1)], [])
    assert settled.stall is not None
    assert (settled.stall.time, settled.stall.row, settled.stall.count) == (5, 2, 2)
    assert topic.records == [(1, 1, "a"), (2, 2, "b")]
    settled = topic.write([((3, "d"), 7, 1)], [])
    assert settled.stall is not None
    assert settled.stall.time == 5
    settled = topic.write([((1, "a"), 9, -1)], [])
    assert settled.stall is None
    assert sorted(topic.records[2:]) == [(9, 1, "c"), (9, 3, "d")]


def test_an_error_in_the_collection_stalls() -> None:
    topic = Topic()
    settled = topic.write([((1, "a"), 1, 1), ((1, "a"), 4, -1)], [(0, 3, 1)])
    assert settled.stall is not None
    assert (settled.stall.time, settled.stall.row) == (3, None)
    assert topic.records == [(1, 1, "a")]
    topic.write([], [(0, 6, -1)])
    assert topic.records == [(1, 1, "a"), (6, 1, None)]


def test_one_error_does_not_make_up_for_another() -> None:
    topic = Topic()
    settled = topic.write([((1, "a"), 2, 1)], [(1, 1, 1), (2, 2, -1)])
    assert settled.stall is not None
    assert (settled.stall.time, settled.stall.row, settled.stall.count) == (1, None, 2)
    topic.write([], [(1, 4, -1), (2, 5, 1)])
    assert topic.records == [(5, 1, "a")]


def test_a_negative_count_stalls() -> None:
    settled = Topic().write([((1, "a"), 1, -1)], [])
    assert settled.stall is not None
    assert settled.stall.count == -1


def test_counts_beyond_64_bits_stall() -> None:
    settled = Topic().write([((1, "a"), 1, 1 << 62)] * 4 + [((2, "b"), 1, 1)], [])
    assert settled.stall is not None
    assert settled.stall.count == (1 << 63) - 1
    settled = Topic().write([((1, "a"), 1, 1)], [(0, time, 1 << 62) for time in range(1, 5)])
    assert settled.stall is not None
    assert settled.stall.row is None
    many = [((1, "a"), 1, 1 << 62), ((1, "b"), 1, 1 << 62), ((1, "c"), 1, 1 - (1 << 63))]
    assert isinstance(changes(NO_KEYS, *arrays(many)), ImpossibleRetraction)
    assert isinstance(
        changes(NO_KEYS, *arrays([*many, ((1, "d"), 1, 1 << 62)])), ImpossibleRetraction
    )


def test_taking_away_what_is_not_there_is_impossible() -> None:
    assert changes(
        NO_KEYS, *arrays([((1, "b"), 3, -1), ((1, "c"), 3, 1)])
    ) == ImpossibleRetraction(0)
