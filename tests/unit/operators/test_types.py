"""Values of every type in every place: at every time what DuckDB says, or CREATE refuses."""

import random
import re

import pytest

from tests.support.maintained import Tables, compare
from tests.support.type_uses import TYPES, USES, histories, query

ASTRAY = {(kind, "a join on NULLs too") for kind in TYPES if re.search(r"\[\d+\]", kind)}
"""Where DuckDB itself is wrong: of two equal rows on the right it shows one as [0, 0, 0]."""


@pytest.mark.parametrize("kind", TYPES)
def test_values_of_every_type_are_kept_wherever_they_stand(kind: str) -> None:
    chance = random.Random(kind)
    columns = {"t": {"k": "INTEGER", "x": kind}, "u": {"x": kind}}
    tables = Tables(columns, chance, histories(kind))
    for use in USES:
        text = query(use, kind)
        if (kind, use) not in ASTRAY:
            compare(tables, tables.maintain(text, chance), text, every=2)


def test_a_history_holds_no_row_a_negative_number_of_times() -> None:
    for kind in TYPES:
        for rows in histories(kind).values():
            counts: dict[tuple[str, ...], int] = {}
            for row, _, diff in sorted(rows, key=lambda each: each[1]):
                counts[tuple(row)] = counts.get(tuple(row), 0) + diff
                assert counts[tuple(row)] >= 0, (kind, row)
