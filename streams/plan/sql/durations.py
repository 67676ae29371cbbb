"""Durations as people write them: '1 hour', '90s', '1 day 12 hours'; in milliseconds."""

import re

from streams.errors import InvalidStatement

_UNITS = {
    ("ms", "millisecond", "milliseconds"): 1,
    ("s", "sec", "second", "seconds"): 1_000,
    ("m", "min", "minute", "minutes"): 60_000,
    ("h", "hour", "hours"): 3_600_000,
    ("d", "day", "days"): 86_400_000,
    ("w", "week", "weeks"): 604_800_000,
}
_MS = {name: ms for names, ms in _UNITS.items() for name in names}
_PART = re.compile(r"\s*(\d{1,15})\s*([a-z]+)\s*,?", re.ASCII)

LONGEST_MS = 1 << 53
"""Longer than any history."""


def milliseconds(text: str) -> int:
    """The duration that the text says. Errors: InvalidStatement."""
    total, place, lowered = 0, 0, text.casefold()
    while place < len(lowered) and (match := _PART.match(lowered, place)):
        number, unit = match.groups()
        if unit not in _MS:
            break
        total += int(number) * _MS[unit]
        place = match.end()
    if not lowered.strip() or lowered[place:].strip() or total > LONGEST_MS:
        raise InvalidStatement(
            f"expected a duration, actual '{text}'",
            hint="numbers with units, as '1 hour', '90 s' or '1 day 12 hours'",
        )
    return total


def format_duration(ms: int) -> str:
    """The duration in a few words, exactly."""
    parts = []
    for names, size in reversed(_UNITS.items()):
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count} {names[-1] if count > 1 else names[-2]}")
    return " ".join(parts) or "0 seconds"
