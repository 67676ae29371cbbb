"""Reports in the manner of TPC-DS, in Spark's workers."""

import random

import pytest
from pyspark.sql import SparkSession

from tests.support import retail
from tests.support.contents import Contents
from tests.support.on_spark import marked
from tests.support.retail import QUERIES, read_by

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def contents() -> Contents:
    return retail.retail(300)


@pytest.mark.parametrize("question", marked("retail", QUERIES))
def test_a_report_is_kept(spark: SparkSession, contents: Contents, question: str) -> None:
    text, chance = QUERIES[question], random.Random(question)
    view = contents.maintain(text, read_by(text), chance, "spark")
    assert contents.check(view, text)
