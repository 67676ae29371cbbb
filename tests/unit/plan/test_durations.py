"""Durations: what people write, and that what we write is read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.errors import InvalidStatement
from streams.plan.sql.durations import format_duration, milliseconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 hour", 3_600_000),
        ("90s", 90_000),
        ("1 day 12 hours", 129_600_000),
        ("1 Day, 1 MS", 86_400_001),
        ("0 s", 0),
        (" 2 weeks ", 1_209_600_000),
    ],
)
def test_what_people_write(text: str, expected: int) -> None:
    assert milliseconds(text) == expected


@pytest.mark.parametrize(
    "text", ["", " ", "hour", "1", "1 month", "-1 s", "1.5 h", "1 hour x", "9" * 15 + " w"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InvalidStatement, match="expected a duration"):
        milliseconds(text)


@given(st.integers(0, 1 << 40))
def test_what_is_spelled_is_read_back(ms: int) -> None:
    assert milliseconds(format_duration(ms)) == ms


def test_one_and_many() -> None:
    assert format_duration(3_600_000) == "1 hour"
    assert format_duration(90_061_000) == "1 day 1 hour 1 minute 1 second"
    assert format_duration(7_200_500) == "2 hours 500 milliseconds"
    assert format_duration(0) == "0 seconds"
