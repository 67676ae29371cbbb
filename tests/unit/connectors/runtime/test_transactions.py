"""Transactions of any collections, against a model of what the endpoint then holds."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.runtime.transactions import (
    BoundCollection,
    Part,
    Position,
    Transaction,
    TransactionCutter,
)
from streams.ids import Timestamp
from streams.storage.description import Description
from streams.trace.kernel.kernel import Kernel

COLUMNS = Description((("k", "BIGINT"), ("v", "VARCHAR")))
KERNEL = Kernel()
BIRTH, END = 10, 20
Update = tuple[int | None, str, int, int]


def updates(rows: list[Update]) -> pa.Table:
    types = [pa.int64(), pa.utf8(), pa.int64(), pa.int64()]
    columns = list(zip(*rows, strict=True)) or [()] * 4
    arrays = [pa.array(c, t) for c, t in zip(columns, types, strict=True)]
    return pa.table(arrays, names=["c0", "c1", "time", "diff"])


def errors(rows: list[tuple[str, int, int]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * 3
    types = [pa.utf8(), pa.int64(), pa.int64()]
    arrays = [pa.array(c, t) for c, t in zip(columns, types, strict=True)]
    return pa.table(arrays, names=["error", "time", "diff"])


def bound(name: str, *, delta: bool = False) -> BoundCollection:
    return BoundCollection(name=name, description=COLUMNS, keys=("k",), delta=delta)


def new(*bounds: BoundCollection, most_rows: int = 1000) -> TransactionCutter:
    positions = [Position(Timestamp(BIRTH), is_begun=False) for _ in bounds]
    return TransactionCutter(bounds, positions, KERNEL, most_rows)


def take(
    cutter: TransactionCutter, index: int, upper: int, rows: list[Update], wrong: Any = ()
) -> None:
    cutter.take(index, updates(rows), errors(list(wrong)), Timestamp(upper))


class Endpoint:
    """What a connector keeps: rows by key, or all changes of delta updates."""

    def __init__(self, cutter: TransactionCutter) -> None:
        self.bindings = cutter.bindings
        self.tables: list[dict[Any, str]] = [{} for _ in self.bindings]
        self.logs: list[Counter[Update]] = [Counter() for _ in self.bindings]
        self.frontier = [BIRTH for _ in self.bindings]

    def commit(self, transaction: Transaction) -> None:
        for index, part in enumerate(transaction.parts):
            if part is None:
                continue
            assert isinstance(part, Part)
            self.frontier[index] = transaction.frontier
            rows = part.rows.to_pylist()
            if self.bindings[index].delta:
                for row in rows:
                    self.logs[index][tuple(row.values())] += 1
                continue
            self.store(self.tables[index], rows, part)
        positions = [position.frontier for position in transaction.positions]
        assert positions == self.frontier

    def store(self, table: dict[Any, str], rows: list[Any], part: Any) -> None:
        assert len({row["c0"] for row in rows}) == len(rows), "a key is stored once"
        before = [(row["c0"], row["c1"]) for row in part.before.to_pylist()]
        here = [(row["c0"], table[row["c0"]]) for row in rows if row["c0"] in table]
        assert before == here, "the rows before are those that are there, in order"
        for row, exists, goes in zip(rows, part.exists, part.deletes, strict=True):
            assert exists == (row["c0"] in table)
            if goes:
                del table[row["c0"]]
                continue
            assert table.get(row["c0"]) != row["c1"], "equal before and after is nothing"
            table[row["c0"]] = row["c1"]


def contents(rows: list[Update], time: int) -> Counter[tuple[Any, str]]:
    counts: Counter[tuple[Any, str]] = Counter()
    for key, value, at, diff in rows:
        if at <= time:
            counts[key, value] += diff
    return Counter({row: count for row, count in counts.items() if count})


def is_sound(rows: list[Update], wrong: list[tuple[str, int, int]], time: int) -> bool:
    now = contents(rows, time)
    keys = Counter(key for key, _ in now.elements())
    alive = Counter[str]()
    for error, at, diff in wrong:
        alive[error] += diff if at <= time else 0
    return (
        all(count == 1 for count in keys.values())
        and None not in keys
        and not any(alive.values())
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Update], list[tuple[str, int, int]]]:
    """Rows that come and go, now and then two of a key or a null one; errors too."""
    rows: list[Update] = []
    checkpoints: list[tuple[int | None, str]] = []
    for time in range(BIRTH - 2, END):
        for _ in range(draw(st.integers(0, 2))):
            goes: bool = draw(st.booleans())
            if checkpoints and goes:
                key, value = checkpoints.pop(draw(st.integers(0, len(checkpoints) - 1)))
                rows.append((key, value, time, -1))
            else:
                key = draw(st.sampled_from([1, 2, 3, 4, 5, None, 6, 7]))
                value = draw(st.sampled_from("ab"))
                checkpoints.append((key, value))
                rows.append((key, value, time, 1))
    wrong = []
    for time in draw(st.lists(st.integers(BIRTH - 1, END - 1), max_size=1)):
        wrong.append(("e", time, 1))
        if draw(st.booleans()):
            wrong.append(("e", draw(st.integers(time, END - 1)), -1))
    return rows, wrong


@given(
    st.lists(histories(), min_size=2, max_size=2),
    st.data(),
    st.sampled_from([1, 3, 1000]),
)
def test_after_each_commit_the_endpoint_is_at_one_time(
    collections: Any, data: st.DataObject, most: int
) -> None:
    cutter = new(bound("a"), bound("b"), most_rows=most)
    endpoint = Endpoint(cutter)
    while min(cutter.upper(0), cutter.upper(1)) < END:
        index = data.draw(st.sampled_from([i for i in (0, 1) if cutter.upper(i) < END]))
        lower = cutter.upper(index)
        upper = data.draw(st.integers(lower + 1, END))
        rows, wrong = collections[index]
        least = 0 if lower == BIRTH else lower
        inside = [row for row in rows if least <= row[2] < upper]
        take(cutter, index, upper, inside, [e for e in wrong if least <= e[1] < upper])
        if data.draw(st.booleans()):
            drain(cutter, endpoint, collections)
    drain(cutter, endpoint, collections)
    for index, (rows, wrong) in enumerate(collections):
        sound = [t for t in range(BIRTH, END) if is_sound(rows, wrong, t)]
        if is_sound(rows, wrong, END - 1):
            assert endpoint.frontier[index] == END, "who has contents is at the end"
        else:
            assert "ab"[index] in cutter.stalls
            assert endpoint.frontier[index] - 1 in [BIRTH - 1, *sound]


def drain(cutter: TransactionCutter, endpoint: Endpoint, collections: Any) -> None:
    while (transaction := cutter.cut()) is not None:
        before = list(endpoint.frontier)
        endpoint.commit(transaction)
        assert endpoint.frontier != before, "a transaction moves a binding"
        for index, (rows, wrong) in enumerate(collections):
            time = endpoint.frontier[index] - 1
            if endpoint.frontier[index] == before[index]:
                continue
            assert is_sound(rows, wrong, time)
            counts = Counter(endpoint.tables[index].items())
            assert counts == contents(rows, time), f"the contents at {time}"


@given(histories(), st.sampled_from([1, 1000]))
def test_delta_updates_are_every_change(history: Any, most: int) -> None:
    rows, _ = history
    cutter = new(bound("log", delta=True), most_rows=most)
    endpoint = Endpoint(cutter)
    take(cutter, 0, END, rows)
    while (transaction := cutter.cut()) is not None:
        endpoint.commit(transaction)
    expected: Counter[tuple[Any, str, int]] = Counter()
    for key, value, time, diff in rows:
        expected[key, value, max(time, BIRTH)] += diff
    (log,) = endpoint.logs
    assert {row[:3]: row[3] for row in log} == {k: n for k, n in expected.items() if n}
    assert set(log.values()) <= {1}
    assert endpoint.frontier == [END]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([(7, "b", 12, 1)], "key (k = 7) is not unique: 2 rows have it at 12"),
        ([(None, "b", 12, 1)], "key (k = None) is null at 12"),
    ],
)
def test_a_binding_whose_key_is_violated_stands_still_alone(
    rows: list[Update], reason: str
) -> None:
    cutter = new(bound("a"), bound("b"))
    take(cutter, 0, 15, [(7, "a", 5, 1), *rows])
    take(cutter, 1, 15, [(1, "x", 5, 1), (2, "y", 14, 1)])
    first = cutter.cut()
    assert first is not None
    assert (first.frontier, first.stalls) == (12, {"a": reason})
    second = cutter.cut()
    assert second is not None
    assert [part is None for part in second.parts] == [True, False]
    assert [position.frontier for position in second.positions] == [12, 15]
    assert cutter.cut() is None
    take(cutter, 0, 17, [(key, value, 16, -1) for key, value, _, _ in rows])
    take(cutter, 1, 17, [])
    healed = cutter.cut()
    assert healed is not None
    assert [position.frontier for position in healed.positions] == [17, 17]
    assert healed.rows == 0
    assert not cutter.stalls


def test_a_collection_in_error_stands_still_too() -> None:
    cutter = new(bound("log", delta=True))
    take(cutter, 0, 15, [(7, "a", 11, 1)], [("no number", 13, 1)])
    transaction = cutter.cut()
    assert transaction is not None
    assert transaction.frontier == 13
    assert transaction.stalls == {"log": "the collection is in error at 13: no number"}


def test_a_row_that_goes_and_was_never_there_stands_still() -> None:
    cutter = new(bound("a"))
    take(cutter, 0, 15, [(7, "a", 5, 1)])
    assert cutter.cut() is not None
    take(cutter, 0, 16, [(8, "b", 15, -1)])
    assert cutter.cut() is None
    reason = "the row with key (k = 8) goes at 15, but is not there"
    assert cutter.stalls == {"a": reason}


def test_what_waits_of_a_binding_that_stands_still_is_bounded() -> None:
    cutter = new(bound("a"), most_rows=10)
    rows: list[Update] = [(1, "a", BIRTH, 1), (1, "b", BIRTH, 1)]
    for time in range(11, 200):
        flip = 1 if time % 2 else -1
        take(cutter, 0, time + 1, [*rows, (2, "x", time, flip)])
        rows = []
        assert cutter.cut() is None
    assert cutter.rows(0) <= 12
    take(cutter, 0, 201, [(1, "b", 200, -1)])
    transaction = cutter.cut()
    assert transaction is not None
    (part,) = transaction.parts
    assert isinstance(part, Part)
    assert part.rows.column("c0").to_pylist() == [1, 2]
