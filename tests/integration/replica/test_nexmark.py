"""Nexmark's queries in Spark's workers: DuckDB's answers, from updates in any order."""

import pytest
from pyspark.sql import SparkSession

from streams.bench.nexmark.queries import QUERIES
from tests.support import nexmark
from tests.support.on_spark import marked

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("name", marked("nexmark", QUERIES))
def test_a_query_on_spark_is_duckdbs_answer(spark: SparkSession, name: str) -> None:
    updates = nexmark.tables(2_000 if name == "q2" else 400, seed=5)
    maintained = nexmark.view(name, updates, "spark", frontiers=[2, 2 * nexmark.TIMES])
    assert nexmark.compare(name, maintained, updates) > 0
