"""DISTINCT inside a loop, against counting at every time."""

import random
from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streams.operators.context import NEGATIVE
from streams.operators.iterative import distinct
from streams.trace.kernel.kernel import Kernel, arrow_schema
from tests.support.examples import examples

TYPES = ("INTEGER", "DOUBLE")
KERNEL = Kernel()


@given(st.integers(0, 2**32))
@examples(60)
def test_a_row_is_there_once_while_its_count_is_positive(seed: int) -> None:
    chance = random.Random(seed)
    updates = [
        (chance.choice([1, 2, None]), chance.choice([0.5, 0.0, -0.0]), time, diff)
        for time in range(6)
        for diff in chance.choices([-2, -1, 1, 2], k=chance.randrange(4))
    ]
    columns = [list(column) for column in zip(*updates, strict=True)] or [[]] * 4
    schema = arrow_schema(TYPES)
    arrays = [pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
    output_ = distinct(TYPES, KERNEL)({"in": rows})
    output = [] if output_.output is None else output_.output.to_pylist()
    errors = [row for part in output_.errors for row in part.to_pylist()]
    assert {error["error"] for error in errors} <= {NEGATIVE}
    for time in range(6):
        counts: Counter[tuple[int | None, float]] = Counter()
        for one, other, when, diff in updates:
            counts[one, other] += diff if when <= time else 0  # -0.0 and 0.0 are one key
        there: Counter[tuple[int | None, float]] = Counter()
        for table in output:
            there[table["c0"], table["c1"]] += table["diff"] if table["time"] <= time else 0
        assert {k: n for k, n in there.items() if n} == {
            k: 1 for k, n in counts.items() if n > 0
        }
        below = sum(error["diff"] for error in errors if error["time"] <= time)
        assert below == sum(n < 0 for n in counts.values())
