"""What is summed by the statement that computes it: the same as row by row, errors too."""

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

from streams.operators import pre_aggregation
from streams.operators.reduce import ReduceShape
from streams.plan.physical import Linear
from streams.testing import Maintained, maintain
from streams.trace.kernel.kernel import Kernel

NEVER = 1 << 60
TIMES = 6

SUMMED = [
    "SELECT g, sum(d * (1 - d)) AS x, avg(d) AS y, count(*) AS n FROM t GROUP BY g",
    "SELECT sum(b * 2) AS x, count(i) AS n FROM t WHERE b > 2",
    "SELECT g || 'a' AS k, sum(h) AS x, sum(w) AS y, count(w) AS n FROM t GROUP BY k",
    "SELECT i % 2 AS k, o, bool_and(b > 3) AS x, bool_or(b > 3) AS y FROM t GROUP BY ALL",
    "SELECT g, count(*) AS n FROM t WHERE i IS NOT NULL GROUP BY g",
    "SELECT DISTINCT i % 3 AS k, upper(g) AS u FROM t",
]
FAILING = [
    "SELECT g, sum(i + 2147483645) AS x FROM t GROUP BY g",
    "SELECT g, sum(i - (-2147483645)) AS x, count(*) AS n FROM t GROUP BY g",
    "SELECT g, avg(10 // (b - 3)) AS x FROM t GROUP BY g",
    "SELECT 10 // (b - 3) AS k, sum(d) AS x FROM t GROUP BY k",
    "SELECT g, sum(b) AS x FROM t WHERE 10 // (b - 3) > 1 GROUP BY g",
    "SELECT g, sum(CAST(g AS INTEGER)) AS x FROM t GROUP BY g",
]
NOT_SUMMED = [
    "SELECT g, sum(b + 0.5::DOUBLE) AS x FROM t GROUP BY g",
    "SELECT g, max(b + 1) AS x FROM t GROUP BY g",
    "SELECT g, count(DISTINCT b + 1) AS x FROM t GROUP BY g",
    "SELECT b + 0.5::DOUBLE AS k, count(*) AS n FROM t GROUP BY k",
    "SELECT g, count(10 // (b - 3)) AS n FROM t GROUP BY g",
]


def history(seed: int) -> pa.Table:
    """Rows that come several times, and go again, at times of which many are in a step."""
    chance = random.Random(seed)
    rows = []
    for _ in range(60):
        row = {
            "g": chance.choice([None, "", "1", "2"]),
            "i": chance.choice([None, *range(6)]),
            "b": chance.choice([None, *range(6)]),
            "h": chance.choice([None, 2**100, -(2**100), 7]),
            "d": chance.choice([None, "1.25", "-3.50"]),
            "w": chance.choice([None, "9" * 30, "-1.0001"]),
            "o": chance.choice([None, True, False]),
        }
        time, many = chance.randrange(TIMES), chance.choice([1, 1, 2, 5])
        rows.append(row | {"_time": time, "_diff": many})
        if chance.random() < 0.5:
            went = chance.randrange(time, TIMES)
            rows.append(row | {"_time": went, "_diff": -chance.randint(1, many)})
    kinds = {name: pa.string() for name in "ghdw"}
    kinds |= {"i": pa.int32(), "b": pa.int64(), "o": pa.bool_()}
    kinds |= {"_time": pa.int64(), "_diff": pa.int64()}
    texts = [row | {"h": None if row["h"] is None else str(row["h"])} for row in rows]
    return pa.Table.from_pylist(texts, schema=pa.schema(list(kinds.items())))


def kept(query: str, seed: int) -> Maintained:
    """The view, with numbers that Arrow has no type for cast from text."""
    text = (
        "CAST(h AS HUGEINT) AS h, CAST(d AS DECIMAL(15,2)) AS d, CAST(w AS DECIMAL(38,4)) AS w"
    )
    source = f"(SELECT g, i, b, {text}, o FROM raw) AS t"
    columns = "g VARCHAR, i INTEGER, b BIGINT, h VARCHAR, d VARCHAR, w VARCHAR, o BOOLEAN"
    renamed = query.replace("FROM t", f"FROM {source}")
    return maintain(renamed, {"raw": columns}, {"raw": history(seed)}, [1, 4, TIMES])


def said(view: Maintained) -> list[tuple[list[str], list[str]]]:
    """Contents and errors at each time."""
    times = range(view.since, TIMES)
    return [(sorted(map(str, view.at(t).to_pylist())), view.errors_at(t)) for t in times]


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of every statement that was to sum rows, whether it could."""
    is_summed = list[bool]()
    partial = pre_aggregation.partial

    def counted(
        node: Linear,
        of: ReduceShape,
        rows: pa.RecordBatch,
        types: Sequence[str],
        kernel: Kernel,
    ) -> pa.RecordBatch | None:
        make = partial(node, of, rows, types, kernel)
        is_summed.append(make is not None)
        return make

    monkeypatch.setattr(pre_aggregation, "partial", counted)
    return is_summed


@pytest.mark.parametrize("query", [*SUMMED, *FAILING, *NOT_SUMMED])
def test_what_is_summed_ahead_is_what_rows_come_to(
    query: str, sums: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pre_aggregation, "FEWEST", NEVER)
    plain = [said(kept(query, seed)) for seed in range(2)]
    assert not sums
    monkeypatch.setattr(pre_aggregation, "FEWEST", 1)
    assert [said(kept(query, seed)) for seed in range(2)] == plain
    assert bool(sums) == (query not in NOT_SUMMED)
    assert any(sums) or query not in SUMMED
    if query in FAILING:
        assert not all(sums)
        assert any(errors for result in plain for _, errors in result)


def test_few_rows_are_summed_as_they_were(sums: list[bool]) -> None:
    kept(SUMMED[0], 0)
    assert not sums
