"""A stored hydration goes on from what was staged of it, whoever knew of that."""

from dataclasses import replace

import pytest

from streams.ids import Timestamp
from streams.replica.driver.dataflow_state import Build
from streams.replica.driver.hydration_planner import resumed

STORED = Build(
    incarnation="i", lower=Timestamp(5), upper=Timestamp(6), as_of=True, writes=True,
    slices=((), (), ()), sizes=(1, 1, 1), done=1, staged=4,
)  # fmt: skip


@pytest.mark.parametrize(
    ("standing", "ahead"),
    [
        (4, 0),
        (6, 2),  # its driver died between staging and storing
        (0, 0),  # linked by the Append that came last, or the lease ran out: it will be seen
    ],
)
def test_chunks_that_nobody_knew_of_are_the_next_slices(standing: int, ahead: int) -> None:
    assert resumed(STORED, standing) == replace(STORED, ahead=ahead)


def test_the_last_slices_chunks_are_never_staged() -> None:
    last = replace(STORED, done=2)
    assert resumed(last, 4) == last
    assert resumed(last, 5) is None
