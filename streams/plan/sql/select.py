"""SELECT: a query as the user's text, and the time at which it is read."""

from dataclasses import dataclass

from streams.ids import Timestamp
from streams.plan.sql.tokens import Cursor

USAGE = "SELECT ... [AS OF time]"
WORDS = ("SELECT", "WITH", "FROM", "VALUES", "(")
"""Words with which a query begins."""


@dataclass(frozen=True, slots=True)
class Select:
    """Read once, at `as_of` or as fresh as may be."""

    query: str
    as_of: Timestamp | None


def query(cursor: Cursor) -> str:
    """The text of a query from here to the end. Errors: InvalidStatement."""
    if not any(cursor.at(word) for word in WORDS):
        raise cursor.refused("SELECT")
    return cursor.rest()


def select(cursor: Cursor) -> Select:
    """A query up to the end, of which the last three words may be `AS OF time`.

    An alias `of` is no obstacle: nothing in a SELECT puts a number right behind an alias.
    """
    tail = Cursor(cursor.source, cursor.tokens, cursor.usage, max(len(cursor.tokens) - 3, 0))
    if tail.accept("AS", "OF") and tail.current and tail.current.text.isdigit():
        time = Timestamp(tail.integer("a time"))
        without = Cursor(cursor.source, cursor.tokens[:-3], cursor.usage, cursor.position)
        cursor.position = len(cursor.tokens)
        return Select(without.rest(), time)
    return Select(cursor.rest(), None)
