"""Threshold and joins with residual predicates, against the model at every time."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.operators import join
from streams.operators.threshold import BEYOND, MOST, NEGATIVE, SEVERAL
from streams.plan.physical import MARKED, Expression, Join, Rule, Threshold
from tests.model import collection as model
from tests.model.collection import Contents, Update
from tests.support.examples import examples
from tests.support.flows import LAST, cuts, dataflow, histories, layouts, run

TYPES = ["INTEGER", "VARCHAR"]
rows = st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from([None, "a"]))
anything = st.lists(
    st.tuples(rows, st.integers(0, LAST), st.sampled_from([-2, -1, 1, 2])), max_size=12
)


def wanted(rule: Rule, counts: tuple[Contents, ...]) -> Contents:
    """The rule, row by row; the mark behind the row."""
    result: Contents = Counter()
    for row in {row for count in counts for row in count}:
        n = [max(count[row], 0) for count in counts]
        results = {
            Rule.INTERSECT_ALL: min(n[0], n[1]),
            Rule.EXCEPT_ALL: max(n[0] - n[1], 0),
            Rule.INTERSECT: int(n[0] > 0 and n[1] > 0),
            Rule.EXCEPT: int(n[0] > 0 and not n[1]),
            Rule.WITH: n[0] if n[1] else 0,
            Rule.WITHOUT: 0 if n[1] else n[0],
            Rule.BUT_ONE: max(n[0] - (n[1] > 0), 0),
            Rule.MARK: n[0],
            Rule.SINGLE: n[0] if not n[1] or n[1] > n[0] else 0,
            Rule.BOUNDED: n[0] if n[0] <= MOST else 0,
        }[rule]
        mark = True if n[1] else None if len(n) > 2 and n[2] else False
        if rule is Rule.SINGLE and n[1]:
            mark = None
        if results:
            result[(*row, mark) if rule in MARKED else row] = results
    return result


def failing(rule: Rule, counts: tuple[Contents, ...]) -> Counter[str]:
    errors: Counter[str] = Counter()
    for row in {row for count in counts for row in count}:
        errors[NEGATIVE] += any(count[row] < 0 for count in counts)
        if rule is Rule.SINGLE and counts[1][row] > counts[0][row]:
            errors[SEVERAL] += max(counts[0][row], 0)
        errors[BEYOND] += rule is Rule.BOUNDED and counts[0][row] > MOST
    return +errors


@pytest.mark.parametrize("rule", Rule)
@given(st.data(), cuts(), layouts())
@examples(12)
def test_a_row_is_there_as_often_as_the_rule_says(
    rule: Rule, data: st.DataObject, uppers: list[int], layout: Mapping[str, Any]
) -> None:
    count = data.draw(st.integers(2, 3)) if rule is Rule.MARK else 2
    inputs = [data.draw(st.one_of(histories(rows), anything)) for _ in range(count)]
    keys = data.draw(st.sampled_from([(0, 1), (1,), ()]))
    types = [*TYPES, "BOOLEAN"] if rule in MARKED else TYPES
    node = Threshold(tuple(range(count)), keys, rule)
    history = run(dataflow([TYPES] * count, (node, types, 1)), inputs, uppers, **layout)
    for time in range(LAST + 2):
        counts = tuple(model.contents(updates, time) for updates in inputs)
        assert history.at(time) == wanted(rule, counts), f"at {time}"
        assert history.errors_at(time) == failing(rule, counts), f"at {time}"


@given(histories(rows), histories(rows), cuts(), layouts(), st.booleans())
@examples(30)
def test_a_residual_judges_each_pair(
    left: list[Update],
    right: list[Update],
    uppers: list[int],
    layout: Mapping[str, Any],
    keyed: bool,
) -> None:
    less = Expression("(10 // (c0 - 1)) >= c2", "BOOLEAN", "10 // (x0 - 1) >= x2")
    keys = (1,) if keyed else ()
    node = Join(0, 1, keys, keys, (True,) * len(keys), (less,))
    flow = dataflow([TYPES, TYPES], (node, TYPES * 2, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join, "MOST_PAIRS", 3)
        history = run(flow, [left, right], uppers, **layout)

    def meets(one: Any, two: Any) -> bool:
        return not keyed or one[1] == two[1]

    for time in range(LAST + 2):
        ours, theirs = model.contents(left, time), model.contents(right, time)
        expected = model.join(
            ours,
            theirs,
            lambda one, two: (
                meets(one, two) and one[0] == 2 and two[0] is not None and two[0] <= 10
            ),
        )
        assert history.at(time) == expected, f"at {time}"
        bad = model.join(ours, theirs, lambda one, two: meets(one, two) and one[0] == 1)
        assert sum(history.errors_at(time).values()) == sum(bad.values()), f"at {time}"


def test_a_count_beyond_all_bounds_is_an_error_that_heals() -> None:
    """Before it doubles until it is nothing."""
    row = (1, "a")
    updates = [(row, 0, MOST), (row, 2, 1), (row, 4, -1), ((2, "a"), 1, 1)]
    node = Threshold((0,), (0, 1), Rule.BOUNDED)
    history = run(dataflow([TYPES], (node, TYPES, 1)), [updates], [1, 3, 6])
    for time in range(6):
        counts = (model.contents(updates, time),)
        assert history.at(time) == wanted(Rule.BOUNDED, (*counts, Counter())), f"at {time}"
        assert history.errors_at(time) == failing(Rule.BOUNDED, counts), f"at {time}"
    assert history.errors_at(3) == Counter({BEYOND: 1})
