"""A materialization: its collections, the connector, and the options."""

from typing import Literal

from pydantic import BaseModel, Field, JsonValue, ValidationError

from connectors.config import STRICT, problems
from streams.errors import InvalidUsage
from streams.ids import CollectionId

MOST_SHARDS = 64
Verify = Literal["never", "first", "always"]


class BindingOf(BaseModel):  # type: ignore[explicit-any] # JSON is recursive
    """A collection and its resource."""

    model_config = STRICT

    collection: str = Field(min_length=1)
    """Its id, or its name where there is a catalog."""
    resource: dict[str, JsonValue]
    """The connector's own, as the name of a table."""
    key: list[str] | None = Field(default=None, min_length=1)
    """Columns that identify a row; left out: the collection's own key."""
    select: list[str] | None = None
    """The values that are kept; all if it is left out."""
    verify: Verify | None = None
    """When existing rows are loaded and compared. Default: in the first transaction of a
    session; always if the connector cannot delete."""
    dead_letters: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._-]{1,249}$")
    """The topic of documents that the endpoint refuses; left out: one of them ends the task."""


class Limits(BaseModel):  # type: ignore[explicit-any] # JSON is recursive
    """Limits of a transaction, which all changes of one time may exceed together."""

    model_config = STRICT

    rows: int = Field(default=200_000, ge=1)
    bytes: int = Field(default=64 << 20, ge=1)
    """Bytes of chunks that are read together."""
    every_ms: int = Field(default=100, ge=0)
    """The least time from one commit to the next."""
    idle_ms: int = Field(default=5_000, ge=0)
    """How long a time without changes may stay uncommitted."""
    dead_letters: int = Field(default=1_000, ge=1)
    """Maximum of keys left out at a time, and of letters per process."""
    spill: str = ""
    """A directory for what memory does not hold; empty: the system's for temporary files."""


class Materialization(BaseModel):  # type: ignore[explicit-any] # JSON is recursive
    """A task; `config` is the connector's own."""

    model_config = STRICT

    task: str = Field(pattern=r"^[A-Za-z0-9_.\-]{1,100}$")
    connector: str = Field(min_length=1)
    """A built-in name, grpc:HOST:PORT, or a command."""
    config: dict[str, JsonValue]
    bindings: list[BindingOf] = Field(min_length=1)
    limits: Limits = Limits()
    shards: int = Field(default=1, ge=1, le=MOST_SHARDS)
    """In how many key ranges it writes at a time, each in a session of the endpoint's."""

    @property
    def collections(self) -> tuple[CollectionId, ...]:
        """The collections it follows, once names are resolved."""
        return tuple(CollectionId(binding.collection) for binding in self.bindings)


def parse(what: str, value: object) -> Materialization:
    """Parse the contents of a file. Errors: InvalidUsage naming each wrong property."""
    if not isinstance(value, dict):
        kind = "nothing" if value is None else type(value).__name__
        raise InvalidUsage(
            f"{what}: expected task, connector, config and bindings, actual {kind}"
        )
    try:
        task = Materialization.model_validate(value)
    except ValidationError as error:
        raise InvalidUsage(f"{what}: {problems(error)}") from error
    refuse_shards(what, task)
    return task


def refuse_shards(what: str, task: Materialization) -> None:
    """Errors: InvalidUsage: which rows are refused is searched for in one session alone."""
    topics = sorted({binding.dead_letters for binding in task.bindings if binding.dead_letters})
    if task.shards > 1 and topics:
        raise InvalidUsage(
            f"{what}: shards: expected 1 of a task with dead letters, actual {task.shards} and"
            f" dead_letters {', '.join(topics)}: set shards to 1, or leave dead_letters out"
        )
