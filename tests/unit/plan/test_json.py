"""Dataflows as JSON: nothing is lost, and what is not a dataflow is refused."""

import pytest

from streams.errors import InvalidUsage
from streams.ids import CollectionId
from streams.plan.json import dumps, loads
from streams.plan.physical import (
    Aggregate,
    Arrange,
    Column,
    Constant,
    Dataflow,
    Distinct,
    EmitOnClose,
    Expression,
    Groupwise,
    Import,
    Join,
    Linear,
    Lookup,
    Loop,
    Negate,
    Reduce,
    Source,
    TopK,
    Union,
    Upsert,
    inputs,
)
from streams.trace.kernel.functions import Function

X = Expression("(c0 + 'é\n')", "VARCHAR", 'a + "b"')
GENERAL = Aggregate("list", None, "X", sql="list(c1)", reads=(1,))
BODY = Dataflow(
    (Import(CollectionId("input 0"), (Column("x", "INTEGER"),)),),
    (Source(0), Linear(0, (X,), (X,))),
    (("INTEGER",), ("VARCHAR",)),
    (0, 0),
    (Column("y", "VARCHAR"),),
)
EVERY = Dataflow(
    imports=(Import(CollectionId("s1"), (Column("A b", "INTEGER"), Column("x", "VARCHAR"))),),
    nodes=(
        Source(0),
        Constant("SELECT 1"),
        Linear(0, (X,), (X, X)),
        Join(0, 2, (0, 1), (1, 0), (True, False)),
        Reduce(3, (), (Aggregate("count", None, "BIGINT"), Aggregate("min", 0, "X", True))),
        Distinct(4),
        Union((5, 1, 1)),
        Upsert(6, (1,)),
        Groupwise(7, (0,), (X,), X),
        Groupwise(7, (), (X, X)),
        TopK(8, (1,), "c0, 'ASC NULLS LAST'", 1, 4),
        Reduce(9, (), (Aggregate("corr", 0, "X", other=1), GENERAL)),
        Loop((10, 7), BODY, ("a b", "c"), (1, 0), 1, 20, fails=False),
        Negate(12),
        Arrange(13, (0,), (True,)),
        Lookup(13, 14, (0,), strict=True),
        EmitOnClose(15, 0, 7),
        EmitOnClose(16, 0, None),
    ),
    types=(("INTEGER", "VARCHAR"), (), ("A",), ("B",), ("C",), ("D",), ("E",), *[("F",)] * 11),
    levels=(0, 1, 0, 1, 2, 2, 2, 3, 3, 3, 3, 3, 4, 4, 4, 5, 5, 5),
    output=(Column("o", "F"),),
    functions=(Function("f", ("a", "b"), ("X", "Y"), "Z", "def f(a, b):\n  'é'"),),
)


def test_every_node_survives_the_round_trip() -> None:
    assert loads(dumps(EVERY)) == EVERY
    assert dumps(loads(dumps(EVERY))) == dumps(EVERY)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        dumps(EVERY).replace('"Distinct"', '"Sort"'),
        dumps(EVERY).replace('"levels":[0,', '"levels":["0",'),
        dumps(EVERY).replace('"sql":"SELECT 1"', '"text":"SELECT 1"'),
    ],
)
def test_text_of_another_version_is_refused(text: str) -> None:
    with pytest.raises(InvalidUsage, match="not a dataflow of this version"):
        loads(text)


def test_inputs_are_in_the_order_of_the_ports() -> None:
    assert [inputs(node) for node in EVERY.nodes] == [
        (), (), (0,), (0, 2), (3,), (4,), (5, 1, 1), (6,), (7,), (7,),
        (8,), (9,), (10, 7), (12,), (13,), (13, 14), (15,), (16,),
    ]  # fmt: skip
    assert EVERY.depth == 5


def test_a_text_that_is_nested_too_deep_is_refused() -> None:
    with pytest.raises(InvalidUsage, match="not a dataflow of this version"):
        loads("[" * 100_000)
