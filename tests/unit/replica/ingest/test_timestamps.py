"""Times of one layout, read as columns of bytes: what DuckDB's conversion gives, or nothing."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.replica.ingest import timestamps
from streams.replica.ingest.fields import field
from streams.trace.kernel.kernel import Kernel

KERNEL = Kernel()
FIELD = field("t", "", "TIMESTAMP")


def exact(texts: list[str]) -> pa.Array:
    assert FIELD.sql is not None
    sql = f"SELECT {FIELD.sql.format(x='x')} AS v FROM t"
    return KERNEL.query(sql, t=pa.table({"x": pa.array(texts, pa.string())}))["v"]


def two(low: int, high: int) -> st.SearchStrategy[str]:
    return st.integers(low, high).map("{:02d}".format)


@st.composite
def columns(draw: st.DrawFn) -> list[str]:
    """Texts of one layout, with numbers a little beyond what a time may hold."""
    width = draw(st.integers(0, 7))
    dot = "." if width or draw(st.booleans()) else ""
    middle, end = draw(st.sampled_from("T x")), draw(st.sampled_from(["", "Z", "+"]))
    texts = []
    for _ in range(draw(st.integers(1, 4))):
        year = draw(st.sampled_from(["0000", "0001", "1899", "1900", "1969", "2024", "9999"]))
        day = f"{year}-{draw(two(0, 13))}-{draw(two(0, 32))}"
        clock = f"{draw(two(0, 24))}:{draw(two(0, 60))}:{draw(two(0, 60))}"
        fraction = draw(st.text("0123456789", min_size=width, max_size=width))
        texts.append(f"{day}{middle}{clock}{dot}{fraction}{end}")
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(texts[0]) - 1))
        texts[0] = texts[0][:at] + draw(st.sampled_from("/:-.é9 ")) + texts[0][at + 1 :]
    return texts


@given(columns())
def test_what_is_read_is_what_duckdb_reads(texts: list[str]) -> None:
    times = timestamps.timestamps(pa.array(texts, pa.string()))
    want = exact(texts)
    if times is not None:
        assert times.to_pylist() == want.to_pylist()
        assert times.type == want.type


@pytest.mark.parametrize(
    "layout",
    [
        "{}-{}-{}T23:59:59.999Z",
        "{}-{}-{} 00:00:00",
        "{}-{}-{}T12:34:56.000001",
        "{}-{}-{}T01:02:03Z",
    ],
)
def test_every_day_is_read_in_the_usual_layouts(layout: str) -> None:
    days = [
        ("0001", "01", "01"),
        ("1900", "02", "28"),
        ("2000", "02", "29"),
        ("9999", "12", "31"),
    ]
    days += [("2023", f"{month:02d}", "30") for month in range(3, 13)]
    texts = [layout.format(*day) for day in days]
    times = timestamps.timestamps(pa.array(["skipped", *texts, "skipped"]).slice(1, len(texts)))
    assert times is not None
    assert times.to_pylist() == exact(texts).to_pylist()


@pytest.mark.parametrize(
    "texts",
    [
        [],
        [""],
        ["2024-01-01T00:00:00", None],
        ["2024-01-01T00:00:00", "2024-01-01T00:00:00.0"],
        ["2023-02-29T00:00:00"],
        ["2024-00-01T00:00:00"],
        ["2024-01-01T24:00:00"],
        ["2024-01-01T00:00:00."],
        ["2024-01-01T00:00:00.1234567"],
        ["0000-01-01T00:00:00"],
    ],
)
def test_what_is_not_of_one_layout_or_no_time_is_left(texts: list[str | None]) -> None:
    assert timestamps.timestamps(pa.array(texts, pa.string())) is None
