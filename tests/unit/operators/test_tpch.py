"""TPC-H at scale 0.01: each of its queries as a view is DuckDB's answer at every time.

`make test` has those that stand for all; over few rows all are in `test_queries`.
"""

import random

import pytest

from streams.bench.tpch.queries import QUERIES, query, read_by
from tests.support.contents import Contents
from tests.support.on_spark import marked
from tests.support.refreshed import refreshed

SCALE = 0.01


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    return refreshed(SCALE, tmp_path_factory.mktemp("tpch"), 2_000)


@pytest.mark.parametrize("number", marked("tpch", QUERIES))
def test_a_view_follows_orders_that_come_and_go(contents: Contents, number: int) -> None:
    text = query(number, SCALE)
    view = contents.maintain(text, read_by(text), random.Random(number))
    assert contents.check(view, text)
