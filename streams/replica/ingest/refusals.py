"""Messages that cannot be decoded, by what the source declares of them (ON ERROR).

- `inline`: an error of the source. It reads

      cannot decode message: topic T, partition P, offset O: reason

  and names one message, so no two errors are equal.
- `dead_letter`: a row of `streams.compute.dead_letters`.
- `fail`: the source's work fails with that text, so it stays before the message.
- `skip`: nothing but a count.

The time that a dead letter tells is that of its ingestion. By event time there is none, so
it is the time of the message's record (D340).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.stream import brief
from streams.compute import dead_letters
from streams.compute.description import IngestionDescription
from streams.compute.skipped_offsets import Skipped
from streams.compute.stalls import UNDECODABLE
from streams.ids import Timestamp
from streams.plan.metadata import OnError
from streams.replica.ingest.metadata import timestamps
from streams.trace.columns import one_array
from streams.trace.kernel.kernel import arrow_schema

ERRORS = pa.schema([("error", pa.string()), ("time", pa.int64()), ("diff", pa.int64())])
LETTERS = arrow_schema([column.type for column in dead_letters.COLUMNS])

LARGEST_BYTES = 2 << 20
"""A key or a value that is larger is not kept: a row has to fit into a record."""


class Undecodable(Exception):
    """A message of a source that stops at the first one that cannot be decoded."""


@dataclass(frozen=True, slots=True)
class RefusedMessages:
    """Errors: error, time, diff. Dead letters: `dead_letters.COLUMNS`, time, diff.

    By partition, `skipped` counts the messages that are left out, and `counts` all of them.
    """

    errors: pa.Table
    letters: pa.Table
    skipped: Mapping[int, int] = field(default_factory=dict)
    counts: Mapping[int, int] = field(default_factory=dict)


class Refusals:
    """Handles the messages of one source that cannot be decoded."""

    def __init__(self, source: IngestionDescription) -> None:
        self._topic, self.on_error = source.topic, source.on_error
        self._has_event_times = source.watermark is not None

    def refused(
        self,
        messages: pa.Table,
        reasons: pa.Array,
        time: Timestamp,
        on_error: OnError | None = None,
        letters_at: Timestamp | None = None,
    ) -> RefusedMessages:
        """Return what becomes of the messages that have a reason, at a time.

        `on_error` is the source's unless it is given, and `letters_at` the same time. Errors:
        Undecodable if the source stops at such a message.
        """
        on_error = on_error or self.on_error
        letters_at = time if letters_at is None else letters_at
        failed = reasons.is_valid()
        nothing = RefusedMessages(
            errors_at(pa.array([], pa.string()), time), LETTERS.empty_table()
        )
        if not failed.true_count:
            return nothing
        messages, reasons = messages.filter(failed), reasons.filter(failed)
        nothing = replace(nothing, counts=counts(messages["partition"].to_numpy()))
        match on_error:
            case "dead_letter":
                return replace(nothing, letters=self._letters(messages, reasons, letters_at))
            case "inline":
                texts = pc.binary_join_element_wise(self.places(messages), reasons, ": ")
                return replace(nothing, errors=errors_at(texts, time))
            case "skip":
                return replace(nothing, skipped=nothing.counts)
            case "fail":
                raise self._undecodable(messages.slice(0, 1), str(reasons[0]))

    def places(self, messages: pa.Table) -> pa.Array:
        """Return the beginning of the error of each message, with its place."""
        return pc.binary_join_element_wise(
            f"{UNDECODABLE}topic {self._topic}, partition ",
            one_array(messages["partition"]).cast(pa.string()),
            ", offset ",
            one_array(messages["offset"]).cast(pa.string()),
            "",
        )

    def _undecodable(self, message: pa.Table, reason: str) -> Undecodable:
        partition, after = message["partition"][0].as_py(), message["offset"][0].as_py() + 1
        return Undecodable(
            f"{self.places(message)[0]}: {brief(reason)}; to leave it out: ALTER SOURCE ..."
            f" RESUME FROM OFFSETS ({partition} => {after})"
        )

    def _letters(self, messages: pa.Table, reasons: pa.Array, time: Timestamp) -> pa.Table:
        count = len(reasons)
        told = _moments(time, count)
        if self._has_event_times:
            told, _ = timestamps(one_array(messages["timestamp"]))
        columns = [
            pa.repeat(pa.scalar(self._topic, pa.string()), count),
            messages["partition"],
            messages["offset"],
            told,
            _kept(messages["key"]),
            _kept(messages["value"]),
            _with_sizes(messages, reasons),
        ]
        return updates_at(columns, time, LETTERS)


def letters_of(
    skipped: Sequence[Skipped], time: Timestamp, *, has_event_times: bool
) -> pa.Table:
    """Return the dead letters about messages that are never read, which have no bytes.

    By event time they have no record, and tell no time.
    """
    none = pa.nulls(len(skipped), pa.binary())
    told = _moments(time, len(skipped))
    columns = [
        pa.array([skip.topic for skip in skipped], pa.string()),
        pa.array([skip.partition for skip in skipped], pa.int32()),
        pa.array([skip.first for skip in skipped], pa.int64()),
        pa.nulls(len(skipped), told.type) if has_event_times else told,
        none,
        none,
        pa.array([skip.reason for skip in skipped], pa.string()),
    ]
    return updates_at(columns, time, LETTERS)


def _moments(time: Timestamp, count: int) -> pa.Array:
    return pa.array(np.full(count, time * 1000, np.int64)).cast(pa.timestamp("us"))


def counts(partitions: NDArray[np.int32] | NDArray[np.int64]) -> dict[int, int]:
    """Return how often each partition is there."""
    numbers, times = np.unique(partitions, return_counts=True)
    return dict(zip(numbers.tolist(), times.tolist(), strict=True))


def _is_large(values: pa.Array) -> pa.Array:
    return pc.greater(pc.fill_null(pc.binary_length(values), 0), LARGEST_BYTES)


def _kept(column: pa.ChunkedArray) -> pa.Array:
    values = one_array(column)
    return pc.if_else(_is_large(values), pa.scalar(None, values.type), values)


def _with_sizes(messages: pa.Table, reasons: pa.Array) -> pa.Array:
    """Return the reasons; they say which bytes are not kept."""
    for part in ("key", "value"):
        lengths = pc.binary_length(one_array(messages[part]))
        said = pc.binary_join_element_wise(
            reasons, f"; the {part}, ", lengths.cast(pa.string()), " bytes, is not kept", ""
        )
        reasons = pc.if_else(_is_large(one_array(messages[part])), said, reasons)
    return reasons


def errors_at(texts: pa.Array, time: Timestamp) -> pa.Table:
    """Return new errors at a time. Shape: error, time, diff."""
    return updates_at([texts], time, ERRORS)


def updates_at(
    columns: list[pa.Array | pa.ChunkedArray], time: Timestamp, schema: pa.Schema
) -> pa.Table:
    """Return rows that come at a time. Shape: the columns, time, diff."""
    count = len(columns[0])
    times = pa.array(np.full(count, time, np.int64))
    return pa.table([*columns, times, pa.array(np.ones(count, np.int64))], schema=schema)
