"""The collection of a source's dead letters: messages that could not be decoded, as rows.

It is in the group of its source, and every Append of the source has a part for it: at each time
a message is in the one or in the other.
"""

from streams.ids import CollectionId
from streams.plan.physical import Column

SUFFIX = ".errors"
"""What its name has behind the source's."""

COLUMNS = (
    Column("topic", "VARCHAR"),
    Column("partition", "INTEGER"),
    Column("offset", "BIGINT"),
    Column("time", "TIMESTAMP"),
    Column("key", "BLOB"),
    Column("value", "BLOB"),
    Column("reason", "VARCHAR"),
)
"""The place of the message, when it came, its bytes, and why it is not decoded.

When it came is the time of its update, or by event time that of its record (D340).
"""


def of(source: CollectionId) -> CollectionId:
    """Return the id of a source's dead letters."""
    return CollectionId(f"e{source[1:]}")
