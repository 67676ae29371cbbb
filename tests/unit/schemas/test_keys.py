"""Keys of output topics: bytes that sort as the values do."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import keys

DECIMALS = st.integers(-(10**12), 10**12).map(lambda digits: Decimal(digits).scaleb(-3))
COLUMNS = [
    st.integers(-(1 << 126), 1 << 126),
    st.text(alphabet=st.characters(codec="utf-8")),
    st.binary(),
    st.floats(allow_nan=False).map(lambda value: value + 0.0),
    st.booleans(),
    DECIMALS,
    st.dates(),
    st.datetimes(),
    st.times(),
    st.timedeltas(min_value=timedelta(days=-9999), max_value=timedelta(days=9999)),
    st.uuids(),
    st.lists(st.integers()),
]


@given(st.data(), st.integers(0, len(COLUMNS) - 1))
def test_key_bytes_sort_as_keys(data: st.DataObject, column: int) -> None:
    values = data.draw(st.lists(COLUMNS[column], min_size=2, max_size=8))
    rows = [(value, number) for number, value in enumerate(values)]
    assert sorted(rows) == sorted(rows, key=keys.pack)


@given(st.data(), st.integers(0, len(COLUMNS) - 1))
def test_null_sorts_before_every_value(data: st.DataObject, column: int) -> None:
    assert keys.pack([None]) < keys.pack([data.draw(COLUMNS[column])])


def test_elements_are_spelled_out() -> None:
    row = [
        Decimal("1.50"),
        date(2013, 1, 2),
        datetime(2013, 1, 2, 3, 4, 5, tzinfo=UTC),
        time(3, 4),
        timedelta(seconds=1),
        UUID(int=7),
        [1, None],
        {"a": "x", "b": 2},
    ]
    assert keys.unpack(keys.pack(row)) == (
        150,
        "2013-01-02",
        "2013-01-02T03:04:05.000000+00:00",
        "03:04:00.000000",
        1_000_000,
        UUID(int=7),
        (1, None),
        ("x", 2),
    )


def test_what_no_column_holds_is_refused() -> None:
    with pytest.raises(TypeError, match="actual object"):
        keys.pack([object()])
