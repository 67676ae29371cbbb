"""CLUSTER statements: how many replicas maintain the objects of a cluster."""

from dataclasses import dataclass

from streams.errors import InvalidStatement
from streams.plan.sql.tokens import Cursor

ALTER_USAGE = "ALTER CLUSTER name SET (REPLICAS number)"

DEFAULT = "default"
"""The cluster that is always there."""

MOST_REPLICAS = 16


@dataclass(frozen=True, slots=True)
class AlterCluster:
    """Have so many replicas maintain a cluster's objects. `name` is without case."""

    name: str
    replicas: int


def alter(cursor: Cursor) -> AlterCluster:
    """`name SET (REPLICAS number)`."""
    name = cursor.name("a cluster name").casefold()
    cursor.expect("SET", "(", "REPLICAS")
    replicas = number(cursor, "REPLICAS", MOST_REPLICAS)
    cursor.expect(")")
    return AlterCluster(name, replicas)


def number(cursor: Cursor, option: str, most: int) -> int:
    """Return the value of an option, from 1 to `most`. Errors: InvalidStatement."""
    cursor.accept("=")
    number_ = cursor.integer(f"a number of {option}, from 1 to {most}")
    if not 1 <= number_ <= most:
        raise InvalidStatement(f"expected {option} from 1 to {most}, got {number_}")
    return number_
