"""Formats numbers and times for people, and parses times that people write. Pure."""

from datetime import UTC, datetime, timedelta

from streams.errors import InvalidUsage
from streams.ids import MINIMUM_TIME, Timestamp
from streams.progress import END, Antichain

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_A_DATE_MS = 31_536_000_000  # a year: a smaller time is not a date, but a client's own count
_LAST_DATE_MS = 253_402_300_799_999


def bytes_text(size: int) -> str:
    """A size with the unit that suits it."""
    value, unit = float(size), _UNITS[0]
    for unit in _UNITS:
        if value < _STEP or unit == _UNITS[-1]:
            break
        value /= _STEP
    return f"{value:.0f} {unit}" if value == int(value) else f"{value:.1f} {unit}"


def count_text(count: int, singular: str, many: str) -> str:
    """A number of things."""
    return f"{count:,} {singular if count == 1 else many}"


def share_text(share: float) -> str:
    """A share from 0 to 1 as a percentage."""
    return f"{share:.1%}"


def date_of(time: int) -> str:
    """The date of a time that is milliseconds since the epoch; empty if it is none."""
    if not _A_DATE_MS <= time <= _LAST_DATE_MS:
        return ""
    text = (_EPOCH + timedelta(milliseconds=time)).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def time_text(frontier: Antichain, empty: str) -> str:
    """A frontier, with its date where it has one; `empty` says what the empty one means."""
    if frontier.is_empty:
        return f"{{}} ({empty})"
    date = date_of(frontier.time)
    return f"{frontier.time} ({date})" if date else str(frontier.time)


def duration_text(ms: int) -> str:
    """A span of time in milliseconds, in the unit that suits it."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if abs(ms) >= size:
            return f"{ms / size:.1f} {unit}"
    return f"{ms} ms"


def parse_time(text: str) -> Timestamp:
    """The time that a user names: milliseconds since the epoch, or a date with its zone.

    Errors: InvalidUsage, saying what was expected.
    """
    expected = "milliseconds since the epoch, or a date with a zone as 2026-07-25T12:00:00Z"
    if text.isascii() and text.isdecimal():
        time = int(text)
    else:
        try:
            date = datetime.fromisoformat(text)
        except ValueError as cause:
            raise InvalidUsage(f"expected {expected}, actual {text!r}") from cause
        if date.tzinfo is None:
            raise InvalidUsage(f"expected {expected}, actual {text!r}, which names no zone")
        time = (date - _EPOCH) // timedelta(milliseconds=1)
    if not MINIMUM_TIME <= time < END:
        raise InvalidUsage(f"expected a time from {MINIMUM_TIME} to {END - 1}, actual {text!r}")
    return Timestamp(time)
