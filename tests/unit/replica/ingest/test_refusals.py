"""Dead letters hold the bytes of a message, up to what fits into a record."""

import pyarrow as pa
import pytest

from streams.compute.description import IngestionDescription
from streams.ids import Timestamp, Topic
from streams.replica.ingest.refusals import LARGEST_BYTES, Refusals
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
