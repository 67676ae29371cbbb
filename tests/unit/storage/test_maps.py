"""A persistent map is a dict that leaves the one before as it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.storage.log.persistent_map import SMALL, Map

KEYS = st.integers(0, 3 * SMALL)


@given(
    st.integers(0, 2 * SMALL),
    st.lists(st.tuples(st.booleans(), KEYS, st.integers(1, 9)), max_size=200),
)
def test_a_map_is_a_dict(size: int, changes: list[tuple[bool, int, int]]) -> None:
    expected = dict.fromkeys(range(size), 1)
    map_ = Map(expected)
    history = []
    for is_set, key, value in changes:
        history.append((map_, dict(expected)))
        map_ = map_.set(key, value) if is_set else map_.remove(key)
        if is_set:
            expected[key] = value
        else:
            expected.pop(key, None)
    history.append((map_, expected))
    for one, same in history:
        assert one == same
        assert (len(one), set(one), set(one.keys())) == (len(same), set(same), set(same))
        assert dict(one.items()) == same
        assert sorted(one.values()) == sorted(same.values())
        for key in range(3 * SMALL):
            assert (key in one) == (key in same)
            assert one.get(key) == same.get(key)
            assert one.get(key, "none") == same.get(key, "none")


def test_many_entries_at_once_are_each_set() -> None:
    map_ = Map({1: 1}).update({1: 2, 3: 4}).update({number: number for number in range(90)})
    assert map_ == {number: number for number in range(90)}


def test_what_is_not_there_is_said() -> None:
    for map_ in (Map({1: 1}), Map(dict.fromkeys(range(90), 1)).remove(5)):
        with pytest.raises(KeyError):
            map_[5]
