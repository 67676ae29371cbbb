"""A value is what a frozen dataclass is, but for the check at run time."""

import pickle

from streams.values import value


@value(frozen=True, slots=True, order=True)
class Point:
    x: int
    y: tuple[int, ...] = ()


def test_a_value_is_compared_hashed_and_pickled_by_its_fields() -> None:
    one, same, other = Point(1, (2,)), Point(1, (2,)), Point(1, (3,))
    assert one == same != other
    assert {one: "found"}[same] == "found"
    assert one < other
    assert pickle.loads(pickle.dumps(one)) == one
