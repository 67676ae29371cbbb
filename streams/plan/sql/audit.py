"""AUDIT: a view's contents are recomputed from its inputs, and compared."""

from dataclasses import dataclass

from streams.ids import Timestamp
from streams.plan.sql.tokens import Cursor

MOST_TIMES = 1_000
USAGE = "AUDIT view [AS OF time | TIMES number]"


@dataclass(frozen=True, slots=True)
class Audit:
    """Compare a view with its query over its inputs: at `as_of`, or at `times` random times.

    Without either at the freshest time.
    """

    name: str
    as_of: Timestamp | None = None
    times: int | None = None


def audit(cursor: Cursor) -> Audit:
    """`name [AS OF time | TIMES number]`. Errors: InvalidStatement."""
    name = cursor.relation("the name of a materialized view")
    if cursor.accept("AS"):
        cursor.expect("OF")
        return Audit(name, as_of=Timestamp(cursor.integer("a time in milliseconds")))
    if not cursor.accept("TIMES"):
        return Audit(name)
    times = cursor.integer("a number of times")
    if not 1 <= times <= MOST_TIMES:
        cursor.position -= 1
        raise cursor.refused(f"a number from 1 to {MOST_TIMES}")
    return Audit(name, times=times)
