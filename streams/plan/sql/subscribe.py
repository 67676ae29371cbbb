"""SUBSCRIBE: a collection and then its changes."""

from dataclasses import dataclass

from streams.errors import InvalidStatement
from streams.ids import Timestamp
from streams.plan.sql.tokens import Cursor

USAGE = (
    "SUBSCRIBE name [AS OF time] [UP TO time]"
    " [WITH (SNAPSHOT TRUE | FALSE, REPLICA name | REPLICAS)]"
)


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Read a collection at a time, and then its changes before `until`.

    Without `snapshot` the changes alone are read. `replica` names the replica that reads, and
    with `by_replicas` all of the collection's cluster do; else the coordinator does.
    """

    name: str
    as_of: Timestamp | None
    until: Timestamp | None = None
    snapshot: bool = True
    replica: str = ""
    by_replicas: bool = False


def subscribe(cursor: Cursor) -> Subscribe:
    """`name [AS OF time] [UP TO time] [WITH (...)]`. Errors: InvalidStatement."""
    name = cursor.relation("the name of a view or source")
    as_of = until = None
    if cursor.accept("AS"):
        cursor.expect("OF")
        as_of = Timestamp(cursor.integer("a time in milliseconds"))
    if cursor.accept("UP"):
        cursor.expect("TO")
        until = Timestamp(cursor.integer("a time in milliseconds"))
    if as_of is not None and until is not None and until <= as_of:
        raise InvalidStatement(f"expected UP TO a time beyond AS OF {as_of}, actual {until}")
    snapshot, replica, by_replicas = _options(cursor)
    return Subscribe(name, as_of, until, snapshot, replica, by_replicas)


def _options(cursor: Cursor) -> tuple[bool, str, bool]:
    """`[WITH (option, ...)]`: snapshot, the name of a replica, whether all replicas read."""
    snapshot, replica, by_replicas, seen = True, "", False, set[str]()
    if not cursor.accept("WITH"):
        return snapshot, replica, by_replicas
    cursor.expect("(")
    while True:
        option = cursor.choose(("SNAPSHOT", "REPLICA", "REPLICAS"))
        match option:
            case "SNAPSHOT":
                snapshot = cursor.choose(("TRUE", "FALSE")) == "TRUE"
            case "REPLICA":
                replica = cursor.name("the name of a replica")
            case _:
                by_replicas = True
        kind = "REPLICA" if option == "REPLICAS" else option
        if kind in seen:
            raise InvalidStatement(f"option {kind} appears twice")
        seen.add(kind)
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return snapshot, replica, by_replicas
