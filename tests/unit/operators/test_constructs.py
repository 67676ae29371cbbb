"""The language, construct by construct, against DuckDB at every time."""

import random

import pytest

from tests.support.constructs import COLUMNS, CONSTRUCTS, HISTORY
from tests.support.maintained import Tables, compare


@pytest.mark.parametrize("query", CONSTRUCTS)
def test_every_construct_is_kept_at_every_time(query: str) -> None:
    chance = random.Random(query)
    tables = Tables(COLUMNS, chance, HISTORY)
    compare(tables, tables.maintain(query, chance), query, every=2)
