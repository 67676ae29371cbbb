"""Lists are taken apart without a copy of the list beside each of its elements."""

import pyarrow as pa

from streams.operators import unnest
from streams.plan.physical import Unnest
from streams.testing import maintain
from streams.trace.kernel.kernel import Kernel, arrow_schema

TYPES, MADE = ("BIGINT", "BIGINT[]"), ("BIGINT", "BIGINT[]", "BIGINT")


def test_a_list_that_nobody_reads_is_not_repeated() -> None:
    columns = [pa.array([7]), pa.array([list(range(1000))]), pa.array([1]), pa.array([1])]
    rows = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(TYPES))
    node, kernel = Unnest(0, (1,)), Kernel()
    output = unnest.step(node, rows, TYPES, MADE, {0, 2}, kernel).output
    assert output
    assert output.num_rows == output.column(1).null_count == 1000
    assert output.nbytes < 100_000
    assert set(output.column(0).to_pylist()) == {7}
    assert output.column(2).to_pylist() == list(range(1000))
    full = unnest.step(node, rows, TYPES, MADE, {0, 1, 2}, kernel).output
    assert full
    assert full.column(1)[999].as_py() == list(range(1000))


def test_a_list_that_is_read_stays() -> None:
    query = "SELECT l[1] AS first, unnest(l) AS x FROM t WHERE len(l) > 1"
    lists = pa.table({"l": [[3, 4], [5]], "_time": [1, 1], "_diff": [1, 1]})
    view = maintain(query, {"t": "l BIGINT[]"}, {"t": lists})
    assert sorted(map(tuple, (row.values() for row in view.at(1).to_pylist()))) == [
        (3, 3),
        (3, 4),
    ]
