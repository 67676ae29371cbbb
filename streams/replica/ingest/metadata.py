"""The parts of a message that a source has as columns: INCLUDE in CREATE SOURCE.

- `partition`, `offset`: where the message stands.
- `timestamp`: the time that the record has, of its producer or of the broker, as the topic is
  configured; NULL if it has none. Kafka keeps any number of milliseconds: one that no TIMESTAMP
  holds makes a message that cannot be decoded.
- `headers`: all of them in order, empty if there are none; a value may be NULL. A name that is
  not UTF-8, which Kafka keeps, makes a message that cannot be decoded.
- `key`: the bytes of the key, or its text by KEY FORMAT TEXT; NULL if there is none.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from streams.compute.description import IngestionDescription
from streams.plan.metadata import TYPES, Included
from streams.replica.ingest.keys import NO_TEXT, as_text
from streams.trace.kernel.kernel import arrow_type

LAST_MS = (2**63 - 1) // 1000 - 1
"""The last millisecond of a TIMESTAMP, whose greatest values in microseconds are infinities."""

MORE = {"timestamp": pa.int64(), "headers": arrow_type(TYPES["headers"])}
"""The parts that readers of topics fetch only on request, by name."""

NAMES = "headers: expected names in UTF-8, actual other bytes"
REASON = "timestamp: expected milliseconds that a TIMESTAMP holds, actual "


def fetched(source: IngestionDescription) -> tuple[str, ...]:
    """Return what is fetched of the messages of a source beside keys, values and places."""
    needed = {included.part for included in source.included}
    if source.watermark is not None:  # event times are compared with it
        needed.add("timestamp")
    return tuple(name for name in MORE if name in needed)


class Metadata:
    """Makes the included columns of one source."""

    def __init__(self, source: IngestionDescription) -> None:
        self._included = source.included
        self._has_text = source.key_format == "text"

    def read(self, messages: pa.Table) -> tuple[list[pa.Array], pa.Array]:
        """Return the columns, and the reasons of messages that cannot be decoded.

        Shape: `messages` has the columns that `fetched` names, too. Where a reason is not NULL
        the columns are undefined.
        """
        reasons = pa.nulls(messages.num_rows, pa.string())
        columns = []
        for included in self._included:
            column, more = self._column(included, messages)
            columns.append(column)
            reasons = pc.coalesce(reasons, more)
        return columns, reasons

    def nulls(self, count: int) -> Sequence[pa.Array]:
        """Return the columns of rows without values."""
        return [pa.nulls(count, self._type(included)) for included in self._included]

    def _type(self, included: Included) -> pa.DataType:
        if included.part == "key" and self._has_text:
            return pa.string()
        return arrow_type(TYPES[included.part])

    def _column(self, included: Included, messages: pa.Table) -> tuple[pa.Array, pa.Array]:
        values = pa.concat_arrays(
            [pa.array([], messages.schema.field(included.part).type),
             *messages[included.part].chunks]
        )  # fmt: skip
        match included.part:
            case "timestamp":
                return timestamps(values)
            case "headers":
                return values, pc.if_else(values.is_null(), NAMES, NO_TEXT)
            case "key" if self._has_text:
                texts, reasons = as_text(values)
                return texts, pc.binary_join_element_wise("key: ", reasons, "")
            case _:
                return values, pa.nulls(len(values), pa.string())


def timestamps(milliseconds: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return milliseconds since 1970 as timestamps, and reasons where there is none."""
    beyond = pc.greater(milliseconds, LAST_MS)
    messages = pc.binary_join_element_wise(REASON, milliseconds.cast(pa.string()), "")
    reasons = pc.if_else(beyond, messages, NO_TEXT)
    in_range = pc.if_else(beyond, pa.scalar(None, pa.int64()), milliseconds)
    return pc.multiply(in_range, 1000).cast(pa.timestamp("us")), reasons
