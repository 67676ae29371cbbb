"""Structs that clients write for unions: those that carry one are taken, others refused."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from streams.ids import CollectionId
from streams.storage.description import Description
from streams.storage.write.validation import WrongRows, conform
from streams.trace.kernel.kernel import arrow_schema

KIND = "UNION(n INT, u UNION(t VARCHAR, d DATE)[])"
GOOD = [
    None,
    {"tag": 0, "n": 1, "u": None},
    {"tag": 0, "n": None, "u": None},
    {"tag": 1, "n": None, "u": [{"tag": 0, "t": "x", "d": None}, None]},
]
BAD = [
    ({"tag": None, "n": 1, "u": None}, "a tag in every union"),
    ({"tag": 2, "n": None, "u": None}, "tags of 2 members, actual 2"),
    ({"tag": 1, "n": 1, "u": None}, "actual member 0"),
    ({"tag": 1, "n": None, "u": [{"tag": 1, "t": "x", "d": None}]}, "actual member 0"),
]
SHAPES = ["{}", "{}[]", "{}[1]", "STRUCT(a {})", "MAP(VARCHAR, {})"]


def within(shape: str, value: object) -> object:
    if shape == "{}":
        return value
    if shape.startswith("STRUCT"):
        return {"a": value}
    return [("k", value)] if shape.startswith("MAP") else [value]


def written(shape: str, values: Sequence[object]) -> pa.Table:
    columns = Description((("x", shape.format(KIND)),), kind="table")
    rows = [{"c0": within(shape, value), "time": 1, "diff": 1} for value in values]
    table = pa.Table.from_pylist(rows, arrow_schema(columns.types))
    return conform(CollectionId("x"), table, columns)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_carries_a_union_is_taken(shape: str) -> None:
    assert written(shape, GOOD).num_rows == len(GOOD)
    assert written(shape, [None]).num_rows == 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("value", "why"), BAD)
def test_what_carries_none_is_refused(shape: str, value: object, why: str) -> None:
    with pytest.raises(WrongRows, match=f"column x: .*{why}"):
        written(shape, [*GOOD, value])
