"""Pending updates: what is due comes once and at its time, whatever runs hold it."""

import itertools
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.trace.arrange import pending
from streams.trace.arrange.runs import PIECE, Run, RunFiles, RunName
from streams.trace.kernel.kernel import arrow_schema
from tests.support.examples import examples
from tests.support.flows import kernel, table

TYPES = ["INTEGER", "VARCHAR"]
Sum = Counter[tuple[int | None, str | None, int]]
rows = st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from([None, "a"]))
waits = st.lists(st.tuples(rows, st.integers(0, 9), st.sampled_from([-1, 1, 2])), max_size=8)


def files(directory: str, merge_factor: int = 2, piece: int = PIECE) -> RunFiles:
    names = map("run{}".format, itertools.count())
    return RunFiles(Path(directory), names.__next__, merge_factor=merge_factor, piece=piece)


def batch(updates: list[tuple[tuple[int | None, str | None], int, int]]) -> pa.RecordBatch:
    batches = table(updates, TYPES).combine_chunks().to_batches()
    empty = pa.RecordBatch.from_pylist([], schema=arrow_schema(TYPES))
    return batches[0] if batches else empty


def summed(batches: list[pa.RecordBatch]) -> Sum:
    counts: Sum = Counter()
    for fetched in batches:
        for row in fetched.to_pylist():
            counts[row["c0"], row["c1"], row["time"]] += row["diff"]
    return Counter({key: count for key, count in counts.items() if count})


@given(
    st.lists(waits, max_size=6),
    st.integers(0, 1000),
    st.sampled_from([0, 1, 2, 1000]),
    st.sampled_from([1, 100, PIECE]),
)
@examples(60)
def test_each_update_is_due_once_at_its_time(
    steps: list[list[tuple[tuple[int | None, str | None], int, int]]],
    salt: int,
    factor: int,
    piece: int,
) -> None:
    """Each step adds updates that wait some time, then takes what is due."""
    with tempfile.TemporaryDirectory() as directory:
        runs, names = files(directory, factor, piece), list[RunName]()
        expected: Sum = Counter()
        for number, step in enumerate([*steps, []]):
            upper = 3 * number + salt % 3 + 1
            later = [(row, upper + wait, diff) for row, wait, diff in step]
            names = pending.insert(runs, names, batch(later), kernel())
            for (one, two), time, diff in later:
                expected[one, two, time] += diff
            upper += 3
            due, names = pending.take(runs, names, upper)
            here = {key: count for key, count in expected.items() if key[2] < upper and count}
            assert summed(due) == here
            expected = Counter({key: n for key, n in expected.items() if key[2] >= upper})
            left = [key[2] for key, count in expected.items() if count]
            next_ = pending.next_due(names)
            assert next_ is None or next_ >= upper
            if left:
                assert next_ is not None
                assert next_ <= min(left), "it would be slept through"
        due, names = pending.take(runs, names, 1 << 40)
        assert names == []
        assert summed(due) == {key: count for key, count in expected.items() if count}


def test_what_is_taken_back_before_its_time_leaves_no_run() -> None:
    with tempfile.TemporaryDirectory() as directory:
        runs = files(directory)
        names = pending.insert(runs, [], batch([((1, "a"), 50, 1)]), kernel())
        assert pending.next_due(names) == 50
        names = pending.insert(runs, names, batch([((1, "a"), 50, -1)]), kernel())
        assert names == []


def test_runs_of_which_nothing_is_due_are_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as directory:
        runs = files(directory, merge_factor=0)
        names = pending.insert(runs, [], batch([((1, "a"), 5, 1)]), kernel())
        names = pending.insert(runs, names, batch([((2, "a"), 50, 1)]), kernel())
        opened: list[RunName] = []
        really = RunFiles.open

        def opens(self: RunFiles, some: list[RunName]) -> list[Run]:
            opened.extend(some)
            return really(self, some)

        monkeypatch.setattr(RunFiles, "open", opens)
        due, remaining = pending.take(runs, names, 10)
        assert summed(due) == {(1, "a", 5): 1}
        assert opened == names[:1]
        assert remaining == names[1:]
