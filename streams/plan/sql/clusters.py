"""CLUSTER statements: sets of replicas that maintain the objects in them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from streams.errors import InvalidStatement
from streams.ids import DEFAULT_CLUSTER
from streams.plan.sql.tokens import Cursor

CREATE_USAGE = (
    "CREATE CLUSTER [IF NOT EXISTS] name (REPLICAS number, MASTER '...', BUCKETS number)"
)
ALTER_USAGE = (
    "ALTER CLUSTER name SET (REPLICAS number, BUCKETS number, PARAMETER number, ...)"
    " | RESET (BUCKETS, PARAMETER, ...)"
)
DROP_USAGE = "DROP CLUSTER [IF EXISTS] name"
IN_USAGE = "[IN CLUSTER name]"

MOST_REPLICAS = 16
MOST_BUCKETS = 256
LONGEST_MASTER = 1000

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateCluster:
    """Have a cluster. `name` is without case; 0 buckets and no master: the environment's."""

    name: str
    replicas: int = 1
    master: str = ""
    buckets: int = 0
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterCluster:
    """Change a cluster: its numbers of replicas and buckets, and the parameters.

    `name` and the names of parameters are without case. `replicas` and `buckets` are None where
    they stay as many, and 0 buckets are those of the environment. A parameter of `reset` has
    the value of the environment again.
    """

    name: str
    replicas: int | None = None
    buckets: int | None = None
    parameters: Mapping[str, int] = field(default_factory=dict)
    reset: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DropCluster:
    """Remove a cluster that nothing is in. `name` is without case."""

    name: str
    if_exists: bool


ClusterStatement = CreateCluster | AlterCluster | DropCluster


def create(cursor: Cursor) -> CreateCluster:
    """`[IF NOT EXISTS] name (option, ...)`. Errors: InvalidStatement."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = _new_name(cursor)
    given: dict[str, int | str] = {}
    cursor.expect("(")
    while True:
        option = cursor.choose(("REPLICAS", "MASTER", "BUCKETS"))
        if option in given:
            raise InvalidStatement(f"option {option} appears twice")
        given[option] = _value(cursor, option)
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return CreateCluster(
        name=name,
        replicas=int(given.get("REPLICAS", 1)),
        master=str(given.get("MASTER", "")),
        buckets=int(given.get("BUCKETS", 0)),
        if_not_exists=if_not_exists,
    )


def alter(cursor: Cursor) -> AlterCluster:
    """`name SET (option number, ...)`, `name RESET (option, ...)`. Errors: InvalidStatement."""
    name = cluster(cursor)
    if cursor.choose(("SET", "RESET")) == "RESET":
        options = _reset(cursor)
        parameters = tuple(option for option in options if option != "buckets")
        return AlterCluster(name, buckets=0 if "buckets" in options else None, reset=parameters)
    values = _set(cursor)
    replicas, buckets = values.pop("replicas", None), values.pop("buckets", None)
    return AlterCluster(name, replicas, buckets, values)


def _set(cursor: Cursor) -> dict[str, int]:
    values = dict[str, int]()
    cursor.expect("(")
    while True:
        option = cursor.name("REPLICAS, BUCKETS or a parameter").casefold()
        if option in values:
            raise InvalidStatement(f"option {option} appears twice")
        if option in {"replicas", "buckets"}:
            values[option] = int(_value(cursor, option.upper()))
        else:
            cursor.accept("=")
            values[option] = cursor.integer(f"a number of {option}")
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return values


def _reset(cursor: Cursor) -> tuple[str, ...]:
    cursor.expect("(")
    names = [cursor.name("BUCKETS or a parameter").casefold()]
    while cursor.accept(","):
        names.append(cursor.name("BUCKETS or a parameter").casefold())
    cursor.expect(")")
    return tuple(names)


def drop(cursor: Cursor) -> DropCluster:
    """`[IF EXISTS] name`."""
    if_exists = cursor.accept("IF", "EXISTS")
    return DropCluster(cluster(cursor), if_exists)


OWN_TOPIC_USAGE = "[OWN TOPIC]"


def owns_topic(cursor: Cursor) -> bool:
    """`[OWN TOPIC]`: whether a view has a log and a data topic of its own."""
    return cursor.accept("OWN", "TOPIC")


def placed(cursor: Cursor) -> str:
    """`[IN CLUSTER name]`: the name of the cluster that an object is to be in."""
    return cluster(cursor) if cursor.accept("IN", "CLUSTER") else DEFAULT_CLUSTER


def cluster(cursor: Cursor) -> str:
    """Return the name of a cluster, without case."""
    return cursor.name("a cluster name").casefold()


def _new_name(cursor: Cursor) -> str:
    """Return a name that topics can have too. Errors: InvalidStatement."""
    name = cluster(cursor)
    if not _NAME.fullmatch(name):
        raise InvalidStatement(
            f"cluster name '{name[:60]}' is not valid",
            "expected a letter, and then letters, digits and _, 40 at most",
            "topics and processes bear the name of a cluster",
        )
    return name


def _value(cursor: Cursor, option: str) -> int | str:
    if option == "MASTER":
        cursor.accept("=")
        master = cursor.string("Spark's master in quotes, as 'spark://host:7077'")
        if not 0 < len(master) <= LONGEST_MASTER:
            raise InvalidStatement(f"expected 1 to {LONGEST_MASTER} characters of MASTER")
        return master
    return _number(cursor, option, MOST_BUCKETS if option == "BUCKETS" else MOST_REPLICAS)


def _number(cursor: Cursor, option: str, most: int) -> int:
    """Return the value of an option, from 1 to `most`. Errors: InvalidStatement."""
    cursor.accept("=")
    number = cursor.integer(f"a number of {option}, from 1 to {most}")
    if not 1 <= number <= most:
        raise InvalidStatement(f"expected {option} from 1 to {most}, actual {number}")
    return number
