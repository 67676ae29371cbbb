"""The physical plan of an ingestion, which follows from its envelope.

- `none`: every message is a row, and stays one. One node: the source is the output.
- `none` with a watermark: the source carries `event_time` beside the columns, and Temporal lets
  each row enter then: a row of a later time is pending in its state.
- `upsert`: the latest message of a key is its row. The source carries, beside the columns,
  `position` (which message of a key and time is the latest), `kind` and `error`, as the node
  Upsert wants them; Upsert runs on the key's bucket, at level 1.
- `upsert` with a watermark: both, `event_time` behind those. Temporal is on the key's bucket,
  too, so Upsert takes what enters on the same level.

The import is the raw topic itself, not a collection: its id is `topic:` and the topic's name,
which no catalog id can be. Where the source resumed elsewhere the generation of its binding
follows: so each generation has a fingerprint of its own, and its first Append fences those
before (rule 24).
"""

from collections.abc import Sequence
from typing import assert_never

from streams.compute.description import IngestionDescription
from streams.errors import InvalidUsage
from streams.ids import CollectionId
from streams.plan.physical import (
    Bound,
    Column,
    Dataflow,
    Expression,
    Import,
    Source,
    Temporal,
    Upsert,
)

VALUE, DELETION, ERROR = 0, 1, 2  # the values of Upsert's column `kind`
BOOKKEEPING = (
    Column("position", "BIGINT"),
    Column("kind", "UTINYINT"),
    Column("error", "VARCHAR"),
)

EVENT_TIME = Column("event_time", "BIGINT")
"""In milliseconds since 1970."""


def import_columns(
    source: IngestionDescription, columns: Sequence[Column]
) -> tuple[Column, ...]:
    """Return the columns of the import's table, in order c0, c1, ...; time and diff follow."""
    match source.envelope:
        case "none" if source.watermark is not None:
            return (*columns, EVENT_TIME)
        case "none":
            return tuple(columns)
        case "upsert" if source.watermark is not None:
            return (*columns, *BOOKKEEPING, EVENT_TIME)
        case "upsert":
            return (*columns, *BOOKKEEPING)
        case _:
            assert_never(source.envelope)


def key_positions(source: IngestionDescription, columns: Sequence[Column]) -> tuple[int, ...]:
    """Return the positions of the key's columns among the columns. Errors: InvalidUsage."""
    names = [column.name for column in columns[: len(columns) - len(source.included)]]
    unknown = [key for key in source.keys if key not in names]
    if unknown:
        raise InvalidUsage(f'key column "{unknown[0]}" is not a column of the source')
    if (source.envelope == "upsert") != bool(source.keys):
        raise InvalidUsage(f"envelope {source.envelope} with {len(source.keys)} key columns")
    return tuple(names.index(key) for key in source.keys)


def dataflow(source: IngestionDescription, columns: Sequence[Column]) -> Dataflow:
    """Return the plan of this ingestion. Errors: InvalidUsage for invalid keys."""
    keys = key_positions(source, columns)
    came = import_columns(source, columns)
    generation = source.start.generation
    name = f"topic:{source.topic}" + (f":{generation}" if generation else "")
    imports = (Import(CollectionId(name), came),)
    source_types = tuple(column.type for column in came)
    if source.envelope == "none" and source.watermark is not None:
        return Dataflow(
            imports=imports,
            nodes=(Source(0), _entering(columns, len(columns))),
            types=(source_types, tuple(column.type for column in columns)),
            levels=(0, 1),
            output=tuple(columns),
        )
    if source.envelope == "none":
        return Dataflow(imports, (Source(0),), (source_types,), (0,), tuple(columns))
    if source.watermark is not None:
        return Dataflow(
            imports=imports,
            nodes=(
                Source(0),
                _entering(came, len(came) - 1, keys),
                Upsert(1, keys, dated=True),
            ),
            types=(source_types, source_types, tuple(column.type for column in columns)),
            levels=(0, 1, 1),
            output=tuple(columns),
        )
    return Dataflow(
        imports=imports,
        nodes=(Source(0), Upsert(0, keys)),
        types=(source_types, tuple(column.type for column in columns)),
        levels=(0, 1),
        output=tuple(columns),
    )


def _entering(
    columns: Sequence[Column], at: int, keys: tuple[int, ...] | None = None
) -> Temporal:
    """Return the node that lets rows of these columns enter at their event time.

    `at` is its place. With `keys` rows of one key are brought together.
    """
    event_time = Expression(f"c{at}", EVENT_TIME.type, EVENT_TIME.name)
    outputs = tuple(
        Expression(f"c{place}", column.type, column.name)
        for place, column in enumerate(columns)
    )
    return Temporal(0, (), (Bound(">=", event_time),), outputs, keys)
