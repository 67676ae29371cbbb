"""Rows of an answer as JSON, from columns as they travel."""

import json

import pyarrow as pa

from streams.adapter.row_encoding import rows
from streams.trace.kernel.kernel import Kernel, data_schema


def test_a_union_is_shown_by_its_member() -> None:
    types = ["UNION(n INTEGER, t VARCHAR)", "UNION(n INTEGER, t VARCHAR)[]"]
    one = {"tag": 0, "n": 1, "t": None}
    other = {"tag": 1, "n": None, "t": None}
    columns = [[one, other, None], [[one, other], [None], None]]
    schema = data_schema(types)
    table = pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )
    (piece,) = rows(table, types, Kernel())
    assert [json.loads(row) for row in piece.rows] == [
        [{"n": 1}, [{"n": 1}, {"t": None}]],
        [{"t": None}, [None]],
        [None, None],
    ]
