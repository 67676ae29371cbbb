"""A materialization: its collections, the connector, and the options."""

import re
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field, JsonValue, ValidationError

from connectors.answer_timeouts import ANSWER_S
from connectors.config import STRICT, problems
from streams.errors import InvalidUsage
from streams.ids import CollectionId

MOST_SHARDS = 64
MOST_RANGES = 1_000
MASTERS = re.compile(r"(local(-cluster)?(\[[^\[\]]+\])?|yarn|(spark|k8s)://\S+)?")
IN_PROCESS = frozenset({"local", "local[1]"})
"""Spark's masters that run one task at a time, in one process."""
ONE_PROCESS = frozenset({"duckdb"})
"""Connectors whose endpoint is open in one process at a time."""
BUILT_IN = ("duckdb", "files", "postgres", "sqlite", "webhook")
"""Our connectors, which run in the process of the task; all others are foreign."""
Verify = Literal["never", "first", "always"]


class BindingConfig(BaseModel):  # type: ignore[explicit-any] # JSON is recursive
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
    session if the connector is built in, always if it is foreign. If it cannot delete, rows are
    always loaded, since nothing else says which are there."""
    dead_letters: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._-]{1,249}$")
    """The topic of documents that the endpoint refuses; left out: one of them ends the task."""


class TransactionLimits(BaseModel):  # type: ignore[explicit-any] # JSON is recursive
    """Limits of a transaction, which all changes of one time may exceed together."""

    model_config = STRICT

    rows: int = Field(default=200_000, ge=1)
    bytes: int = Field(default=64 << 20, ge=1)
    """Bytes of chunks that are read together."""
    every_ms: int = Field(default=100, ge=0)
    """The least time from one commit to the next."""
    idle_ms: int = Field(default=5_000, ge=0)
    """How long a time without changes may stay uncommitted."""
    answer_s: float = Field(default=ANSWER_S, gt=0)
    """The longest wait for an answer of the connector."""
    dead_letters: int = Field(default=1_000, ge=1)
    """Maximum of keys left out at a time, and of letters per process."""
    spill: str = ""
    """A directory for what memory does not hold; empty: the system's for temporary files."""


class BackfillOf(BaseModel):  # type: ignore[explicit-any] # JSON is recursive
    """How the initial contents are written, where they are not written by the follow."""

    model_config = STRICT

    by: Literal["spark"]
    """A Spark job, which writes many key ranges at a time."""
    master: str = ""
    """Spark's master; empty: that of the process that runs the task."""
    ranges: int | None = Field(default=None, ge=1, le=MOST_RANGES)
    """In how many key ranges, each in a session of the endpoint's; left out: 8, or `shards`."""


class Materialization(BaseModel):  # type: ignore[explicit-any] # JSON is recursive
    """A task; `config` is the connector's own."""

    model_config = STRICT

    task: str = Field(pattern=r"^[A-Za-z0-9_.\-]{1,100}$")
    connector: str = Field(min_length=1)
    """A built-in name, grpc:HOST:PORT, or a command."""
    config: dict[str, JsonValue]
    bindings: list[BindingConfig] = Field(min_length=1)
    limits: TransactionLimits = TransactionLimits()
    shards: int = Field(default=1, ge=1, le=MOST_SHARDS)
    """In how many key ranges it writes at a time, each in a session of the endpoint's."""
    backfill: BackfillOf | None = None
    """How the initial contents are written; left out: by the follow, as all changes are."""

    @property
    def default_verify(self) -> Verify:
        """What `verify` of a binding is if it is left out."""
        return "first" if self.connector in BUILT_IN else "always"

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
    refuse_undividable(what, task)
    return task


def refuse_undividable(what: str, task: Materialization) -> None:
    """Refuse ways of writing that the options of the task exclude. Errors: InvalidUsage.

    With dead letters nothing is divided: refused rows are searched for in one session alone.
    """
    topics = sorted({binding.dead_letters for binding in task.bindings if binding.dead_letters})
    if task.shards > 1 and topics:
        raise InvalidUsage(
            f"{what}: shards: expected 1 of a task with dead letters, actual {task.shards} and"
            f" dead_letters {', '.join(topics)}: set shards to 1, or leave dead_letters out"
        )
    if task.backfill is not None:
        refuse_backfill(what, task, task.backfill, topics)


def refuse_backfill(
    what: str, task: Materialization, backfill: BackfillOf, topics: Sequence[str]
) -> None:
    """Refuse a backfill that the task excludes. Errors: InvalidUsage."""
    if not MASTERS.fullmatch(backfill.master):
        raise InvalidUsage(
            f"{what}: backfill.master: expected local[N], spark://HOST:PORT, yarn or"
            f" k8s://HOST:PORT, actual {backfill.master!r}"
        )
    if topics:
        raise InvalidUsage(
            f"{what}: backfill by spark: expected a task without dead letters, actual"
            f" dead_letters {', '.join(topics)}: leave out one of the two"
        )
    if task.connector in ONE_PROCESS and backfill.master not in IN_PROCESS:
        raise InvalidUsage(
            f"{what}: backfill by spark: a file of {task.connector} is open in one process at a"
            f" time: expected the backfill's master to be local[1], actual"
            f" {backfill.master or 'none'}: set it, or leave backfill out"
        )
