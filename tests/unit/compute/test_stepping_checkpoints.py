"""Which records and run files are needed, and how a hydration is divided: rules 19, 20, 24."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.compute.checkpoints import (
    Checkpoint,
    HydrationCheckpoint,
    newest,
    of_fingerprint,
    removable,
    retained,
    slices,
    usable_hydration,
)
from streams.ids import Timestamp
from streams.progress import EMPTY, frontier


def checkpoint(at: int, *runs: str, fingerprint: str = "f") -> Checkpoint:
    return Checkpoint(fingerprint, "i", Timestamp(at), frozenset(runs))


HYDRATION = HydrationCheckpoint(
    "f", "i", Timestamp(9), slices=3, done=1, runs=frozenset({"r1"}), chunks=frozenset({"c1"})
)


def test_rule_19_a_record_goes_when_a_later_one_is_known_to_be_appended() -> None:
    ten, twenty, thirty = checkpoint(10), checkpoint(20), checkpoint(30)
    assert retained([ten, twenty, thirty], frontier(19)) == (ten, twenty, thirty)
    assert retained([ten, twenty, thirty], frontier(20)) == (twenty, thirty)
    assert retained([ten, twenty, thirty], EMPTY) == (thirty,)
    assert retained([thirty], frontier(19)) == (thirty,)


def test_rule_19_a_run_file_goes_when_nobody_names_it() -> None:
    names = ["r1", "r2", "r3", "r4"]
    assert removable(names, [checkpoint(10, "r1"), HYDRATION], [["r3"]]) == {"r2", "r4"}
    assert removable(names, [], []) == set(names)


def test_rule_24_state_of_another_fingerprint_is_not_ours() -> None:
    old, new = checkpoint(10, fingerprint="old"), checkpoint(8, fingerprint="new")
    assert of_fingerprint([old, new], "new") == (new,)


def test_the_newest_record_is_not_beyond_the_shard() -> None:
    assert newest([checkpoint(10), checkpoint(20)], frontier(15)) == checkpoint(10)
    assert newest([checkpoint(20)], frontier(15)) is None


def test_rule_20_a_hydration_of_which_a_part_is_lost_is_worth_nothing() -> None:
    assert usable_hydration(HYDRATION, "f", {"c1", "c2"}, {"r1"}) == HYDRATION
    assert usable_hydration(HYDRATION, "g", {"c1", "c2"}, {"r1"}) is None
    assert usable_hydration(HYDRATION, "f", {"c2"}, {"r1"}) is None
    assert usable_hydration(HYDRATION, "f", {"c1"}, set()) is None
    assert usable_hydration(None, "f", {"c1"}, {"r1"}) is None


def test_a_hydration_is_complete_after_its_last_slice() -> None:
    assert not HYDRATION.complete
    assert replace(HYDRATION, done=3).complete


@pytest.mark.parametrize(
    ("sizes", "budget", "expected"),
    [
        ([], 10, [range(0)]),
        ([3, 3, 3], 9, [range(3)]),
        ([3, 3, 3], 8, [range(2), range(2, 3)]),
        ([50, 1, 1, 50], 10, [range(1), range(1, 3), range(3, 4)]),
    ],
)
def test_slices(sizes: list[int], budget: int, expected: list[range]) -> None:
    assert list(slices(sizes, budget)) == expected


@given(st.lists(st.integers(0, 20)), st.integers(1, 30))
def test_slices_take_every_chunk_once_and_fit(sizes: list[int], budget: int) -> None:
    divided = slices(sizes, budget)
    assert [position for part in divided for position in part] == list(range(len(sizes)))
    assert all(len(part) <= 1 or sum(sizes[i] for i in part) <= budget for part in divided)
