"""The demo's proof finds whatever is wrong with a view, and nothing else."""

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pytest

from streams.demo.check import History, Verdict, spread, verify
from streams.ids import Timestamp
from streams.trace.kernel.kernel import Kernel, arrow_schema

QUERY = "SELECT k, count(*) AS n FROM orders GROUP BY k"
SINCE, UPPER = Timestamp(2), Timestamp(14)
Update = tuple[tuple[int, ...], int, int]

ORDERS: tuple[Update, ...] = (
    ((1, 5), 1, 1),
    ((1, 6), 4, 1),
    ((2, 7), 4, 1),
    ((2, 7), 6, 1),
    ((1, 5), 8, -1),
    ((3, 1), 10, 1),
)
COUNTS: tuple[Update, ...] = (
    ((1, 1), 1, 1),
    ((1, 1), 4, -1),
    ((1, 2), 4, 1),
    ((2, 1), 4, 1),
    ((2, 1), 6, -1),
    ((2, 2), 6, 1),
    ((1, 2), 8, -1),
    ((1, 1), 8, 1),
    ((3, 1), 10, 1),
)


def history(name: str, names: tuple[str, ...], updates: Sequence[Update]) -> History:
    rows = [(*row, time, diff) for row, time, diff in updates]
    columns = [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)]
    schema = arrow_schema(["BIGINT"] * len(names))
    return History(name, names, pa.Table.from_arrays(columns, schema=schema), SINCE, UPPER)


def verdicts(view: Sequence[Update], times: int = 100) -> list[Verdict]:
    views = {"counts": (QUERY, history("counts", ("k", "n"), view))}
    return list(verify(views, [history("orders", ("k", "v"), ORDERS)], Kernel(), times))


def wrong_at(view: Sequence[Update]) -> set[int]:
    return {verdict.time for verdict in verdicts(view) if verdict.wrong}


def without(view: Sequence[Update], *updates: Update) -> list[Update]:
    return list((Counter(view) - Counter(updates)).elements())


def test_a_right_view_is_right_at_every_time() -> None:
    verdicts_ = verdicts(COUNTS)
    assert [verdict.time for verdict in verdicts_] == list(range(SINCE, UPPER))
    assert not wrong_at(COUNTS)
    assert verdicts_[-1].rows == 3


@pytest.mark.parametrize(
    ("planted", "wrong"),
    [
        pytest.param(
            [*without(COUNTS, ((3, 1), 10, 1)), ((3, 2), 10, 1)], range(10, 14), id="wrong row"
        ),
        pytest.param(without(COUNTS, ((3, 1), 10, 1)), range(10, 14), id="missing row"),
        pytest.param([*COUNTS, ((2, 2), 8, 1)], range(8, 14), id="row twice"),
        pytest.param(without(COUNTS, ((1, 1), 4, -1)), range(4, 14), id="row that stays"),
        pytest.param(
            [*without(COUNTS, ((3, 1), 10, 1)), ((3, 1), 12, 1)], range(10, 12), id="late"
        ),
        pytest.param(
            [*without(COUNTS, ((3, 1), 10, 1)), ((3, 1), 9, 1)], range(9, 10), id="early"
        ),
    ],
)
def test_what_is_planted_is_found_at_its_times(planted: list[Update], wrong: range) -> None:
    assert wrong_at(planted) == set(wrong)


@pytest.mark.parametrize("by", [1, -1])
def test_a_view_that_is_wrong_for_one_time_only_is_found_among_few(by: int) -> None:
    planted = [*without(COUNTS, ((3, 1), 10, 1)), ((3, 1), 10 + by, 1)]
    assert [verdict.time for verdict in verdicts(planted, 7) if verdict.wrong] == [
        min(10, 10 + by)
    ]


def test_times_are_spread_over_the_changes_and_both_ends() -> None:
    assert spread(Timestamp(0), Timestamp(1000), [5, 600, 2000], 4) == [0, 5, 600, 999]
    assert spread(Timestamp(3), Timestamp(6), [], 25) == [3, 4, 5]
    assert len(spread(Timestamp(0), Timestamp(10**12), range(0, 10**6, 7), 25)) == 25
