"""LIST, STRUCT, MAP and columns from nested members are what Python reads, at any depth."""

import json
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.errors import InvalidUsage
from streams.plan.physical import Column
from streams.plan.source_types import PLAIN, is_source_type
from streams.replica.ingest.decode import Decoder
from streams.trace.kernel.kernel import Kernel, data_schema
from streams.trace.kernel.types import parts
from tests.support.examples import examples
from tests.unit.replica.ingest.test_decode import (
    REFUSED,
    messages,
    one_by_one,
    python_members,
    python_value,
    values,
)

KERNEL = Kernel()
COLUMNS = (
    Column("l", "INTEGER[]"),
    Column("d", "DECIMAL(9,2)[][]"),
    Column("s", 'STRUCT(a BIGINT, "b c" DATE[], x STRUCT(f DOUBLE, u UUID, a BIGINT))'),
    Column("m", "MAP(VARCHAR, DECIMAL(9,2))"),
    Column("n", "MAP(VARCHAR, STRUCT(h HUGEINT, v VARCHAR[])[])"),
    Column("i", "BIGINT"),
)
DECODER = Decoder(COLUMNS, KERNEL)
PATHS = {"p": ("a", "b c"), "q": ("a", "0", "x"), "r": ("a", "0"), "t": ("l",), "w": ("i",)}
PATHED = (
    Column("p", "DECIMAL(9,2)"),
    Column("l", "INTEGER[]"),
    Column("q", "VARCHAR[]"),
    Column("r", "JSON"),
    Column("i", "BIGINT"),
    Column("t", "INTEGER[]"),
    Column("w", "VARCHAR"),
)
PATHED_DECODER = Decoder(PATHED, KERNEL, PATHS)


class Refused(Exception):
    pass


def model(declared: str, value: object) -> object:
    """What Python reads, given numbers as written and objects as pairs. Errors: Refused."""
    inside = parts(declared)
    if value is None:
        return None
    if inside is None:
        value_ = python_value(declared, value)
        if isinstance(value_, str) and value_ is REFUSED:
            raise Refused
        return value_
    if inside.kind == "LIST":
        if not isinstance(value, list):
            raise Refused
        return [model(inside.types[0], item) for item in value]
    pairs = members(value)
    if inside.kind == "MAP":
        if len({name for name, _ in pairs}) < len(pairs):
            raise Refused
        return [(name, model(inside.types[1], item)) for name, item in pairs]
    return {
        name: model(kind, one(pairs, name))
        for name, kind in zip(inside.names, inside.types, strict=True)
    }


def members(value: object) -> list[tuple[str, object]]:
    if not isinstance(value, tuple):
        raise Refused
    return list(value[1])


def one(pairs: Sequence[tuple[str, object]], name: str) -> object:
    mine = [value for key, value in pairs if key == name]
    if len(mine) > 1:
        raise Refused
    return mine[0] if mine else None


def model_row(
    raw: bytes | None, columns: Sequence[Column], paths: Mapping[str, Sequence[str]]
) -> list[object] | None:
    pairs = None if raw is None else python_members(raw)
    if pairs is None:
        return None
    try:
        return [
            model(column.type, along(pairs, paths.get(column.name, (column.name,))))
            for column in columns
        ]
    except Refused:
        return None


def along(pairs: list[tuple[str, object]], path: Sequence[str]) -> object:
    value = one(pairs, path[0])
    for name in path[1:]:
        if value is None:
            return None
        value = one(members(value), name)
    return value


def plain(value: object) -> object:
    """A HUGEINT travels as 16 bytes, at any depth."""
    if isinstance(value, bytes) and len(value) == 16:
        return int.from_bytes(value, "little", signed=True)
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(plain(item) for item in value)
    return value


def rows(decoder: Decoder, batch: Sequence[bytes | None]) -> list[list[object] | None]:
    decoded = decoder.decode(pa.array(batch, pa.binary()))
    for column in decoded.columns.columns:
        column.validate(full=True)
    columns = [column.to_pylist() for column in decoded.columns.columns]
    return [
        [plain(column[index]) for column in columns] if reason is None else None
        for index, reason in enumerate(decoded.reasons.to_pylist())
    ]


SCALARS = {
    "INTEGER": st.integers(-5, 5).map(str),
    "BIGINT": st.sampled_from(["0", "-0", '"7"', "9223372036854775807"]),
    "DECIMAL(9,2)": st.sampled_from(
        ["1", "1.50", "15e-1", '"0.1"', "0.10000000000000000001", "1.5000000000000000000",
         "12345678901234567e-12", "1e-400", "9999999.99"]
    ),
    "DATE": st.dates().map(lambda day: f'"{day}"'),
    "DOUBLE": st.floats(allow_nan=False, allow_infinity=False).map(repr),
    "UUID": st.uuids().map(lambda text: f'"{text}"'),
    "HUGEINT": st.sampled_from(["1", "-170141183460469231731687303715884105728", "1e3"]),
    "VARCHAR": st.text(max_size=3).map(json.dumps),
    "JSON": st.sampled_from(["1", "{}", '{"x":["a"]}']),
}  # fmt: skip
NAMES = st.sampled_from(["a", "k", "", "'", "\u0000", "0", "h"])


def texts(declared: str) -> st.SearchStrategy[str]:
    """JSON for a type, now and then for another one."""
    inside = parts(declared)
    good = SCALARS[declared] if inside is None else nested(declared)
    return st.one_of(good, good, good, good, st.just("null"), values)


def nested(declared: str) -> st.SearchStrategy[str]:
    inside = parts(declared)
    assert inside is not None
    if inside.kind == "LIST":
        items = st.lists(texts(inside.types[0]), max_size=3)
        return items.map(lambda items: f"[{','.join(items)} ]")
    if inside.kind == "MAP":
        entries = st.lists(st.tuples(NAMES, texts(inside.types[1])), max_size=3)
        return entries.map(written)
    pairs = [
        st.lists(st.tuples(st.just(name), texts(kind)), max_size=1)
        for name, kind in zip(inside.names, inside.types, strict=True)
    ]
    extra = st.lists(st.tuples(st.sampled_from(["a", "other"]), values), max_size=1)
    none: list[tuple[str, str]] = []
    few = st.one_of(st.just(none), st.just(none), st.just(none), extra)
    return st.tuples(*pairs, few).map(
        lambda groups: written([pair for group in groups for pair in group])
    )


def written(pairs: Sequence[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{json.dumps(name)} : {text}" for name, text in pairs) + "}"


def objects(columns: Sequence[Column]) -> st.SearchStrategy[bytes]:
    types = [f"{json.dumps(c.name).replace(chr(34), '')} {c.type}" for c in columns]
    return nested(f"STRUCT({', '.join(types)})").map(
        lambda text: text.encode("utf-8", "surrogatepass")
    )


pathed_objects = st.one_of(
    nested('STRUCT(a STRUCT("b c" DECIMAL(9,2), "0" STRUCT(x VARCHAR[])), l INTEGER[])').map(
        lambda text: text.encode("utf-8", "surrogatepass")
    ),
    st.sampled_from(
        [b'{"a":{"0":{"x":["y"]},"b c":"1.5"},"i":"1"}', b'{"a":[{"x":[]}]}', b'{"a":"b"}',
         b'{"a":{"0":5}}', b'{"a":{"0":null}}', b'{"i":1}', b'{"a":{},"a":{}}']
    ),
)  # fmt: skip


@examples(60)
@given(st.lists(objects(COLUMNS), max_size=12), messages)
def test_a_batch_says_what_python_reads(batch, others):
    mixed: list[bytes | None] = [*batch, *others]
    expected = [model_row(raw, COLUMNS, {}) for raw in mixed]
    assert rows(DECODER, mixed) == expected
    assert rows(one_by_one(COLUMNS), mixed) == expected


@examples(40)
@given(st.lists(pathed_objects, max_size=12))
def test_a_path_leads_to_a_member(batch):
    for raw, row in zip(batch, rows(PATHED_DECODER, batch), strict=True):
        expected = model_row(raw, [c for c in PATHED if c.type != "JSON"], PATHS)
        assert (None if row is None else row[:3] + row[4:]) == expected


@examples(20)
@given(st.lists(objects(COLUMNS), min_size=1, max_size=8))
def test_reasons_do_not_depend_on_the_batch(batch):
    together = DECODER.decode(pa.array(batch, pa.binary())).reasons.to_pylist()
    alone = [
        DECODER.decode(pa.array([raw], pa.binary())).reasons.to_pylist()[0] for raw in batch
    ]
    assert together == alone


def test_a_reason_has_the_beginning_of_a_long_name_of_a_map_and_no_control_characters():
    decoder = Decoder([Column("b", "MAP(VARCHAR, MAP(VARCHAR, BIGINT))")], KERNEL)
    raw = json.dumps({"b": {"\x1b[2J": {"k" * 3_000_000: "x"}}}).encode()
    (reason,) = decoder.decode(pa.array([raw], pa.binary())).reasons.to_pylist()
    name = "k" * 64 + "..."
    assert reason == f"column \"b['\ufffd[2J']['{name}']\": expected BIGINT, actual \"x\""


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'{"l":[1,null,"x"]}', 'column "l[3]": expected INTEGER, actual "x"'),
        (b'{"l":[1.5,"x"]}', 'column "l[1]": expected INTEGER, actual 1.5'),
        (b'{"l":{"a":1}}', 'column "l": expected INTEGER[], actual {"a":1}'),
        (b'{"l":"[1]"}', 'column "l": expected INTEGER[], actual "[1]"'),
        (b'{"l":[1],"l":[1]}', 'column "l": given 2 times'),
        (b'{"d":[[1],[2,3.001]]}', 'column "d[2][2]": expected DECIMAL(9,2), actual 3.001'),
        (b'{"d":[1]}', 'column "d[1]": expected DECIMAL(9,2)[], actual 1'),
        (b'{"s":{"x":{"f":1e400}}}', 'column "s.x.f": expected DOUBLE, actual 1e400'),
        (b'{"s":{"b c":["2013-02-29"]}}',
         'column "s.b c[1]": expected DATE, actual "2013-02-29"'),
        (b'{"s":{"x":1}}',
         'column "s.x": expected STRUCT(f DOUBLE, u UUID, a BIGINT), actual 1'),
        (b'{"s":{"a":1,"a":1}}', 'column "s.a": given 2 times'),
        (b'{"m":{"k":1e-400}}', "column \"m['k']\": expected DECIMAL(9,2), actual 1e-400"),
        (b'{"m":{"k":1,"k":1}}', "column \"m['k']\": given more than once"),
        (b'{"n":{"k":[{"v":[1]}]}}', "column \"n['k'][1].v[1]\": expected VARCHAR, actual 1"),
        (b'{"l":"%s"}' % (b"x" * 99), f'column "l": expected INTEGER[], actual "{"x" * 63}...'),
        (b'{"l":[1],"i":"x"}', 'column "i": expected BIGINT, actual "x"'),
        (b'{"l":[NaN]}', "expected JSON, actual other text at character 7"),
    ],
)  # fmt: skip
def test_a_reason_names_the_place(raw, reason):
    for decoder in (DECODER, one_by_one(COLUMNS)):
        assert decoder.decode(pa.array([raw], pa.binary())).reasons.to_pylist() == [reason]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'{"a":{"b c":"x"}}', 'column "p": expected DECIMAL(9,2), actual "x"'),
        (b'{"a":{"b c":0.10000000000000000001}}',
         'column "p": expected DECIMAL(9,2), actual 0.10000000000000000001'),
        (b'{"a":{"b c":1},"a":{}}', 'member "a": given 2 times'),
        (b'{"a":[1]}', 'column "p": expected an object around the column\'s path, actual [1]'),
        (b'{"a":{"0":5}}',
         'column "q": expected an object around the column\'s path, actual 5'),
        (b'{"a":{"0":{"x":[1]}}}', 'column "q[1]": expected VARCHAR, actual 1'),
    ],
)  # fmt: skip
def test_a_reason_names_the_column_of_a_path(raw, reason):
    decoded = PATHED_DECODER.decode(pa.array([raw], pa.binary()))
    assert decoded.reasons.to_pylist() == [reason]


@pytest.mark.parametrize("kind", [*PLAIN, "DECIMAL(38,2)", "BOOLEAN[]"])
def test_every_type_travels_inside_as_the_engine_wants_it(kind):
    types = (f"{kind}[]", f"STRUCT(x {kind})", f"MAP(VARCHAR, {kind})")
    decoder = Decoder([Column(f"c{n}", type_) for n, type_ in enumerate(types)], KERNEL)
    text = json.dumps({"c0": [None], "c1": {"x": None}, "c2": {"k": None}}).encode()
    for value in ("true", "1", '"2024-01-01"', "[true,null]"):
        filled = text.replace(b"null", value.encode())
        decoded = decoder.decode(pa.array([text, filled, b"{}"], pa.binary()))
        assert decoded.columns.schema.types == data_schema(types).types
        assert decoded.reasons.to_pylist()[::2] == [None, None]
        assert decoded.columns.to_pylist()[0] == {
            "c0": [None], "c1": {"x": None}, "c2": [("k", None)]
        }  # fmt: skip


def test_booleans_inside():
    decoder = Decoder([Column("b", "MAP(VARCHAR, STRUCT(b BOOLEAN[]))")], KERNEL)
    raw = b'{"b":{"k":{"b":[true,false,null]},"n":{"b":null}}}'
    decoded = decoder.decode(pa.array([raw], pa.binary())).columns["c0"].to_pylist()
    assert decoded == [[("k", {"b": [True, False, None]}), ("n", {"b": None})]]


def test_json_inside_is_kept_as_duckdb_prints_it():
    decoder = Decoder([Column("j", "STRUCT(j JSON)[]")], KERNEL)
    batch = pa.array([b'{"j":[{"j":{"b": [1, 2.50]}},{"j":null},{"j":"null"}]}'], pa.binary())
    decoded = decoder.decode(batch).columns["c0"].to_pylist()
    assert decoded == [[{"j": '{"b":[1,2.5]}'}, {"j": None}, {"j": '"null"'}]]


def test_depth_does_no_harm_in_what_is_not_declared():
    deep = b"[" * 50_000 + b"]" * 50_000
    decoder = Decoder([Column("s", "STRUCT(a BIGINT)"), Column("l", "JSON[]")], KERNEL)
    raw = b'{"s":{"u":' + deep + b',"a":3},"l":[' + deep + b"]}"
    decoded = decoder.decode(pa.array([raw], pa.binary()))
    assert decoded.reasons.to_pylist() == [None]
    assert decoded.columns["c0"].to_pylist() == [{"a": 3}]
    assert len(decoded.columns["c1"].to_pylist()[0][0]) == len(deep)


@pytest.mark.parametrize(
    "kind",
    ["INTEGER[3]", "MAP(INTEGER, INTEGER)", "UNION(a INTEGER)", "STRUCT(a INTERVAL)[]"],
)
def test_a_type_that_json_cannot_give_is_refused_at_any_depth(kind):
    assert not is_source_type(kind)
    with pytest.raises(InvalidUsage, match="cannot have a column of type"):
        Decoder([Column("x", kind)], KERNEL)
