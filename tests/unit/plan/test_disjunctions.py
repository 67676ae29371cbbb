"""What is taken out of a disjunction means the same, with NULL too."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.plan.analyses.disjunctions import factor, implied_predicate
from streams.plan.scalar import Call, Form, Literal, Ref, Scalar, refs

COLUMNS = 4
LEAVES = [Ref(index, "BOOLEAN", f"c{index}") for index in range(COLUMNS)]
FAILING = Call(Form.FUNCTION, "error", (LEAVES[0],), "BOOLEAN")

Truth = bool | None


def junctions(parts: st.SearchStrategy[Scalar]) -> st.SearchStrategy[Scalar]:
    several = st.lists(parts, min_size=2, max_size=3).map(tuple)
    forms = st.sampled_from([Form.AND, Form.OR])
    return st.builds(lambda form, of: Call(form, form.value, of, "BOOLEAN"), forms, several)


predicates = st.recursive(st.sampled_from(LEAVES), junctions, max_leaves=9)


def truth(scalar: Scalar, row: tuple[Truth, ...]) -> Truth:
    """A predicate in three-valued logic."""
    if isinstance(scalar, Ref):
        return row[scalar.index]
    assert isinstance(scalar, Call)
    return joined(scalar.form, [truth(part, row) for part in scalar.arguments])


def joined(form: Form, parts: list[Truth]) -> Truth:
    decides = form is Form.OR
    if decides in parts:
        return decides
    return None if None in parts else not decides


@given(predicates)
def test_what_is_factored_is_the_same_on_every_row(predicate: Scalar) -> None:
    parts = list(factor(predicate))
    for row in product([True, False, None], repeat=COLUMNS):
        assert joined(Form.AND, [truth(part, row) for part in parts]) == truth(predicate, row)


@given(predicates, st.frozensets(st.integers(0, COLUMNS - 1)))
def test_what_is_implied_holds_wherever_the_predicate_does(
    predicate: Scalar, places: frozenset[int]
) -> None:
    scalar = implied_predicate(predicate, places)
    if scalar is None:
        return
    assert refs(scalar) <= places
    for row in product([True, False, None], repeat=COLUMNS):
        assert truth(predicate, row) is not True or truth(scalar, row) is True


def both(form: Form, *parts: Scalar) -> Call:
    return Call(form, form.value, parts, "BOOLEAN")


def test_a_shared_key_is_found_at_any_depth() -> None:
    key, one, two, three = LEAVES
    nested = both(
        Form.OR, both(Form.AND, key, one), both(Form.OR, both(Form.AND, two, key), key)
    )
    assert factor(nested) == (key,)
    beside = both(
        Form.AND, three, both(Form.OR, both(Form.AND, key, one), both(Form.AND, key, two))
    )
    assert factor(beside) == (three, key, both(Form.OR, one, two))


def test_what_may_fail_stays_in_its_part() -> None:
    shared = both(
        Form.OR, both(Form.AND, FAILING, LEAVES[1]), both(Form.AND, FAILING, LEAVES[2])
    )
    assert factor(shared) == (shared,)
    assert implied_predicate(shared, frozenset({0})) is None


@pytest.mark.parametrize(
    "predicate", [LEAVES[0], both(Form.AND, *LEAVES), Literal("true", "BOOLEAN", "true")]
)
def test_what_is_no_disjunction_implies_nothing(predicate: Scalar) -> None:
    assert implied_predicate(predicate, frozenset(range(COLUMNS))) is None
