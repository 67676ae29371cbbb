"""Every kind of scalar expression, bound and rendered again, has its value and its type."""

import random

import pytest

from streams.plan.compile import compile_view
from streams.plan.sql.tokens import tokenize
from tests.support.plan_sql import to_sql
from tests.support.plan_tables import carry, catalog, connect, fill, shown
from tests.unit.plan.expressions import EXPRESSIONS

_BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1, "}}": -2}


def parts(text: str) -> list[str]:
    """The expressions of a list, cut at the commas outside brackets."""
    pieces, depth, start = [], 0, 0
    for token in tokenize(text):
        depth += _BRACKETS.get(text[token.start : token.end], 0)
        if token.text == "," and depth == 0:
            pieces.append(text[start : token.start])
            start = token.end
    return [*pieces, text[start:]]


@pytest.mark.parametrize("kind", EXPRESSIONS)
def test_rendering_keeps_value_and_type(kind: str) -> None:
    connection = connect()
    fill(connection, random.Random(kind), rows=12)
    names = [f"x{i}" for i, _ in enumerate(parts(EXPRESSIONS[kind]))]
    listed = ",\n".join(
        f"{part.split(' --')[0].strip()} AS {name}"
        for part, name in zip(parts(EXPRESSIONS[kind]), names, strict=True)
    )
    query = f"SELECT {listed}\nFROM every"
    compiled = compile_view(query, catalog())
    plans = connect()
    fill(plans, random.Random(kind), rows=12)
    carry(plans, "every")
    rendered = shown(to_sql(compiled.logical), compiled.columns)
    relation, expected = plans.sql(rendered), connection.sql(query)
    types = [str(type_) for type_ in expected.types]
    assert [c.type for c in compiled.columns] == [t.replace('"NULL"', "INTEGER") for t in types]
    assert [str(type_) for type_ in relation.types] == [c.type for c in compiled.columns]
    here, there = (
        of.execute(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM ({text}\n) q").fetchall()
        for of, text in ((connection, query), (plans, rendered))
    )
    for part, one, other in zip(
        parts(EXPRESSIONS[kind]), columns_of(here), columns_of(there), strict=True
    ):
        assert one == other, part


@pytest.mark.parametrize("kind", EXPRESSIONS)
def test_no_comma_is_lost(kind: str) -> None:
    """The corpus is cut as it was meant: no part ends in the middle of a bracket."""
    for part in parts(EXPRESSIONS[kind]):
        assert part.count("(") == part.count(")") or "'" in part


def columns_of(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return list(zip(*rows, strict=True))
