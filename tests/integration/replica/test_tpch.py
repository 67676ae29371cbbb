"""TPC-H in Spark's workers, with rows enough for each query to find some."""

import random

import pytest
from pyspark.sql import SparkSession

from streams.bench.tpch.queries import QUERIES, query, read_by
from tests.support.contents import Contents
from tests.support.on_spark import marked
from tests.support.refreshed import refreshed

pytestmark = pytest.mark.integration

SCALE = 0.01


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    return refreshed(SCALE, tmp_path_factory.mktemp("tpch"), 500)


@pytest.mark.parametrize("number", marked("tpch", QUERIES))
def test_a_view_follows_orders_that_come_and_go(
    spark: SparkSession, contents: Contents, number: int
) -> None:
    text = query(number, SCALE)
    view = contents.maintain(text, read_by(text), random.Random(number), "spark")
    assert contents.check(view, text)
