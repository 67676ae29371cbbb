"""The search for refused rows."""

from hypothesis import given
from hypothesis import strategies as st

from connectors.runtime.dead_letters import Bisection


@given(total=st.integers(0, 300), data=st.data())
def test_it_finds_those_that_are_refused_and_writes_the_others_once(
    total: int, data: st.DataObject
) -> None:
    rows = st.integers(0, max(total - 1, 0))
    refused = data.draw(st.sets(rows, max_size=min(total, 8)))
    search, tries = Bisection(total), 0
    written: list[int] = []
    numbers: list[int] = []
    while search.written < total:
        tried = range(search.written, search.written + search.size)
        if refused & set(tried):
            tries += 1
            if search.refused():
                numbers.append(tried[0])
        else:
            written += tried
            search.accepted()
    assert numbers == sorted(refused)
    assert written == [row for row in range(total) if row not in refused]
    assert tries <= len(refused) * (total.bit_length() + 1)


def test_one_that_dies_is_resumed_at_what_was_written() -> None:
    search = Bisection(10, written=4)
    assert search.size == 6
    search.refused()
    assert search.size == 3
    search.accepted()
    assert (search.written, search.size) == (7, 2)
