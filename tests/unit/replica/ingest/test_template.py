"""Messages of one layout: each reads as it would alone, or none of them is read."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streams.plan.physical import Column
from streams.replica.ingest import batch, decode_one, template
from streams.replica.ingest.decode import Decoder
from streams.replica.ingest.fields import field
from streams.trace.kernel.kernel import Kernel

FIELDS = [
    field(column.name, "", column.type)
    for column in (
        Column("a", "BIGINT"),
        Column("t", "TINYINT"),
        Column("u", "UBIGINT"),
        Column("s", "VARCHAR"),
        Column("day", "DATE"),
        Column("b", "BOOLEAN"),
        Column("d", "DOUBLE"),
    )
]


def exact(messages: Sequence[bytes]) -> list[list[object]] | None:
    try:
        return [list(decode_one.read(message, FIELDS)) for message in messages]
    except decode_one.UndecodableValue:
        return None


def found(messages: Sequence[bytes]) -> list[list[object]] | None:
    decoded = template.read(pa.array(messages, pa.binary()), FIELDS)
    if decoded is None:
        return None
    assert decoded.schema == pa.schema([(field.name, field.parsed) for field in FIELDS])
    columns = [column.to_pylist() for column in decoded.columns]
    return [list(row) for row in zip(*columns, strict=True)]


NAMES = ["a", "t", "u", "s", "day", "b", "d", "", "x", "é"]
NUMBERS = st.one_of(
    st.integers(-130, 130),
    st.integers(0, 10**19),
    st.sampled_from(["-0", "01", "-", "", "1.5", "1e3", "9" * 18, "9" * 19, " 7", "+1", "1_0"]),
).map(str)
STRINGS = st.text(st.sampled_from('ab09é☃{}[]:, -\x7f"\\\n'), max_size=9).map(
    lambda text: f'"{text}"'
)
OTHERS = st.sampled_from(["null", "true", "false", "NaN", "{}", "[1]", '{"a":1}', '["s"]'])


@st.composite
def alike(draw: st.DrawFn) -> list[bytes]:
    """Messages with the same members, their values of mostly one kind; some are odd."""
    colon, comma = draw(st.sampled_from([":", ": "])), draw(st.sampled_from([",", ", "]))
    members = draw(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 7)), max_size=5))
    plain_numbers = st.integers(-120, 120).map(str)
    plain_strings = st.text("ab09é☃{}[]:, -", max_size=9).map(lambda text: f'"{text}"')
    kinds = [plain_numbers, plain_strings] * 3 + [NUMBERS, STRINGS | OTHERS]
    messages = []
    for _ in range(draw(st.integers(1, 5))):
        parts = [f'"{name}"{colon}{draw(kinds[kind])}' for name, kind in members]
        messages.append(f"{{{comma.join(parts)}}}".encode())
    if draw(st.integers(0, 3)) == 0:
        which = draw(st.integers(0, len(messages) - 1))
        at = draw(st.integers(0, len(messages[which]) - 1))
        byte = draw(st.sampled_from(list(b'"{}:,0a- \\\n')))
        messages[which] = messages[which][:at] + bytes([byte]) + messages[which][at + 1 :]
    return messages


@given(alike())
@example([b'{"a":1,"x":2}', b'{"a":1,"a":2}'])
@example([b'{"a":1}', b'{"":1}'])
@example([b'{"s":"a","x":"b"}', b'{"s":"a","x":"b}'])
@example([b'{"s":"a"}', b'{"s":""}"'])
@example([b'{"s":"aaaaaaaaaaaaaaaa"}', b'{"""}', b'{"""}'])
@example([b'{"a":12345678}', b'{"a":123456789012345678}', b'{"a":-1}', b'{"a":1234567/}'])
@example([b'{"a":1}', b'{"a":}'])
@example([b'{"a":1}', b'{"a":-}'])
def test_a_message_reads_as_alone_or_none_is_read(messages: list[bytes]) -> None:
    framed = batch.objects(pa.array(messages, pa.binary()))
    if framed.all():
        learned = found(messages)
        assert learned is None or learned == exact(messages)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('{"a":1,"s":"x"}', '{"a":-12345678901234567,"s":"é☃ {}"}'),
        ('{"s":"x","a":1}', '{"s":"","a":999999999999999999}'),
        ('{"t":-128}', '{"t":127}'),
        ('{ "u" : 0 , "x" : "y" }', '{ "u" : 10 , "x" : "" }'),
        ('{"day":"2024-01-01","b":null,"d":null}', '{"day":"no","b":null,"d":null}'),
        ('{"x":true,"a":1}', '{"x":true,"a":12345678}'),
        ('{"a":-0}', '{"a":0}'),
    ],
)
def test_what_is_alike_is_read(first: str, second: str) -> None:
    messages = [text.encode() for text in (first, second, first)]
    assert found(messages) == exact(messages) is not None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('{"a":1,"s":"x"}', '{"s":"x","a":1}'),
        ('{"a":1,"s":"x"}', '{"a":1,"s":"x","t":1}'),
        ('{"s":"x"}', '{"s":"\\n"}'),
        ('{"s":"x"}', '{"s":"\t"}'),
        ('{"a":1}', '{"a":null}'),
        ('{"a":1}', '{"a":"1"}'),
        ('{"t":1}', '{"t":128}'),
        ('{"u":1}', '{"u":-1}'),
        ('{"x":1,"a":1}', '{"x":01,"a":1}'),
        ('{"x":1,"a":1}', '{"x":NaN,"a":1}'),
        ('{"a":1}', '{"a":1:2}'),
        ('{"a":1}', '{"a":1;2}'),
        ('{"s":"x"}', '{"s":"x"}}'),
        ('{"s":"x"}', '{{"s":"x"}'),
        ('{"d":1}', '{"d":2}'),
        ('{"b":true}', '{"b":true}'),
        ('{"a":1,"a":1}', '{"a":1,"a":1}'),
        ("{}", "{}"),
    ],
)
def test_what_is_not_alike_is_left_to_others(first: str, second: str) -> None:
    assert found([text.encode() for text in (first, second, first)]) is None


def test_a_decoder_reads_many_alike_by_their_template(monkeypatch: pytest.MonkeyPatch) -> None:
    lots, lot = [], template._lot

    def watched(*arguments: Any) -> pa.Table | None:
        lots.append(lot(*arguments))
        return lots[-1]

    monkeypatch.setattr(template, "_lot", watched)
    monkeypatch.setattr(template, "LOT_BYTES", 1 << 10)
    decoder = Decoder((Column("a", "BIGINT"), Column("s", "VARCHAR")), Kernel())
    rows = [{"a": number, "x": "-" * (number % 7), "s": str(number)} for number in range(1_000)]
    texts = pa.array([json.dumps(row).encode() for row in rows], pa.binary())
    decoded = decoder.decode(texts)
    assert decoded.columns.column(0).to_pylist() == [row["a"] for row in rows]
    assert decoded.columns.column(1).to_pylist() == [row["s"] for row in rows]
    assert decoded.reasons.null_count == len(rows)
    assert len(lots) == 3
    assert None not in lots


def test_a_decoder_reads_an_odd_message_among_many_alike() -> None:
    decoder = Decoder((Column("a", "BIGINT"),), Kernel())
    texts = [b'{"a":%d}' % number for number in range(2_000)]
    texts[1_234] = b'{"a":"odd"}'
    decoded = decoder.decode(pa.array(texts, pa.binary()))
    assert decoded.reasons.null_count == len(texts) - 1
    assert decoded.columns.column(0).to_pylist()[1_233:1_236:2] == [1_233, 1_235]
