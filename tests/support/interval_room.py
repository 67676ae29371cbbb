"""Intervals that DuckDB has and Arrow has not (D222): a view over them fails.

Arrow counts the part of an interval below a day in nanoseconds of 64 bits, DuckDB in
microseconds. Whole hours are looked at, as the texts of values have them, at any depth.
"""

from collections.abc import Iterable

from streams.plan.type_names import contains

HOURS = 2**63 // (3_600 * 10**9)
"""An interval with so many whole hours or more does not have every nanosecond in Arrow."""


def lacks_room(columns: Iterable[tuple[str, str]]) -> str:
    """SQL for whether a value in a row, of columns by expression and type, is such a one."""
    texts = [f"CAST({column} AS VARCHAR)" for column, type_ in columns if _has_interval(type_)]
    judged = [f"coalesce({_is_long(text)}, false)" for text in texts]
    return " OR ".join(judged) or "false"


def _has_interval(type_: str) -> bool:
    return contains(type_, "INTERVAL")


def _is_long(text: str) -> str:
    hours = rf"regexp_extract_all({text}, '(\d+):\d\d:\d\d', 1)"
    return f"list_max(list_transform({hours}, lambda hour: hour::HUGEINT)) >= {HOURS}"
