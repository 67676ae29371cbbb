"""Three ways to decode a message agree: in a batch, one by one, and as Python would.

The last is written here, from the table in `fields`, with nothing of the code under test.
"""

import base64
import json
import math
import re
import struct
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.errors import InvalidUsage
from streams.plan.physical import Column
from streams.plan.source_types import PLAIN
from streams.replica.ingest.decode import Decoder, wrap_scalars
from streams.replica.ingest.fields import field
from streams.trace.kernel.kernel import Kernel
from tests.support.examples import examples

KERNEL = Kernel()
COLUMNS = (
    Column("t", "TINYINT"),
    Column("i", "BIGINT"),
    Column("w", "UBIGINT"),
    Column("h", "HUGEINT"),
    Column("c", "DECIMAL(9,2)"),
    Column("d", "DOUBLE"),
    Column("f", "FLOAT"),
    Column("s", "VARCHAR"),
    Column("b", "BOOLEAN"),
    Column("day", "DATE"),
    Column("clock", "TIME"),
    Column("ts", "TIMESTAMP"),
    Column("tz", "TIMESTAMP WITH TIME ZONE"),
    Column("id", "UUID"),
    Column("raw", "BLOB"),
    Column("a/~{b}'", "INTEGER"),
)
DECODER = Decoder(COLUMNS, KERNEL)
REFUSED = "refused"


def one_by_one(columns: Sequence[Column]) -> Decoder:
    """A decoder whose batches never succeed, so that every message is odd."""
    decoder = Decoder(columns, KERNEL)
    decoder._batches.read = lambda texts: None  # type: ignore[method-assign]
    return decoder


# What Python makes of a message


class Number(str):
    __slots__ = ()


def refuse(name: str) -> None:
    raise ValueError(name)


def python_members(raw: bytes) -> list[tuple[str, object]] | None:
    """The members of the message's object, numbers as they are written."""
    try:
        text = raw.decode()
        document = json.loads(
            text,
            parse_int=Number,
            parse_float=Number,
            parse_constant=refuse,
            object_pairs_hook=lambda pairs: ("object", pairs),
        )
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    except ValueError:
        return None
    if not isinstance(document, tuple):
        return None
    return list(document[1])


NUMBER = r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?"


def unquoted(value: object) -> object:
    """A string that holds a number of JSON is that number, where one is expected."""
    if isinstance(value, str) and re.fullmatch(NUMBER, value, re.ASCII):
        return Number(value)
    return value


def integer(low: int, high: int, value: object) -> object:
    value = unquoted(value)
    if isinstance(value, Number) and re.fullmatch(r"-?\d+", value) and len(value) < 60:
        return int(value) if low <= int(value) <= high else REFUSED
    return REFUSED


def number(value: object) -> Decimal | None:
    value = unquoted(value)
    return Decimal(value) if isinstance(value, Number) else None


def text(pattern: str, value: object) -> re.Match[str] | None:
    plain = isinstance(value, str) and not isinstance(value, Number)
    return re.fullmatch(pattern, str(value), re.ASCII) if plain else None


def exact(width: int, scale: int, value: object) -> object:
    encoded = number(value)
    if encoded is None or abs(encoded) >= 10 ** (width - scale):
        return REFUSED
    return encoded if encoded * 10**scale == int(encoded * 10**scale) else REFUSED


def double(value: object) -> object:
    encoded = number(value)
    if encoded is None or math.isinf(float(encoded)):
        return REFUSED
    return float(encoded) + 0.0


def single(value: object) -> object:
    wide = double(value)
    try:
        narrow = struct.unpack("f", struct.pack("f", wide))[0]
    except (OverflowError, struct.error):
        return REFUSED
    return REFUSED if math.isinf(narrow) else narrow  # midway to the next one it is no error


def moment(zone: str, value: object) -> datetime | str:
    match = text(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(\.\d{1,6})?" + zone, value)
    if not match:
        return REFUSED
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    micro = int((match[7] or ".")[1:].ljust(6, "0"))
    try:
        return datetime(year, month, day, hour, minute, second, micro, tzinfo=UTC)
    except ValueError:
        return REFUSED


def zoned(value: object) -> object:
    match = text(r".*(?:Z|([+-])(\d\d):(\d\d))", value)
    wall = moment(r"(?:Z|[+-](?:0\d|1[0-5]):[0-5]\d)", value)
    if not match or isinstance(wall, str) or not match[1]:
        return wall
    shift = timedelta(hours=int(match[2]), minutes=int(match[3]))
    return wall - shift if match[1] == "+" else wall + shift


def python_value(declared: str, value: object) -> object:
    try:
        return python_values[declared](value)
    except ValueError:
        return REFUSED


def naive(value: object) -> object:
    wall = moment("Z?", value)
    return wall if isinstance(wall, str) else wall.replace(tzinfo=None)


def huge(value: object) -> object:
    result = exact(60, 0, value)
    if not isinstance(result, Decimal) or not -(2**127) <= result < 2**127:
        return REFUSED
    return int(result)


python_values: dict[str, Callable[[object], object]] = {
    "TINYINT": lambda v: integer(-128, 127, v),
    "INTEGER": lambda v: integer(-(2**31), 2**31 - 1, v),
    "BIGINT": lambda v: integer(-(2**63), 2**63 - 1, v),
    "UBIGINT": lambda v: integer(0, 2**64 - 1, v),
    "HUGEINT": huge,
    "DECIMAL(9,2)": lambda v: exact(9, 2, v),
    "DOUBLE": double,
    "FLOAT": single,
    "VARCHAR": lambda v: str(v) if text(r"(?s:.*)", v) else REFUSED,
    "BOOLEAN": lambda v: v if isinstance(v, bool) else REFUSED,
    "DATE": lambda v: date.fromisoformat(str(v)) if text(r"\d{4}-\d\d-\d\d", v) else REFUSED,
    "TIME": lambda v: (
        time(int(m[1]), int(m[2]), int(m[3]), int((m[4] or ".")[1:].ljust(6, "0")))
        if (m := text(r"(\d\d):(\d\d):(\d\d)(\.\d{1,6})?", v))
        else REFUSED
    ),
    "TIMESTAMP": naive,
    "TIMESTAMP WITH TIME ZONE": zoned,
    "UUID": lambda v: (
        uuid.UUID(str(v))
        if text(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", v)
        else REFUSED
    ),
    "BLOB": lambda v: (
        base64.b64decode(str(v), validate=True)
        if text(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", v)
        else REFUSED
    ),
}


def python_row(raw: bytes | None, columns: Sequence[Column]) -> list[object] | None:
    members = None if raw is None else python_members(raw)
    if members is None:
        return None
    row: list[object] = []
    for column in columns:
        mine = [value for name, value in members if name == column.name]
        if len(mine) > 1:
            return None
        row.append(None if not mine or mine[0] is None else python_value(column.type, mine[0]))
    return None if any(isinstance(v, str) and v is REFUSED for v in row) else row


# What the decoder makes of it


def rows(decoder: Decoder, messages: Sequence[bytes | None]) -> list[list[object] | None]:
    decoded = decoder.decode(pa.array(messages, pa.binary()))
    assert decoded.columns.num_rows == len(decoded.reasons) == len(messages)
    columns = [column.to_pylist() for column in decoded.columns.columns]
    fetched: list[list[object] | None] = []
    for index, reason in enumerate(decoded.reasons.to_pylist()):
        row = [plain(column[index]) for column in columns]
        fetched.append(None if reason is not None else row)
    return fetched


def plain(value: object) -> object:
    """A HUGEINT travels as 16 bytes."""
    if isinstance(value, bytes) and len(value) == 16:
        return int.from_bytes(value, "little", signed=True)
    return value


digits = st.integers(-(10**40), 10**40).map(str)
numbers = st.one_of(
    digits,
    st.integers(-300, 300).map(str),
    st.decimals(-1e8, 1e8, places=2).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(
        ["-0", "0.0", "-0.0", "1e3", "1E-2", "1e39", "1e308", "1e309", "0e400", "1e-400",
         "1.7976931348623159e308", "9999999.99", "10000000", "1.500", "1.005", "150e-1",
         "9223372036854775807", "9223372036854775808", "18446744073709551615",
         "170141183460469231731687303715884105727", "170141183460469231731687303715884105728",
         "-170141183460469231731687303715884105728", "5e-324", "3.4028236e38", "NaN", "Inf",
         "-Infinity", "01", "1.", ".5", "+1"]
    ),
)  # fmt: skip
moments = st.datetimes().map(str)
strings = st.one_of(
    st.text(max_size=5),
    moments,
    moments.map(lambda value: value.replace(" ", "T") + "Z"),
    moments.map(lambda value: value + "+02:00"),
    moments.map(lambda value: value[:10]),
    moments.map(lambda value: value[11:]),
    st.uuids().map(str),
    st.binary(max_size=4).map(lambda value: base64.b64encode(value).decode()),
    st.sampled_from(
        ["1.5", "1", "2013-02-29", "2012-02-29", "0000-01-01", "24:00:00", "12:00:60", "",
         "2013-01-01T10:00:00.1234567", "2013-01-01T10:00:00-15:59", "true", "QQ=", "QR==",
         "2013-01-01 10:00", "2013-1-1", "NaN", "infinity", "epoch", "{", "}{", "a\u0000b"]
    ),
)  # fmt: skip
values = st.one_of(
    numbers,
    numbers.map('"{}"'.format),
    st.tuples(strings, st.booleans()).map(lambda s: json.dumps(s[0], ensure_ascii=s[1])),
    st.sampled_from(
        ["null", "true", "false", "[]", "{}", '[1,{"i":2}]', '{"i":NaN}', '"\\ud800"']
    ),
)
names = st.sampled_from([column.name for column in COLUMNS] + ["unknown", "\u0069", "I"])
space = st.sampled_from(["", "", "", " ", "\n", "\t"])
pairs = st.lists(st.tuples(names, values, space), max_size=5)


def written(members: list[tuple[str, str, str]]) -> bytes:
    inside = ",".join(f"{gap}{json.dumps(name)}:{gap}{value}" for name, value, gap in members)
    return f"{{{inside}}}".encode("utf-8", "surrogatepass")


good = pairs.map(
    lambda members: written(list({name: (name, v, g) for name, v, g in members}.values()))
)
scraps = st.sampled_from(
    [b"", b" ", b"{", b"}", b"{}{}", b"{} {}", b'{"s":"x}', b'{y"}', b"null", b"[1]", b"5",
     b'"x"', b"{}\n{}", b"\xef\xbb\xbf{}", b'{"s":"\xff"}', b'{"u":"\xc0\x80"}', b"{}\x00",
     b'{"s":"a\nb"}', b'{"i":1} null {"i":2}', b"{a:1}", b'{"i":1,}', b'{"u":[1,]}', b"{}x",
     b'{"i":1/**/}', b"\x00", b'{"u":NaN}', b'{"s":"x, NaN, y"}', b"{'i':1}"]
)  # fmt: skip
messages = st.lists(
    st.one_of(good, good, good, pairs.map(written), scraps, st.none()), min_size=1, max_size=30
)


@examples(60)
@given(messages)
def test_a_batch_is_decoded_as_each_message_alone_is_and_as_python_would(batch):
    expected = [python_row(raw, COLUMNS) for raw in batch]
    assert rows(DECODER, batch) == expected
    assert rows(one_by_one(COLUMNS), batch) == expected


@examples(10)
@given(messages)
def test_reasons_do_not_depend_on_the_batch(batch):
    together = DECODER.decode(pa.array(batch, pa.binary())).reasons.to_pylist()
    alone = [
        DECODER.decode(pa.array([raw], pa.binary())).reasons.to_pylist()[0] for raw in batch
    ]
    odd = one_by_one(COLUMNS).decode(pa.array(batch, pa.binary())).reasons.to_pylist()
    assert together == alone == odd


@pytest.mark.parametrize(
    ("text", "fits"),
    [("9999999.99", True), ("10000000", False), ("-10000000", False), ("1e7", False)],
)
def test_a_decimal_of_few_digits_may_be_too_wide_for_its_scale(text, fits):
    decoder = Decoder([Column("c", "DECIMAL(9,2)")], KERNEL)
    batch = pa.array(
        [b'{"c":%s}' % text.encode(), b'{"c":1}', b'{"c":null}', b"{}"], pa.binary()
    )
    reasons = decoder.decode(batch).reasons.to_pylist()
    expected = None if fits else f'column "c": expected DECIMAL(9,2), actual {text}'
    assert reasons == [expected, None, None, None]


def test_many_bad_messages_among_many_good_ones_are_found():
    batch = [b'{"i":%d}' % index for index in range(2_000)]
    for index in range(0, 2_000, 37):
        batch[index] = [b'{"i":1.5}', b'{"i":1,"i":2}', b"{", b'{"s":"\xff"}'][index % 4]
    assert rows(DECODER, batch) == [python_row(raw, COLUMNS) for raw in batch]


@pytest.mark.parametrize("kind", ["BIGINT", "DOUBLE", "DECIMAL(9,2)"])
def test_quoted_numbers_are_read_in_batches(monkeypatch, kind):
    """Producers that quote do so in each message: none of them may be read by itself."""
    odd: list[pa.Array] = []
    decoder = Decoder([Column("n", kind), Column("s", "VARCHAR")], KERNEL)
    monkeypatch.setattr(decoder, "_read_odd", spy(decoder._read_odd, odd))
    batch = [
        b'{"s":"\\"n\\":\\"1\\"", "n" : "%d", "u":{"n":"2"}}' % index for index in range(999)
    ]
    decoded = decoder.decode(pa.array(batch, pa.binary()))
    assert decoded.columns["c0"].to_pylist() == list(range(999))
    assert set(decoded.columns["c1"].to_pylist()) == {'"n":"1"'}
    assert [len(texts) for texts in odd] == [0]


def spy(read: Callable[[pa.Array], object], seen: list[pa.Array]) -> object:
    def reading(texts: pa.Array) -> object:
        seen.append(texts)
        return read(texts)

    return reading


def test_three_messages_that_join_to_three_documents_stay_apart():
    batch = [b'{"s":"x}', b'{y"}', b"{}{}", b'{"s":"}\n{"}', b'{"i":1}']
    assert rows(DECODER, batch) == [None, None, None, None, python_row(batch[4], COLUMNS)]


def test_a_slice_of_a_column_is_decoded_as_a_slice():
    texts = pa.array([b'{"i":1}', None, b'{"i":2}', b"x", b'{"i":3}'], pa.binary())
    decoder = Decoder([Column("i", "BIGINT")], KERNEL)
    chunked = pa.chunked_array([texts.slice(2, 3), texts.slice(0, 1), texts.slice(4, 0)])
    decoded = decoder.decode(chunked)
    assert decoded.columns["c0"].to_pylist() == [2, None, 3, 1]
    assert decoded.reasons.is_valid().to_pylist() == [False, True, False, False]


def test_a_source_without_columns_of_its_own_still_reads_every_message():
    decoded = Decoder([], KERNEL).decode(pa.array([b'{"a":1}', b"[]"], pa.binary()))
    assert decoded.reasons.to_pylist() == [None, "expected a JSON object, actual an array"]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (None, "expected a JSON object, actual nothing"),
        (b" ", "expected a JSON object, actual an empty text"),
        (b"null", "expected a JSON object, actual null"),
        (b'{"i":"abc"}', 'column "i": expected BIGINT, actual "abc"'),
        (b'{"i":1.5}', 'column "i": expected BIGINT, actual 1.5'),
        (b'{"i":1.0}', 'column "i": expected BIGINT, actual 1.0'),
        (b'{"i":"1"}', None),
        (b'{"i":" 1"}', 'column "i": expected BIGINT, actual " 1"'),
        (b'{"i":"1.5"}', 'column "i": expected BIGINT, actual "1.5"'),
        (b'{"i":"1"2}', "expected JSON, actual other text at character 9"),
        (b'{"i":"+1"}', 'column "i": expected BIGINT, actual "+1"'),
        (b'{"d":"NaN"}', 'column "d": expected DOUBLE, actual "NaN"'),
        (b'{"t":"128"}', 'column "t": expected TINYINT, actual "128"'),
        (b'{"i":true}', 'column "i": expected BIGINT, actual true'),
        (b'{"t":128}', 'column "t": expected TINYINT, actual 128'),
        (b'{"c":1.005}', 'column "c": expected DECIMAL(9,2), actual 1.005'),
        (b'{"c":"1.50"}', None),
        (b'{"c":"1.505"}', 'column "c": expected DECIMAL(9,2), actual "1.505"'),
        (b'{"c":"01"}', 'column "c": expected DECIMAL(9,2), actual "01"'),
        (b'{"c":""}', 'column "c": expected DECIMAL(9,2), actual ""'),
        (b'{"d":1e400}', 'column "d": expected DOUBLE, actual 1e400'),
        (
            b'{"d":1.7976931348623159e308}',
            'column "d": expected DOUBLE, actual 1.7976931348623159e308',
        ),
        (b'{"f":1e39}', 'column "f": expected FLOAT, actual 1e39'),
        (b'{"h":1e39}', 'column "h": expected HUGEINT, actual 1e39'),
        (
            b'{"h":2e38}',
            'column "h": expected HUGEINT, actual 200000000000000000000000000000000000000',
        ),
        (b'{"s":5}', 'column "s": expected VARCHAR, actual 5'),
        (b'{"s":[ 1 ]}', 'column "s": expected VARCHAR, actual [ 1 ]'),
        (b'{"b":1}', 'column "b": expected BOOLEAN, actual 1'),
        (b'{"day":"2013-02-29"}', 'column "day": expected DATE, actual "2013-02-29"'),
        (b'{"ts":1385000000000}', 'column "ts": expected TIMESTAMP, actual 1385000000000'),
        (
            b'{"tz":"2013-01-01 10:00:00"}',
            'column "tz": expected TIMESTAMP WITH TIME ZONE, actual "2013-01-01 10:00:00"',
        ),
        (b'{"raw":"QQ="}', 'column "raw": expected BLOB, actual "QQ="'),
        (b'{"s":"a","s":"a"}', 'column "s": given 2 times'),
        (b'{"i":"%s"}' % (b"x" * 100), f'column "i": expected BIGINT, actual "{"x" * 63}...'),
        (b'{"day":"%s"}' % (b"x" * 100), f'column "day": expected DATE, actual "{"x" * 63}...'),
        (b'{"s":"\xff"}', "expected UTF-8, actual other bytes at byte 7"),
        (b'{"s":"a\nb"}', "expected JSON, actual other text at character 6"),
        (b'{"u":NaN}', "expected JSON, actual other text at character 6"),
        (b'{"i":1}{"i":2}', "expected one JSON document, actual more at character 8"),
    ],
)
def test_the_reason_is_ours_and_names_the_first_thing_that_is_wrong(raw, reason):
    assert DECODER.decode(pa.array([raw], pa.binary())).reasons.to_pylist() == [reason]


@pytest.mark.parametrize("depth", [1_000, 50_000])
def test_depth_does_no_harm_in_a_field_that_is_not_declared(depth):
    raw = b'{"u":' + b"[" * depth + b"]" * depth + b',"i":3}'
    for decoder in (DECODER, one_by_one(COLUMNS)):
        decoded = decoder.decode(pa.array([raw], pa.binary()))
        assert decoded.columns["c1"].to_pylist() == [3]


def test_minus_zero_is_zero():
    batch = pa.array([b'{"d":-0.0,"f":-0e1}', b'{"d":-0}'], pa.binary())
    for decoder in (DECODER, one_by_one(COLUMNS)):
        columns = decoder.decode(batch).columns
        values = columns["c5"].to_pylist() + columns["c6"].to_pylist()[:1]
        assert [math.copysign(1, value) for value in values] == [1, 1, 1]


def test_json_is_kept_as_duckdb_prints_it():
    column = [Column("j", "JSON"), Column("i", "BIGINT")]
    batch = [b'{"j":{"b": [1, 2.50],"a":"\\u00e9"}}', b'{"j":null}', b'{"i":1}',
             b'{"j":"null"}', b'{"j":1e400}', b'{"j":1,"j":1}', b'{"j":[NaN]}']  # fmt: skip
    for decoder in (Decoder(column, KERNEL), one_by_one(column)):
        decoded = decoder.decode(pa.array(batch, pa.binary()))
        assert decoded.columns["c0"].to_pylist()[:5] == [
            '{"b":[1,2.5],"a":"é"}', None, None, '"null"', "1e400",
        ]  # fmt: skip
        assert decoded.reasons.to_pylist() == [
            None, None, None, None, None,
            'column "j": given 2 times',
            "expected JSON, actual other text at character 7",
        ]  # fmt: skip


def test_depth_does_no_harm_in_a_json_column():
    raw = b'{"j":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    decoded = Decoder([Column("j", "JSON")], KERNEL).decode(pa.array([raw], pa.binary()))
    assert len(decoded.columns["c0"].to_pylist()[0]) == 200_000


def test_a_type_that_json_cannot_give_is_refused():
    for kind in (*PLAIN, "DECIMAL(4,2)"):
        assert field("c", "", kind).type == kind
    with pytest.raises(InvalidUsage, match="cannot have a column of type INTERVAL"):
        Decoder([Column("x", "INTERVAL")], KERNEL)


def test_lone_scalars_become_objects_and_nothing_else_does():
    texts = [b"1", b' "a\\n" ', b"null", b"-1.5e3", b"{}", b"[1]", b"x", b'1,"y":2', b"", None,
             b'"\xff"', b"1 2", b"true"]  # fmt: skip
    assert wrap_scalars(pa.array(texts, pa.binary()), 'k"').to_pylist() == [
        b'{"k\\"":1}', b'{"k\\"": "a\\n" }', b'{"k\\"":null}', b'{"k\\"":-1.5e3}', b"{}",
        b"[1]", b"x", b'1,"y":2', b"", None, b'{"k\\"":"\xff"}', b"1 2", b'{"k\\"":true}',
    ]  # fmt: skip
