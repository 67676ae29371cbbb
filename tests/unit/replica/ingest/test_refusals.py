"""Dead letters hold the bytes of a message, up to what fits into a record."""

from dataclasses import replace

import pyarrow as pa
import pytest

from streams.compute.description import IngestionDescription
from streams.compute.skipped_offsets import Skipped
from streams.ids import Timestamp, Topic
from streams.plan.metadata import Watermark
from streams.replica.ingest.metadata import LAST_MS
from streams.replica.ingest.refusals import LARGEST_BYTES, Refusals, letters_of
from streams.replica.ingest.source import MESSAGES

SOURCE = IngestionDescription(
    topic=Topic("t"), topic_id="i", envelope="none", on_error="dead_letter"
)


@pytest.mark.parametrize(
    ("key", "value", "encoded", "message"),
    [
        (b"k", b"v", (b"k", b"v"), ""),
        (None, None, (None, None), ""),
        (b"", b"x" * LARGEST_BYTES, (b"", b"x" * LARGEST_BYTES), ""),
        (
            b"k",
            b"x" * (LARGEST_BYTES + 1),
            (b"k", None),
            f"; the value, {LARGEST_BYTES + 1} bytes, is not kept",
        ),
        (
            b"x" * (LARGEST_BYTES + 1),
            b"v",
            (None, b"v"),
            f"; the key, {LARGEST_BYTES + 1} bytes, is not kept",
        ),
    ],
)
def test_a_dead_letter(
    key: bytes | None, value: bytes | None, encoded: tuple[bytes | None, ...], message: str
) -> None:
    rows = [
        {"key": None, "value": b"{}", "partition": 0, "offset": 6},
        {"key": key, "value": value, "partition": 2, "offset": 7},
    ]
    messages = pa.Table.from_pylist(rows, schema=MESSAGES)
    reasons = pa.array([None, "why"], pa.string())
    refused = Refusals(SOURCE).refused(messages, reasons, Timestamp(1_500))
    assert not refused.errors.num_rows
    (letter,) = refused.letters.to_pylist()
    topic, partition, offset, time, *raw, reason, at, diff = letter.values()
    assert (topic, partition, offset, tuple(raw)) == ("t", 2, 7, encoded)
    assert time.isoformat() == "1970-01-01T00:00:01.500000"
    assert (reason, at, diff) == (f"why{message}", 1_500, 1)


def test_by_event_time_a_dead_letter_tells_the_time_of_its_record() -> None:
    """That of its update is an upper: 1970, before there is a row (D340)."""
    declared = Watermark(column="ts", delay_ms=0, late_rows="place", idle_ms=0, ahead_ms=0)
    schema = MESSAGES.append(pa.field("timestamp", pa.int64()))
    rows = [
        {"key": None, "value": b"{", "partition": 0, "offset": offset, "timestamp": at}
        for offset, at in enumerate((1_764_000_000_123, None, LAST_MS + 1))
    ]
    messages = pa.Table.from_pylist(rows, schema=schema)
    reasons = pa.array(["why"] * 3)
    refused = Refusals(replace(SOURCE, watermark=declared)).refused(
        messages, reasons, Timestamp(0), letters_at=Timestamp(7)
    )
    *columns, times, _ = refused.letters.columns
    told = [None if at is None else at.isoformat() for at in columns[3].to_pylist()]
    assert told == ["2025-11-24T16:00:00.123000", None, None]
    assert times.to_pylist() == [7] * 3


@pytest.mark.parametrize(("has_event_times", "told"), [(True, None), (False, 7)])
def test_what_is_never_read_has_no_record(*, has_event_times: bool, told: int | None) -> None:
    skipped = [Skipped(Topic("t"), 0, 4, "skipped: offsets 4 to 6")]
    letters = letters_of(skipped, Timestamp(7), has_event_times=has_event_times)
    (at,) = letters.columns[3].cast(pa.timestamp("ms")).cast(pa.int64()).to_pylist()
    assert at == told
    assert letters.columns[-2].to_pylist() == [7]
