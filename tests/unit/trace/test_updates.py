"""Laws of updates: consolidate, advance, clip, and keys that are equal when DuckDB says so."""

import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.trace import updates as trace
from streams.trace.columns import (
    HASH_SELF_TEST,
    canonical,
    group,
    hash_keys,
    hash_self_test,
    key_form,
)
from streams.trace.kernel.kernel import arrow_schema
from tests.model import collection as model
from tests.model.collection import Contents, Update
from tests.support.examples import examples
from tests.support.flows import LAST, histories, kernel, table

PINNED = 3360794468456631390

TYPES = ["INTEGER", "VARCHAR"]
rows = st.tuples(st.one_of(st.none(), st.integers(0, 2)), st.sampled_from([None, "", "a", "ä"]))


def batch(updates: list[Update]) -> pa.RecordBatch:
    return trace.flatten([table(updates, TYPES)], arrow_schema(TYPES))


def contents(updates: pa.RecordBatch, time: int) -> Contents:
    fetched = trace.contents_at(updates, time, kernel()).to_pylist()
    return Counter({(row["c0"], row["c1"]): row["diff"] for row in fetched})


@given(histories(rows), st.randoms())
@examples(30)
def test_consolidate_is_idempotent_and_blind_to_order(updates: list[Update], chance) -> None:
    once = trace.consolidate(batch(updates), kernel())
    assert sorted(map(str, trace.consolidate(once, kernel()).to_pylist())) == sorted(
        map(str, once.to_pylist())
    )
    chance.shuffle(updates)
    again = trace.consolidate(batch(updates), kernel())
    assert sorted(map(str, again.to_pylist())) == sorted(map(str, once.to_pylist()))
    seen = Counter((row["c0"], row["c1"], row["time"]) for row in once.to_pylist())
    assert not seen or max(seen.values()) == 1
    assert 0 not in once.column("diff").to_pylist()


@given(histories(rows), st.integers(0, LAST))
@examples(30)
def test_reads_are_what_the_model_says(updates: list[Update], since: int) -> None:
    updates_ = batch(updates)
    advanced = trace.advance(updates_, since)
    for time in range(LAST + 1):
        assert contents(updates_, time) == model.contents(updates, time)
        if time >= since:
            assert contents(advanced, time) == model.contents(updates, time)


@given(histories(rows), st.integers(0, LAST), st.integers(0, LAST + 1))
@examples(20)
def test_clip_keeps_the_interval(updates: list[Update], lower: int, upper: int) -> None:
    clipped = trace.clip(batch(updates), lower, upper).to_pylist()
    want = [update for update in updates if lower <= update[1] < upper]
    assert [(row["c0"], row["c1"]) for row in clipped] == [row for row, _, _ in want]


def test_settle_leaves_inserts_alone() -> None:
    inserts = batch([((1, "a"), 0, 1), ((1, "a"), 0, 1)])
    assert trace.consolidate_if_needed(inserts, kernel()) is inserts
    both = batch([((1, "a"), 0, 1), ((1, "a"), 0, -1)])
    assert trace.consolidate_if_needed(both, kernel()).num_rows == 0


@given(histories(rows), st.randoms())
@examples(30)
def test_another_order_has_the_same_rows(updates: list[Update], chance) -> None:
    for some in (updates, [(row, 1, diff) for row, _, diff in updates if diff == 1]):
        order = list(range(len(some)))
        chance.shuffle(order)
        moved = trace.permute(batch(some), np.array(order, np.int64))
        assert moved.to_pylist() == [batch(some).to_pylist()[place] for place in order]


EQUAL = [
    ("DOUBLE", ["0.0", "-0.0"]),
    ("DOUBLE", ["'nan'", "-'nan'::DOUBLE"]),
    ("FLOAT", ["0.0", "-0.0"]),
    ("INTERVAL", ["INTERVAL 1 MONTH", "INTERVAL 30 DAYS", "INTERVAL 720 HOURS"]),
    ("INTERVAL", ["INTERVAL '-1 day'", "INTERVAL '-24 hours'"]),
    ("INTERVAL", ["INTERVAL '1 month -1 day'", "INTERVAL '29 days'"]),
]


@pytest.mark.parametrize(("kind", "spellings"), EQUAL)
def test_equal_keys_become_the_same_bytes(kind: str, spellings: list[str]) -> None:
    values = ", ".join(f"(({spelling})::{kind})" for spelling in spellings)
    column = kernel().query(f"SELECT x FROM (VALUES {values}) AS v(x)")["x"].chunk(0)
    form = key_form(canonical(column), kernel())
    assert group([form], len(column)).count == 1
    assert len(set(hash_keys([form], len(column)).tolist())) == 1
    before = kernel().query("SELECT x FROM t", t=pa.table({"x": column}))["x"]
    after = kernel().query("SELECT x FROM t", t=pa.table({"x": canonical(column)}))["x"]
    both = pa.table({"a": before, "b": after})
    assert kernel().query("SELECT bool_and(a = b) AS ok FROM t", t=both)["ok"][0].as_py()


KEY_TYPES = [
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "UINTEGER", "UBIGINT",
    "UHUGEINT", "DECIMAL(4,1)", "DECIMAL(18,2)", "DECIMAL(38,3)", "DOUBLE", "FLOAT", "BOOLEAN",
    "VARCHAR", "BLOB", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "UUID",
    "INTERVAL", "JSON", "INTEGER[]", "STRUCT(a INTEGER, b VARCHAR)", "MAP(VARCHAR, INTEGER)",
    "BIT", "TIMESTAMP_NS", "TIME WITH TIME ZONE",
]  # fmt: skip
SAMPLES = {
    "BOOLEAN": "x % 2 = 0",
    "DATE": "DATE '2020-01-01' + x::INTEGER",
    "TIME": "TIME '10:00:00' + to_seconds(x)",
    "TIME WITH TIME ZONE": "(TIME '10:00:00' + to_seconds(x))::TIMETZ",
    "TIMESTAMP": "TIMESTAMP '2020-01-01' + to_seconds(x)",
    "TIMESTAMP_NS": "(TIMESTAMP '2020-01-01' + to_seconds(x))::TIMESTAMP_NS",
    "TIMESTAMP WITH TIME ZONE": "(TIMESTAMP '2020-01-01' + to_seconds(x))::TIMESTAMPTZ",
    "UUID": "md5(x::VARCHAR)::UUID",
    "INTERVAL": "to_days(x)",
    "JSON": "('[' || x || ']')::JSON",
    "BLOB": "('b' || x)::BLOB",
    "INTEGER[]": "[x, NULL, x + 1]::INTEGER[]",
    "STRUCT(a INTEGER, b VARCHAR)": "{'a': x::INTEGER, 'b': 'y' || x}",
    "MAP(VARCHAR, INTEGER)": "MAP {'k' || x: x::INTEGER}",
    "BIT": "x::BIT",
}


@pytest.mark.parametrize("kind", KEY_TYPES)
def test_every_type_groups_as_duckdb_does(kind: str) -> None:
    value = SAMPLES.get(kind, f"x::{kind}")
    source = f"SELECT CASE WHEN x % 7 <> 3 THEN {value} END AS x FROM range(40) AS t(x)"
    answer = kernel().query(f"SELECT x FROM ({source}) UNION ALL SELECT x FROM ({source})")
    column = trace.as_batch(answer).column(0)
    form = key_form(canonical(column), kernel())
    groups = group([form], len(column))
    want = kernel().query(f"SELECT count(*) AS n FROM (SELECT DISTINCT x FROM ({source}))")
    assert groups.count == want["n"][0].as_py()
    assert (groups.ids[:40] == groups.ids[40:]).all()
    assert len(np.unique(hash_keys([form], len(column)))) == groups.count


def test_the_hash_never_changes() -> None:
    """State on disk is sorted by it: a new value needs a new `ENGINE_VERSION`."""
    assert hash_self_test() == HASH_SELF_TEST == PINNED
    sliced = pa.array(["drop", "", "slack", None])[1:]
    assert (hash_keys([sliced], 3) == hash_keys([pa.array(["", "slack", None])], 3)).all()


def test_integers_of_all_widths_hash_alike() -> None:
    kinds = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8()]
    assert len({int(hash_keys([pa.array([100], kind)], 1)[0]) for kind in kinds}) == 1
    signed = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
    assert len({int(hash_keys([pa.array([-100], kind)], 1)[0]) for kind in signed}) == 1


@given(st.lists(st.one_of(st.none(), st.text(max_size=40)), max_size=30))
@examples(30)
def test_texts_hash_by_content_alone(texts: list[str | None]) -> None:
    together = hash_keys([pa.array(texts, pa.string())], len(texts))
    alone = [int(hash_keys([pa.array([text], pa.string())], 1)[0]) for text in texts]
    assert together.tolist() == alone
    assert len(set(alone)) == len(set(texts))


def test_nan_is_one_key_and_survives() -> None:
    column = canonical(pa.array([math.nan, -math.nan, None, 1.0]))
    assert column.null_count == 1
    assert math.isnan(column[0].as_py())
    assert group([key_form(column, kernel())], 4).count == 3
