"""CREATE INDEX: replicas keep a collection in memory, by a key."""

from dataclasses import dataclass

from streams.ids import DEFAULT_CLUSTER
from streams.plan.sql.clusters import placed
from streams.plan.sql.tokens import Cursor

USAGE = "CREATE INDEX [IF NOT EXISTS] name [IN CLUSTER name] ON relation (columns)"


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """Answer a SELECT with an equality on each of `keys` from memory."""

    name: str
    relation: str
    keys: tuple[str, ...]
    if_not_exists: bool
    cluster: str = DEFAULT_CLUSTER


def create(cursor: Cursor) -> CreateIndex:
    """`[IF NOT EXISTS] name [IN CLUSTER name] ON relation (columns)`."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name("an index name")
    cluster = placed(cursor)
    cursor.expect("ON")
    relation = cursor.relation("the name of a source or view")
    keys = cursor.names("a column name")
    return CreateIndex(name, relation, keys, if_not_exists, cluster)
