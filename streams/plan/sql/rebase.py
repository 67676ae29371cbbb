"""CREATE REBASE: a collection of event times gets times of the clock."""

from dataclasses import dataclass

from streams.plan.sql import history
from streams.plan.sql.history import Retain
from streams.plan.sql.tokens import Cursor

USAGE = f"CREATE REBASE [IF NOT EXISTS] name OF relation [WITH ({history.USAGE})]"


@dataclass(frozen=True, slots=True)
class CreateRebase:
    """Stamp the updates of a collection with the times at which they become final."""

    name: str
    relation: str
    if_not_exists: bool
    retain: Retain | None = None


def create(cursor: Cursor) -> CreateRebase:
    """`[IF NOT EXISTS] name OF relation [WITH (option)]`."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name("a rebase name")
    cursor.expect("OF")
    relation = cursor.relation("the name of a source or view with event times")
    retain = history.retain(cursor) if cursor.accept("WITH") else None
    return CreateRebase(name, relation, if_not_exists, retain)
