"""The system relations: their names and columns. Pure.

They say what the coordinator knows now: of its catalog, and of what replicas have reported.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from streams.errors import InvalidStatement
from streams.ids import CollectionId, Topic
from streams.plan.compile import Relation
from streams.plan.physical import Column

SCHEMA = "slackwater."
"""What the names of system relations begin with."""


def _columns(kind: str, *names: str) -> tuple[Column, ...]:
    return tuple(Column(name, kind) for name in names)


def _texts(*names: str) -> tuple[Column, ...]:
    return _columns("VARCHAR", *names)


def _counts(*names: str) -> tuple[Column, ...]:
    return _columns("BIGINT", *names)


_OPERATOR = (*_texts("id", "name", "replica"), *_counts("operator", "level"))

COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "objects": _texts("id", "name", "kind", "status", "progress", "detail", "cluster"),
    "frontiers": (
        *_texts("id", "name"),
        *_counts("since", "upper", "input", "output", "lag_ms"),
    ),
    "clusters": (
        *_texts("name"),
        *_counts("replicas", "live", "objects", "buckets"),
        *_texts("master", "parameters"),
    ),
    "replicas": (
        *_texts("cluster", "replica", "process"),
        *_counts("silent_ms", "owns", "running", "hydrating", "stalled", "failed"),
        *_counts("lag_ms", "state_bytes", "memory_bytes"),
    ),
    "hydration": (
        *_texts("id", "name", "replica", "status", "message"),
        *_counts("done", "total", "seconds_left"),
    ),
    "dataflows": (
        *_texts("id", "name", "replica"),
        *_counts("reported_ms", "elapsed_ms", "batches", "hydration_batches", "micros"),
        *_counts("recent_ms", "recent_batches", "recent_micros"),
    ),
    "operators": (
        *_OPERATOR,
        *_texts("description"),
        *_counts("micros", "rows_in", "rows_out"),
        *_counts("recent_micros", "recent_rows_in", "recent_rows_out"),
    ),
    "arrangements": (*_OPERATOR, *_texts("description"), *_counts("rows", "bytes")),
    "lanes": (*_texts("replica", "lane"), *_counts("reported_ms", "batches", "rows")),
    "phases": (*_texts("replica", "lane", "phase"), *_counts("ms")),
    "peeks": (
        *_texts("uuid", "id", "name", "index_id", "replica"),
        *_counts("time"),
    ),
    "subscribes": (
        *_texts("uuid", "id", "name", "reader", "replica"),
        *_counts("as_of", "until", "upper"),
    ),
}
"""By name without the schema. `docs/SQL.md` says what they hold."""

KEYS: Mapping[str, tuple[str, ...]] = {
    "objects": ("id",),
    "frontiers": ("id",),
    "clusters": ("name",),
    "replicas": ("cluster", "replica", "process"),
    "hydration": ("id", "replica"),
    "dataflows": ("id", "replica"),
    "operators": ("id", "replica", "operator"),
    "arrangements": ("id", "replica", "operator"),
    "lanes": ("replica", "lane"),
    "phases": ("replica", "lane", "phase"),
    "peeks": ("uuid",),
    "subscribes": ("uuid",),
}
"""The columns that no two rows have in common."""


def id_of(name: str) -> CollectionId:
    """Return the id of a system relation, which no object has."""
    return CollectionId(SCHEMA + name)


def _topics(namespace: str) -> str:
    return f"{namespace}.system."


def topic_of(relation: str, namespace: str) -> Topic:
    """Return the topic of a system relation, which is named without its schema."""
    return Topic(f"{_topics(namespace)}{relation}")


def relation_of(topic: Topic, namespace: str) -> str | None:
    """Return the system relation that a topic is of; None if it is of none."""
    relation = topic.removeprefix(_topics(namespace))
    return relation if relation != topic and relation in COLUMNS else None


IDS = {id_of(name): name for name in COLUMNS}


def named_in(text: str) -> dict[str, Relation]:
    """Return the system relations that a query may read, by their names."""
    text = text.casefold()
    if SCHEMA[:-1] not in text:
        return {}
    return {
        SCHEMA + name: Relation(id_of(name), columns)
        for name, columns in COLUMNS.items()
        if name in text
    }


@contextmanager
def telling_names() -> Iterator[None]:
    """Says which system relations there are if a query names another one."""
    try:
        yield
    except InvalidStatement as error:
        if 'schema "slackwater" does not exist' not in error.message or error.hint:
            raise
        said = error.message.partition(" because")[0]
        there_are = f"there are {', '.join(SCHEMA + name for name in COLUMNS)}"
        raise InvalidStatement(said, error.detail, there_are) from error


def is_system(name: str) -> bool:
    """Whether a name is that of a system relation."""
    return name.casefold() in IDS


def select_only(name: str) -> InvalidStatement:
    """Return the error for a system relation where a collection is needed."""
    relation = name.casefold().removeprefix(SCHEMA)
    return InvalidStatement(
        f"{SCHEMA}{relation} can be read only by SELECT",
        "a system relation has the current state, without a history to follow",
        f"create a source over the topic NAMESPACE.system.{relation}, and read that",
    )
