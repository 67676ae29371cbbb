"""Reports in the manner of TPC-DS: roll-ups, windows and sets are what DuckDB says, always."""

import random

import pytest

from tests.support import retail
from tests.support.contents import Contents
from tests.support.retail import QUERIES, read_by


@pytest.fixture(scope="module")
def contents() -> Contents:
    return retail.retail(1_500)


@pytest.mark.parametrize("question", QUERIES)
def test_a_report_is_kept(contents: Contents, question: str) -> None:
    text = QUERIES[question]
    view = contents.maintain(text, read_by(text), random.Random(question))
    assert contents.check(view, text)
