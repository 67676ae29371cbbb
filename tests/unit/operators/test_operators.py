"""Every operator against the model at every time, under any cut of time and layout of runs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.operators import engine, interesting_times, join, upsert
from streams.plan.physical import (
    Aggregate,
    Constant,
    Dataflow,
    Distinct,
    Expression,
    Join,
    Linear,
    Reduce,
    Union,
    Upsert,
)
from streams.trace.columns import hash_keys
from tests.model import collection as model
from tests.model.collection import Contents, Row, Update
from tests.support.examples import examples
from tests.support.flows import LAST, cuts, dataflow, histories, layouts, run

small = st.one_of(st.none(), st.integers(0, 3))
text = st.sampled_from([None, "", "a", "ä", "a text of more than twelve bytes", "b"])
pairs = st.tuples(small, text)
values = st.one_of(st.none(), st.integers(-5, 5), st.sampled_from([2**63 - 1, -(2**63)]))


def agree(flow: Dataflow, inputs: Sequence[Sequence[Update]], history: Any, want: Any) -> None:
    for time in range(LAST + 2):
        rows = [model.contents(updates, time) for updates in inputs]
        assert history.at(time) == want(*rows), f"at {time}"
        assert not history.errors_at(time)


@given(histories(pairs), cuts(), layouts())
@examples(15)
def test_linear(updates: list[Update], uppers: list[int], layout: Mapping[str, int]) -> None:
    positive = Expression("c0 > 0", "BOOLEAN", "x0 > 0")
    outputs = (
        Expression("c1", "VARCHAR", "x1"),
        Expression("c0 + 1", "INTEGER", "x0 + 1"),
    )
    node = Linear(0, (positive,), outputs)
    flow = dataflow([["INTEGER", "VARCHAR"]], (node, ["VARCHAR", "INTEGER"], 0))

    def want(rows: Contents) -> Contents:
        counts: Contents = Counter()
        for (number, word), count in rows.items():
            if number is not None and number > 0:
                counts[word, number + 1] += count
        return counts

    agree(flow, [updates], run(flow, [updates], uppers, **layout), want)


@given(histories(pairs), histories(pairs), cuts(), layouts(), st.booleans(), st.booleans())
@examples(40)
def test_join(
    left: list[Update],
    right: list[Update],
    uppers: list[int],
    layout: Mapping[str, int],
    null_equal: bool,
    both: bool,
) -> None:
    keys = (0, 1) if both else (0,)
    types = ["INTEGER", "VARCHAR"]
    node = Join(0, 1, keys, keys, (null_equal,) * len(keys))
    flow = dataflow([types, types], (node, types * 2, 1))

    def matches(one: Row, other: Row) -> bool:
        return all(one[k] == other[k] and (null_equal or one[k] is not None) for k in keys)

    agree(
        flow,
        [left, right],
        run(flow, [left, right], uppers, **layout),
        lambda a, b: model.join(a, b, matches),
    )


@given(histories(pairs), cuts(), layouts())
@examples(10)
def test_self_join_without_keys(
    updates: list[Update], uppers: list[int], layout: Mapping[str, int]
) -> None:
    types = ["INTEGER", "VARCHAR"]
    flow = dataflow([types], (Join(0, 0, (), (), ()), types * 2, 1))
    history = run(flow, [updates], uppers, **layout)
    agree(flow, [updates], history, lambda a: model.join(a, a, lambda *_: True))


@given(histories(pairs), cuts(), layouts())
@examples(25)
def test_distinct(updates: list[Update], uppers: list[int], layout: Mapping[str, int]) -> None:
    types = ["INTEGER", "VARCHAR"]
    flow = dataflow([types], (Distinct(0), types, 1))
    agree(flow, [updates], run(flow, [updates], uppers, **layout), model.distinct)


@given(histories(pairs), histories(pairs), cuts(), layouts())
@examples(10)
def test_union(
    one: list[Update], other: list[Update], uppers: list[int], layout: Mapping[str, int]
) -> None:
    types = ["INTEGER", "VARCHAR"]
    constant = Constant("SELECT 7 AS c0, 'seven' AS c1")
    flow = dataflow([types, types], (constant, types, 1), (Union((0, 1, 1, 2)), types, 1))

    def want(a: Contents, b: Contents) -> Contents:
        return a + b + b + Counter([(7, "seven")])

    agree(flow, [one, other], run(flow, [one, other], uppers, **layout), want)


AGGREGATES = (
    Aggregate("count", None, "BIGINT"),
    Aggregate("count", 1, "BIGINT"),
    Aggregate("sum", 1, "DECIMAL(38,0)"),
    Aggregate("avg", 1, "DOUBLE"),
    Aggregate("min", 1, "BIGINT"),
    Aggregate("max", 1, "BIGINT"),
    Aggregate("min", 2, "VARCHAR"),
    Aggregate("max", 2, "VARCHAR"),
    Aggregate("count", 1, "BIGINT", distinct=True),
    Aggregate("sum", 1, "DECIMAL(38,0)", distinct=True),
    Aggregate("count", 2, "BIGINT", distinct=True),
)
AGGREGATE_TYPES = [aggregate.type for aggregate in AGGREGATES]


def aggregated(members: list[Row]) -> Row:
    numbers = [row[1] for row in members if row[1] is not None]
    words = [row[2] for row in members if row[2] is not None]
    ordered = sorted(words, key=lambda word: word.encode())
    unique = set(numbers)
    return (
        len(members),
        len(numbers),
        Decimal(sum(numbers)) if numbers else None,
        float(sum(numbers)) / len(numbers) if numbers else None,
        min(numbers, default=None),
        max(numbers, default=None),
        ordered[0] if ordered else None,
        ordered[-1] if ordered else None,
        len(unique),
        Decimal(sum(unique)) if unique else None,
        len(set(words)),
    )


@given(
    histories(st.tuples(small, values, text)), cuts(), layouts(), st.sampled_from([(0,), ()])
)
@examples(60)
def test_reduce(
    updates: list[Update], uppers: list[int], layout: Mapping[str, int], keys: tuple[int, ...]
) -> None:
    types = ["INTEGER", "BIGINT", "VARCHAR"]
    types_ = [types[key] for key in keys] + AGGREGATE_TYPES
    flow = dataflow([types], (Reduce(0, keys, AGGREGATES), types_, 1))
    agree(
        flow,
        [updates],
        run(flow, [updates], uppers, **layout),
        lambda rows: model.reduce(rows, keys, aggregated),
    )


@given(histories(st.tuples(small, values, text)), cuts())
@examples(20)
def test_reduce_without_its_hash(updates: list[Update], uppers: list[int]) -> None:
    """Keys whose hashes collide stay apart: the key columns decide, not the hash."""

    def colliding(keys: Any, rows: int) -> Any:
        return hash_keys(keys, rows) & np.uint64(1)

    types = ["INTEGER", "BIGINT", "VARCHAR"]
    reduced = dataflow([types], (Reduce(0, (0,), AGGREGATES), ["INTEGER", *AGGREGATE_TYPES], 1))
    joined = dataflow([types], (Join(0, 0, (1,), (1,), (False,)), types * 2, 1))
    with pytest.MonkeyPatch.context() as patch:
        for module in (engine, join, interesting_times, upsert):
            patch.setattr(module, "hash_keys", colliding)
        patch.setattr(join, "is_exact", lambda keys: False)
        history = run(reduced, [updates], uppers, merge_factor=1)
        agree(reduced, [updates], history, lambda rows: model.reduce(rows, (0,), aggregated))
        history = run(joined, [updates], uppers, merge_factor=1)
        agree(
            joined,
            [updates],
            history,
            lambda rows: model.join(rows, rows, lambda a, b: a[1] == b[1] and a[1] is not None),
        )


@st.composite
def messages(draw: st.DrawFn) -> list[Update]:
    count = draw(st.integers(0, 20))
    outputs = []
    for position in draw(st.permutations(range(count))):
        kind = draw(st.sampled_from([0, 0, 0, 1, 2]))
        row = (
            draw(small),
            draw(text),
            position,
            kind,
            f"bad {position % 3}" if kind == 2 else None,
        )
        outputs.append((row, draw(st.integers(0, LAST)), 1))
    return outputs


@given(messages(), cuts(), layouts())
@examples(40)
def test_upsert(updates: list[Update], uppers: list[int], layout: Mapping[str, int]) -> None:
    types = ["INTEGER", "VARCHAR", "BIGINT", "UTINYINT", "VARCHAR"]
    flow = dataflow([types], (Upsert(0, (0,)), types[:2], 1))
    history = run(flow, [updates], uppers, **layout)
    for time in range(LAST + 2):
        last = model.latest(updates, time, (0,))
        assert history.at(time) == Counter(row[:2] for row in last if row[3] == 0)
        assert history.errors_at(time) == Counter(row[4] for row in last if row[3] == 2)


@st.composite
def dated_messages(draw: st.DrawFn) -> tuple[list[Update], list[int]]:
    """Messages at their event times, or late at the lower of an interval; and the uppers.

    Keys are deleted only if nothing is late.
    """
    uppers = draw(cuts())
    has_late = draw(st.booleans())
    updates = []
    for position in draw(st.permutations(range(draw(st.integers(0, 20))))):
        event_time = draw(st.integers(0, LAST))
        lowers = [upper for upper in uppers if event_time < upper <= LAST] if has_late else []
        time = draw(st.sampled_from([event_time, event_time, *lowers]))
        kind = 0 if has_late else draw(st.sampled_from([0, 0, 1]))
        row = (draw(small), draw(text), position, kind, None, event_time)
        updates.append((row, time, 1))
    return updates, uppers


@given(dated_messages(), layouts())
@examples(60)
def test_upsert_by_event_time(
    drawn: tuple[list[Update], list[int]], layout: Mapping[str, int]
) -> None:
    updates, uppers = drawn
    types = ["INTEGER", "VARCHAR", "BIGINT", "UTINYINT", "VARCHAR", "BIGINT"]
    flow = dataflow([types], (Upsert(0, (0,), dated=True), types[:2], 1))
    history = run(flow, [updates], uppers, **layout)
    for time in range(LAST + 2):
        last: dict[Any, tuple[Any, Row]] = {}
        for row, at, _ in updates:
            rank = (row[5], at, row[2])
            if at <= time and (row[0] not in last or last[row[0]][0] < rank):
                last[row[0]] = (rank, row)
        rows = Counter(row[:2] for _, row in last.values() if row[3] == 0)
        assert history.at(time) == rows


def test_an_unchanged_row_is_not_emitted_again() -> None:
    types = ["INTEGER", "VARCHAR", "BIGINT", "UTINYINT", "VARCHAR"]
    flow = dataflow([types], (Upsert(0, (0,)), types[:2], 1))
    same = [((1, "a", place, 0, None), place, 1) for place in range(3)]
    history = run(flow, [same], [1, 3])
    assert sum(output.num_rows for output in history.outputs) == 1


def test_levels_are_chained() -> None:
    """Reduce over a join over a distinct, three exchanges deep, with four buckets."""
    types = ["INTEGER", "VARCHAR"]
    flow = dataflow(
        [types, types],
        (Distinct(0), types, 1),
        (Join(2, 1, (1,), (1,), (False,)), types * 2, 2),
        (Reduce(3, (0,), (Aggregate("count", None, "BIGINT"),)), ["INTEGER", "BIGINT"], 3),
    )
    left_updates: list[Update] = [((n % 3, "ab"[n % 2]), n, 1) for n in range(6)]
    left_updates += [((0, "a"), 5, -1)]
    right: list[Update] = [((n, "ab"[n % 2]), n % 4, 1) for n in range(8)]
    history = run(flow, [left_updates, right], [2, 3, LAST + 2], buckets=4)

    def want(a: Contents, b: Contents) -> Contents:
        joined = model.join(model.distinct(a), b, lambda one, other: one[1] == other[1])
        return model.reduce(joined, (0,), lambda members: (len(members),))

    agree(flow, [left_updates, right], history, want)
