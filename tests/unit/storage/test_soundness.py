"""Which errors are alive, whatever their diffs add up to."""

import pyarrow as pa
import pytest

from streams.ids import Timestamp
from streams.operators.context import ERRORS
from streams.storage.read.soundness import first_error, present_errors
from streams.trace.exact.diffs import DiffOverflow

HALF = 1 << 62


def errors(*rows: tuple[str, int, int]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(ERRORS.names, row, strict=True)) for row in rows], schema=ERRORS
    )


def test_an_error_is_alive_while_its_diffs_do_not_add_up_to_zero() -> None:
    some = errors(("b", 1, 1), ("a", 1, 2), ("a", 3, -2), ("c", 2, 1), ("c", 2, -1))
    assert present_errors(some, Timestamp(0)).num_rows == 0
    assert present_errors(some, Timestamp(2)).to_pylist() == [
        {"error": "a", "diff": 2},
        {"error": "b", "diff": 1},
    ]
    assert present_errors(some, Timestamp(3)).to_pylist() == [{"error": "b", "diff": 1}]
    assert first_error(some) == 1
    assert first_error(errors(("c", 2, 1), ("c", 2, -1))) is None
    assert first_error(errors()) is None


def test_sums_beyond_64_bits_do_not_wrap_around_to_none() -> None:
    many = errors(*[("a", 1, HALF)] * 4)
    with pytest.raises(DiffOverflow):
        present_errors(many, Timestamp(1))
    with pytest.raises(DiffOverflow):
        first_error(many)
