"""Parts of messages as columns, beside those of their values."""

import struct
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.compute.description import IngestionDescription, KeyFormat
from streams.ids import Offset, Timestamp, Topic
from streams.plan.metadata import Included, Part
from streams.plan.physical import Column
from streams.replica.ingest.metadata import LAST_MS, MORE, fetched
from streams.replica.ingest.ranges import Slice
from streams.replica.ingest.source import MESSAGES, Resources, load
from streams.trace.kernel.kernel import Kernel
from tests.support.examples import examples

KERNEL = Kernel()
PARTS: tuple[Part, ...] = ("headers", "key", "timestamp", "offset", "partition")
TYPES = ('STRUCT("key" VARCHAR, "value" BLOB)[]', "BLOB", "TIMESTAMP", "BIGINT", "INTEGER")
INCLUDED = tuple(Included(part, f"the {part}") for part in PARTS)
TOPIC = Topic("t")


def column_types(key_type: str) -> tuple[Column, ...]:
    types = (*TYPES[:1], key_type, *TYPES[2:])
    return tuple(
        Column(included.column, kind) for included, kind in zip(INCLUDED, types, strict=True)
    )


class Fetched:
    """A topic in memory, which notes what is fetched beside keys and values."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self._messages = messages
        self.more: list[tuple[str, ...]] = []

    def fetch_ranges(
        self,
        topic: Topic,
        ranges: Sequence[tuple[int, Offset, Offset]],
        *,
        more: Sequence[str] = (),
    ) -> pa.Table:
        self.more.append(tuple(more))
        schema = pa.schema([*MESSAGES, *((name, MORE[name]) for name in more)])
        rows = [{name: row[name] for name in schema.names} for row in self._messages]
        return pa.Table.from_pylist(rows, schema=schema)


def loaded(
    source: IngestionDescription, columns: tuple[Column, ...], topic: Fetched
) -> tuple[list[dict[str, Any]], list[str]]:
    everything = [Slice(0, Offset(0), Offset(1 << 40))]
    ingested = load(source, columns, everything, Timestamp(7), Resources(topic, KERNEL))
    return ingested.updates.to_pylist(), ingested.errors["error"].to_pylist()


times = st.one_of(st.none(), st.integers(0, 2**63 - 1), st.integers(0, 4 * 10**12))
headers = st.lists(
    st.tuples(st.text(max_size=2), st.one_of(st.none(), st.binary(max_size=2))), max_size=2
)
batches = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from([None, b"", b"a", "é".encode(), b"\xff"]),
            "value": st.sampled_from([b'{"v":1}', b'{"v":2}', b"[", None]),
            "partition": st.integers(0, 3),
            "timestamp": times,
            "headers": st.one_of(st.none(), headers),
        }
    ),
    max_size=12,
)


def reason(message: dict[str, Any], key_format: str) -> str | None:
    """Why a message of envelope NONE cannot be decoded."""
    if message["value"] is None:
        return "expected a JSON object, actual nothing"
    if message["value"] == b"[":
        return "expected JSON, actual a text that ends too early"
    if message["headers"] is None:
        return "headers: expected names in UTF-8, actual other bytes"
    if key_format == "text" and message["key"] == b"\xff":
        return "key: expected UTF-8, actual other bytes at byte 1"
    at = message["timestamp"]
    if at is not None and at > LAST_MS:
        return f"timestamp: expected milliseconds that a TIMESTAMP holds, actual {at}"
    return None


def row(message: dict[str, Any], key_format: str) -> dict[str, Any]:
    key = message["key"]
    return {
        "c0": {b'{"v":1}': 1, b'{"v":2}': 2}[message["value"]],
        "c1": [{"key": name, "value": value} for name, value in message["headers"]],
        "c2": key.decode() if key is not None and key_format == "text" else key,
        "c3": message["timestamp"],
        "c4": message["offset"],
        "c5": message["partition"],
        "time": 7,
        "diff": 1,
    }


@pytest.mark.parametrize("key_format", ["json", "text", "bytes"])
@examples(40)
@given(messages=batches)
def test_each_row_has_the_parts_of_its_message(key_format: KeyFormat, messages) -> None:
    for offset, message in enumerate(messages):
        message["offset"] = offset
    source = IngestionDescription(
        topic=TOPIC, topic_id="i", envelope="none", key_format=key_format, included=INCLUDED
    )
    columns = (
        Column("v", "BIGINT"),
        *column_types("VARCHAR" if key_format == "text" else "BLOB"),
    )
    everything = [Slice(0, Offset(0), Offset(1 << 40))]
    resources = Resources(Fetched(messages), KERNEL)
    ingested = load(source, columns, everything, Timestamp(7), resources)
    rows, errors = ingested.updates, ingested.errors
    place = rows.schema.get_field_index("c3")
    rows = rows.set_column(place, "c3", in_milliseconds(rows["c3"]))
    reasons = {message["offset"]: reason(message, key_format) for message in messages}
    sound = [message for message in messages if reasons[message["offset"]] is None]
    assert rows.to_pylist() == [row(message, key_format) for message in sound]
    assert errors["error"].to_pylist() == [
        f"cannot decode message: topic t, partition {message['partition']}, offset"
        f" {message['offset']}: {error}"
        for message in messages
        if (error := reasons[message["offset"]]) is not None
    ]


def in_milliseconds(moments: pa.ChunkedArray) -> pa.Array:
    """Their times as written, which Python's datetime does not reach."""
    raw = pa.concat_arrays([pa.array([], moments.type), *moments.chunks]).view(pa.int64())
    assert all(us is None or us % 1000 == 0 for us in raw.to_pylist())
    return pa.array([None if us is None else us // 1000 for us in raw.to_pylist()], pa.int64())


def test_an_upsert_has_the_parts_of_its_last_message_and_none_while_it_is_in_error() -> None:
    source = IngestionDescription(
        topic=TOPIC, topic_id="i", envelope="upsert", keys=("k",), key_format="text",
        included=INCLUDED,
    )  # fmt: skip
    columns = (Column("k", "VARCHAR"), Column("v", "BIGINT"), *column_types("VARCHAR"))
    first = {
        "key": b"a", "value": b'{"v":1}', "partition": 2, "offset": 5, "timestamp": 1_500,
        "headers": [("h", struct.pack(">h", 1))],
    }  # fmt: skip
    messages = [
        first,
        {**first, "offset": 6, "value": None},
        {**first, "offset": 7, "value": b"["},
        {**first, "offset": 8, "timestamp": 2**63 - 1},
    ]
    rows, errors = loaded(source, columns, Fetched(messages))
    assert errors == []
    parts = [[record[f"c{place}"] for place in range(2, 7)] for record in rows]
    moment = datetime(1970, 1, 1, 0, 0, 1, 500_000)  # noqa: DTZ001 - a TIMESTAMP has no zone
    header = [{"key": "h", "value": b"\0\1"}]
    assert parts == [[header, "a", moment, 5, 2], *[[None] * 5] * 3]
    assert [record["c8"] for record in rows] == [0, 1, 2, 2]
    assert rows[3]["c9"].endswith(
        'offset 8, key "a": timestamp: expected milliseconds that a TIMESTAMP holds,'
        " actual 9223372036854775807"
    )


def test_what_nobody_includes_is_not_fetched() -> None:
    message = {"key": None, "value": b'{"v":1}', "partition": 0, "offset": 0}
    cases: list[tuple[tuple[Part, ...], tuple[str, ...]]] = [
        ((), ()),
        (("offset", "key"), ()),
        (("headers",), ("headers",)),
    ]
    for parts, more in cases:
        included = tuple(Included(part, part) for part in parts)
        source = IngestionDescription(
            topic=TOPIC, topic_id="i", envelope="none", included=included
        )
        types = dict(zip(PARTS, TYPES, strict=True))
        columns = (Column("v", "BIGINT"), *(Column(part, types[part]) for part in parts))
        topic = Fetched([{**message, "headers": []}])
        loaded(source, columns, topic)
        assert topic.more == [more] == [fetched(source)]
