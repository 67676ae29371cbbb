"""What a collection holds at a time, as a table with the user's names.

Errors are data: a collection in which an error is alive at the time cannot be read at it, and
the reader is told the error. A negative multiplicity is an error too.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from streams.errors import InvalidStatement
from streams.ids import Timestamp
from streams.plan.physical import Column
from streams.storage.soundness import alive
from streams.trace.kernel import Kernel, arrow_schema, data_schema, empty_table
from streams.trace.updates import at, expand, flatten


def contents(
    name: str,
    columns: Sequence[Column],
    loaded: tuple[pa.Table, pa.Table],
    time: Timestamp,
    kernel: Kernel,
) -> pa.Table:
    """The rows at `time`, each as often as it is there.

    Shape: `loaded` are updates (c0 .. cn, time, diff) and errors (error, time, diff) up to the
    time at least. Errors: InvalidStatement when the collection is in error.
    """
    updates, errors = loaded
    refuse_errors(name, errors, time)
    schema = arrow_schema([each.type for each in columns])
    if not updates.num_rows:
        return nothing(columns)
    now = at(flatten([updates], schema), time, kernel)
    lowest = pc.min(now.column("diff")).as_py()
    if lowest is not None and lowest < 0:
        raise InvalidStatement(
            f"{name} holds a row {lowest} times at {time}",
            "more retractions than insertions: the source retracts what it never sent, or "
            "this is a defect of ours",
        )
    return _named(pa.Table.from_batches([expand(now)]), columns)


def nothing(columns: Sequence[Column]) -> pa.Table:
    """No rows of these columns."""
    return _named(empty_table(data_schema([each.type for each in columns])), columns)


def refuse_errors(name: str, errors: pa.Table, time: Timestamp) -> None:
    """Errors: InvalidStatement when an error is alive at `time`."""
    found = alive(errors, time)
    if not found.num_rows:
        return
    first = found.column("error")[0].as_py()
    count = pc.sum(found.column("diff")).as_py()
    raise InvalidStatement(
        f"{name} holds {'an error' if count == 1 else f'{count} errors'} at {time}",
        first,
        "the collection can be read again once what causes the error is retracted",
    )


def _named(table: pa.Table, columns: Sequence[Column]) -> pa.Table:
    return table.rename_columns([each.name for each in columns])
