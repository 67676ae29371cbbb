"""Keys of each format: what they mean, and that errors give them back."""

import base64
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.compute.description import IngestionDescription, KeyFormat
from streams.ids import Timestamp, Topic
from streams.operators.local import LocalDataflow
from streams.plan.physical import Column
from streams.progress import interval_of
from streams.replica.ingest import plan
from streams.replica.ingest.envelope import KEYED_ERROR, Envelope
from streams.replica.ingest.keys import Keys
from streams.replica.ingest.scan import leading
from streams.replica.ingest.source import MESSAGES
from streams.trace.kernel.kernel import Kernel
from tests.support.examples import examples

KERNEL = Kernel()
KEY = {"text": Column("k", "VARCHAR"), "bytes": Column("k", "BLOB")}
FORMATS: list[KeyFormat] = ["text", "bytes"]
NASTY = [b"", b" ", b'"', b"a: b", b'", key "x', b"\\", b"\x00\x1f\x7f", "\u2028é😀".encode()]
NOT_TEXT = [b"\xff", b"a\xc0\x80", b"\xed\xa0\x80"]

keys = st.one_of(st.sampled_from(NASTY), st.text(max_size=6).map(str.encode))
raw_keys = st.one_of(keys, st.sampled_from(NOT_TEXT), st.binary(max_size=6), st.none())


Raw = tuple[bytes | None, bytes | None]


def envelope(key_format: KeyFormat) -> Envelope:
    columns = (Column("v", "BIGINT"), KEY[key_format])
    return Envelope(source(key_format), columns, KERNEL)


def source(key_format: KeyFormat) -> IngestionDescription:
    return IngestionDescription(
        topic=Topic("t"), topic_id="t", envelope="upsert", keys=("k",), key_format=key_format
    )


def messages(raw: list[Raw]) -> pa.Table:
    both = list(zip(*raw, strict=True)) or [(), ()]
    places = [0] * len(raw), list(range(len(raw)))
    columns = [
        pa.array(list(values), field.type)
        for values, field in zip((*both, *places), MESSAGES, strict=True)
    ]
    return pa.table(columns, schema=MESSAGES)


def model(key_format: KeyFormat, raw: bytes | None) -> tuple[object, str | None]:
    """The key's value, or why it has none."""
    kind = KEY[key_format].type
    if raw is None:
        return None, f'column "k": expected {kind}, actual no value'
    if key_format == "bytes":
        return raw, None
    try:
        return raw.decode(), None
    except UnicodeDecodeError as error:
        return None, f"expected UTF-8, actual other bytes at byte {error.start + 1}"


@pytest.mark.parametrize("key_format", FORMATS)
@examples(60)
@given(batch=st.lists(raw_keys, max_size=20), cut=st.integers(0, 3))
def test_a_key_is_its_text_or_its_bytes(key_format, batch, cut):
    raw = pa.array([b"before", *batch, b"behind"], pa.binary()).slice(1, len(batch))
    decoded = Keys([KEY[key_format]], key_format, KERNEL).decode(raw.slice(cut))
    expected = [model(key_format, key) for key in batch[cut:]]
    assert decoded.reasons.to_pylist() == [reason for _, reason in expected]
    values = decoded.columns["c0"].to_pylist()
    sound = [(value, want) for value, (want, reason) in zip(values, expected, strict=True)
             if reason is None]  # fmt: skip
    assert all(value == want for value, want in sound)


@pytest.mark.parametrize("key_format", FORMATS)
@examples(60)
@given(batch=st.lists(keys, min_size=1, max_size=10), reason=st.text(max_size=5))
def test_a_key_is_read_back_from_an_error_whatever_follows(key_format, batch, reason):
    reader = Keys([KEY[key_format]], key_format, KERNEL)
    shown = reader.shown(pa.array(batch, pa.binary())).to_pylist()
    expected = [
        base64.b64encode(key).decode() if key_format == "bytes" else key.decode()
        for key in batch
    ]
    assert [json.loads(text) for text in shown] == expected
    start = "cannot decode message: topic t, partition 0, offset 7, key "
    texts = [f"{start}{text}: {reason}" for text in shown]
    rests = [text[match.end() :] for text in texts if (match := KEYED_ERROR.match(text))]
    decoded = reader.read_back(
        pa.array([leading(rest).encode() for rest in rests], pa.binary())
    )
    wanted_rows = batch if key_format == "bytes" else [key.decode() for key in batch]
    assert decoded.columns["c0"].to_pylist() == wanted_rows
    assert decoded.reasons.null_count == len(batch)


@pytest.mark.parametrize("key_format", FORMATS)
def test_state_rebuilt_from_errors_lets_a_later_message_take_them_back(key_format, tmp_path):
    """What was in error under each key before the state was lost is gone once it is written."""
    broken: list[Raw] = [(key, b"[") for key in NASTY]
    ingested = envelope(key_format).updates(messages(broken), Timestamp(0))
    first = ingested.updates
    assert ingested.errors.num_rows == 0
    stored = stepped(key_format, tmp_path / "kept", [first])
    assert len(stored) == len(NASTY)
    stored_errors = pa.array([error for error, _ in stored], pa.string())
    zeros = pa.array([0] * len(stored), pa.int64())
    history = pa.table({"error": stored_errors, "time": zeros, "diff": pc.add(zeros, 1)})
    columns = [pa.field("c0", pa.int64()), pa.field("c1", first.schema.field("c1").type)]
    none = pa.schema([*columns, ("time", pa.int64()), ("diff", pa.int64())]).empty_table()
    replayed, _ = envelope(key_format).replay(none, history)
    written = messages([(key, b'{"v":1}') for key in NASTY])
    later = envelope(key_format).updates(written, Timestamp(1)).updates
    changes = stepped(key_format, tmp_path / "rebuilt", [replayed, later])
    assert sorted(changes) == sorted([*stored, *((error, -diff) for error, diff in stored)])


def stepped(
    key_format: KeyFormat, directory: Path, tables: list[pa.Table]
) -> list[tuple[str, int]]:
    """The changes of errors while the tables are stepped, a time each."""
    directory.mkdir()
    columns = (Column("v", "BIGINT"), KEY[key_format])
    flow = LocalDataflow(plan.dataflow(source(key_format), columns), directory, kernel=KERNEL)
    changes = []
    for time, table in enumerate(tables):
        _, errors = flow.step(interval_of(Timestamp(time), Timestamp(time + 1)), {0: table})
        rows = [row for error in errors for row in error.to_pylist()]
        changes += [(row["error"], row["diff"]) for row in rows]
    return changes


@pytest.mark.parametrize(
    ("key_format", "key", "value", "error"),
    [
        (
            "text",
            b"a b",
            b"[",
            'offset 0, key "a b": expected JSON, actual a text that ends too',
        ),
        ("bytes", b"\xff\x00", b"[", 'offset 0, key "/wA=": expected JSON, actual a text that'),
        (
            "text",
            b"a\xff",
            b"{}",
            "offset 0: key: expected UTF-8, actual other bytes at byte 2",
        ),
        ("text", None, b"{}", 'offset 0: key: column "k": expected VARCHAR, actual no value'),
        ("bytes", None, b"{}", 'offset 0: key: column "k": expected BLOB, actual no value'),
    ],
)
def test_errors_name_the_key_as_json(key_format, key, value, error):
    ingested = envelope(key_format).updates(messages([(key, value)]), Timestamp(0))
    texts = ingested.updates["c4"].to_pylist() + ingested.errors["error"].to_pylist()
    errors = [text for text in texts if text]
    assert len(errors) == 1
    assert errors[0].startswith(f"cannot decode message: topic t, partition 0, {error}")


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (b'"\xff"', "expected UTF-8, actual other bytes at byte 2"),
        (b'  "ab\\udc00"', "expected JSON, actual other text at character 3"),
        (b'{"id":"\xff"}', "expected UTF-8, actual other bytes at byte 8"),
        (b"5", 'column "id": expected VARCHAR, actual 5'),
    ],
)
def test_a_reason_counts_from_the_beginning_of_the_key(key, reason):
    keys = Keys([Column("id", "VARCHAR")], "json", KERNEL)
    batch = pa.array([b'"sound"', key, b'"\\ud800"'], pa.binary())
    assert keys.decode(batch).reasons.to_pylist() == [
        None,
        reason,
        "expected JSON, actual other text at character 1",
    ]
