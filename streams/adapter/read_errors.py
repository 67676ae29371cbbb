"""A collection with an error that is alive at a time cannot be read at that time.

The read returns the error.
"""

import pyarrow as pa

from streams.errors import InvalidStatement
from streams.ids import Timestamp
from streams.storage.read.soundness import alive


def refuse_errors(name: str, errors: pa.Table, time: Timestamp) -> None:
    """Errors: InvalidStatement if an error is alive at `time`."""
    found = alive(errors, time)
    if not found.num_rows:
        return
    first = found.column("error")[0].as_py()
    count = sum(found.column("diff").to_pylist())
    raise InvalidStatement(
        f"{name} holds {'an error' if count == 1 else f'{count} errors'} at {time}",
        first,
        "the collection can be read again once what causes the error is retracted",
    )
