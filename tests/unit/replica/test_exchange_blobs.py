"""Blobs come out as they went in."""

import pyarrow as pa

from streams.ids import CollectionId
from streams.replica.tasks.exchange_blobs import Head, blobs, pack, peek, rows, unpack

UPDATE = Head(
    kind="update", step="steady-1", dataflow=CollectionId("u1"), bucket=1, level=2, node=3,
    port="left",
)  # fmt: skip
TABLE = pa.table(
    {"c0": pa.array(["a", None]), "time": pa.array([1, 2]), "diff": pa.array([1, -1])}
)


def test_an_update_keeps_its_head_and_its_rows() -> None:
    message = unpack(pa.py_buffer(pack(UPDATE, TABLE)))
    assert message.head == UPDATE
    assert message.table.replace_schema_metadata() == TABLE


def test_a_head_is_read_without_the_table() -> None:
    assert peek(pa.py_buffer(pack(UPDATE, TABLE))) == UPDATE


def test_a_report_has_a_body_and_no_table() -> None:
    head = Head(
        kind="report", step="s", dataflow=CollectionId("u"), bucket=0, body='{"a": "ü"}'
    )
    message = unpack(pa.py_buffer(pack(head)))
    assert message.head == head
    assert message.table.num_rows == 0


def test_blobs_travel_with_their_buckets() -> None:
    sent = [(0, b"a"), (1, b""), (0, b"bc")]
    pairs = [(bucket, blob.to_pybytes()) for bucket, blob in blobs(rows(sent))]
    assert pairs == sent


def test_no_blobs_are_no_batch() -> None:
    assert list(rows([])) == []
