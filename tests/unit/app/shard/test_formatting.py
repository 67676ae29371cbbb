"""Numbers and times as people read and write them."""

import pytest

from streams.app.shard.formatting import bytes_text, duration_text, parse_time, time_text
from streams.errors import InvalidUsage
from streams.progress import EMPTY, frontier


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (5 << 40, "5 TiB")],
)
def test_sizes(size, text) -> None:
    assert bytes_text(size) == text


@pytest.mark.parametrize(
    ("ms", "text"), [(999, "999 ms"), (1_500, "1.5 s"), (90_000, "1.5 min"), (36e5, "1.0 h")]
)
def test_durations(ms, text) -> None:
    assert duration_text(ms) == text


def test_a_frontier_has_its_date_and_an_empty_one_its_meaning() -> None:
    assert time_text(frontier(7), "sealed") == "7"
    assert time_text(frontier(1_785_000_000_000), "x") == (
        "1785000000000 (2026-07-25T17:20:00.000Z)"
    )
    assert time_text(EMPTY, "sealed") == "{} (sealed)"


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("0", 0),
        ("1785000000000", 1_785_000_000_000),
        ("2026-07-25T17:20:00Z", 1_785_000_000_000),
        ("2026-07-25T19:20:00.001+02:00", 1_785_000_000_001),
    ],
)
def test_times(text, time) -> None:
    assert parse_time(text) == time


@pytest.mark.parametrize(
    "text", ["yesterday", "-1", "1e3", "1.5", "2026-07-25T12:00:00", "9223372036854775807", "²"]
)
def test_what_is_no_time_is_refused_with_what_was_expected(text) -> None:
    with pytest.raises(InvalidUsage, match="expected") as raised:
        parse_time(text)
    assert text in str(raised.value)


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59Z"])
def test_a_date_before_the_epoch_is_refused(text) -> None:
    with pytest.raises(InvalidUsage, match="expected a time from 0"):
        parse_time(text)
