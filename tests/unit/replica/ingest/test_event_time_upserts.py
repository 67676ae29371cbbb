"""What messages of a source with keys and a watermark mean, one batch at a time."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from streams.compute.description import IngestionDescription, KeyFormat
from streams.ids import Timestamp, Topic
from streams.plan.metadata import Included, Watermark
from streams.plan.physical import Column, Temporal, Upsert
from streams.replica.ingest import plan
from streams.replica.ingest.envelope import Envelope, IngestResult
from streams.replica.ingest.event_times import FRESH, ReadMode
from streams.replica.ingest.plan import DELETION, VALUE
from streams.trace.kernel.kernel import Kernel

KERNEL = Kernel()
DECLARED = Watermark(
    column="ts", delay_ms=0, late_rows="dead_letter", idle_ms=0, ahead_ms=10_000
)
PLACED = Watermark(column="ts", delay_ms=0, late_rows="place", idle_ms=0, ahead_ms=10_000)
COLUMNS = (Column("v", "BIGINT"), Column("k", "VARCHAR"), Column("ts", "TIMESTAMP"))
RECORD = 5_000

Message = tuple[object, object, int, int]
"""A key and a value, JSON unless None; a partition and an offset."""


def source(
    keys: tuple[str, ...] = ("k",),
    watermark: Watermark = DECLARED,
    included: tuple[Included, ...] = (),
    key_format: KeyFormat = "json",
) -> IngestionDescription:
    return IngestionDescription(
        topic=Topic("t"),
        topic_id="i",
        envelope="upsert",
        keys=keys,
        key_format=key_format,
        included=included,
        on_error="dead_letter",
        watermark=watermark,
    )


def moment(ms: int) -> str:
    at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)
    return at.strftime("%Y-%m-%d %H:%M:%S.%f")


def encoded(part: object) -> bytes | None:
    return None if part is None else json.dumps(part).encode()


def ingested(
    of: IngestionDescription,
    messages: Sequence[Message],
    lower: int = 0,
    manner: ReadMode = FRESH,
) -> IngestResult:
    rows = [
        {
            "key": encoded(key),
            "value": encoded(value),
            "partition": partition,
            "offset": offset,
            "timestamp": RECORD,
        }
        for key, value, partition, offset in messages
    ]
    schema = pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.int64()),
        ]
    )
    table = pa.Table.from_pylist(rows, schema=schema)
    return Envelope(of, COLUMNS, KERNEL).updates(table, Timestamp(lower), manner)


def kinds(updates: pa.Table) -> list[tuple[Any, ...]]:
    """Of each update: value, kind, event time, time."""
    return [
        (row["c0"], row["c4"], row["c6"], row["time"])
        for row in updates.sort_by("c3").to_pylist()
    ]


def reasons(of: IngestResult) -> list[str]:
    return [row["c6"] for row in of.letters.to_pylist()]


def test_updates_carry_their_event_times() -> None:
    messages = [
        ("a", {"v": 1, "ts": moment(1_000)}, 0, 7),
        ({"k": "a"}, {"v": 2, "ts": moment(900)}, 1, 7),
        ("b", {"v": 3, "ts": moment(100)}, 1, 8),
    ]
    late = ingested(source(), messages, 500)
    assert kinds(late.updates) == [(1, VALUE, 1_000, 500), (2, VALUE, 900, 500)]
    assert reasons(late) == ["late: event time 100 ms is before upper 500 ms"]
    assert late.seen.late == {1: 1}
    placed = ingested(source(watermark=PLACED), messages, 500)
    assert kinds(placed.updates)[2] == (3, VALUE, 100, 500)
    again = ingested(source(watermark=PLACED), messages, 500, ReadMode("again"))
    assert len(kinds(again.updates)) == 2


def test_a_deletion_without_an_event_time_says_what_to_do() -> None:
    letters = ingested(source(), [("a", None, 0, 1), ("a", {"v": 1, "ts": None}, 0, 2)])
    assert not letters.updates.num_rows
    assert reasons(letters) == [
        'no value, so no column "ts", the event time: a message that deletes its key needs the'
        " event time in the key, or from INCLUDE TIMESTAMP",
        'column "ts" is the event time and is NULL',
    ]
    assert letters.seen.bad == {0: 2}
    assert not letters.seen.greatest


def test_a_deletion_has_the_time_of_its_record() -> None:
    by_record = source(included=(Included("timestamp", "ts"),))
    messages: list[Message] = [("a", {"v": 1}, 0, 1), ("a", None, 0, 2)]
    result = ingested(by_record, messages)
    assert kinds(result.updates) == [(1, VALUE, RECORD, 0), (None, DELETION, RECORD, 0)]
    assert result.updates["c2"].to_pylist()[1] is None
    assert result.seen.greatest == {0: RECORD}
    late = ingested(by_record, messages, RECORD + 1)
    assert reasons(late) == ["late: event time 5000 ms is before upper 5001 ms"] * 2


def test_a_deletion_has_the_event_time_of_its_key() -> None:
    by_key = source(keys=("k", "ts"))
    messages: list[Message] = [
        ({"k": "a", "ts": moment(70)}, None, 0, 1),
        ({"k": "a", "ts": moment(90_000)}, None, 0, 2),
        ({"k": "a"}, None, 0, 3),
    ]
    result = ingested(by_key, messages)
    assert kinds(result.updates) == [(None, DELETION, 70, 0)]
    ahead, unknown = reasons(result)
    assert ahead.startswith('column "ts": event time 90000 ms is more than 10000 ms after')
    assert unknown.startswith("key: ")


def test_a_message_of_no_key_has_no_event_time() -> None:
    result = ingested(source(), [(5, {"v": 1, "ts": moment(1)}, 0, 1)])
    assert not result.updates.num_rows
    assert reasons(result)[0].startswith("key: ")
    assert not result.seen.greatest


@pytest.mark.parametrize("keys", [("k",), ("k", "ts")])
def test_what_is_replayed_has_its_event_time(keys: tuple[str, ...]) -> None:
    """Also a row that was placed later than it happened."""
    at = [datetime(1970, 1, 1) + timedelta(milliseconds=ms) for ms in (40, 90)]  # noqa: DTZ001
    updates = pa.table(
        {
            "c0": pa.array([1, 1, 2]),
            "c1": ["a", "a", "a"],
            "c2": pa.array([at[0], at[0], at[1]], pa.timestamp("us")),
            "time": pa.array([60, 90, 90]),
            "diff": pa.array([1, -1, 1]),
        }
    )
    none = pa.table({"error": pa.array([], pa.string()), "time": pa.array([], pa.int64()),
                     "diff": pa.array([], pa.int64())})  # fmt: skip
    replayed, errors = Envelope(source(keys), COLUMNS, KERNEL).replay(updates, none)
    placed = sorted(
        (row["time"], row["c3"], row["c4"], row["c6"]) for row in replayed.to_pylist()
    )
    assert placed == [(60, 1, VALUE, 40), (90, 0, DELETION, 40), (90, 1, VALUE, 90)]
    assert not errors.num_rows


def test_the_plan_needs_one_exchange() -> None:
    dataflow = plan.dataflow(source(), COLUMNS)
    _, entering, upsert = dataflow.nodes
    assert isinstance(entering, Temporal)
    assert entering.keys == (1,)
    assert upsert == Upsert(1, (1,), dated=True)
    assert dataflow.depth == 1
