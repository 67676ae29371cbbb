"""How much of an object's history is kept: the option of WITH, and of ALTER."""

from dataclasses import dataclass

from streams.plan.sql.durations import milliseconds
from streams.plan.sql.tokens import Cursor

OPTIONS = ("RETAIN HISTORY", "LAG BEHIND")
USAGE = "RETAIN HISTORY FOR '...' | LAG BEHIND UPPER '...'"


@dataclass(frozen=True, slots=True)
class Retain:
    """The retained history: as old as `ms` by the clock, or behind the newest time."""

    ms: int
    behind_upper: bool


def retain(cursor: Cursor) -> Retain:
    """`(RETAIN HISTORY FOR '...')` or `(LAG BEHIND UPPER '...')`."""
    cursor.expect("(")
    value = retained(cursor, cursor.choose(OPTIONS))
    cursor.expect(")")
    return value


def retained(cursor: Cursor, option: str) -> Retain:
    """Return the value of one of `OPTIONS`."""
    behind_upper = option == "LAG BEHIND"
    cursor.expect("UPPER" if behind_upper else "FOR")
    return Retain(
        milliseconds(cursor.string("a duration in quotes, as '1 hour'")), behind_upper
    )
