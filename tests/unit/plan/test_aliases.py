"""An aggregate by another name has the plan of the one whose alias it is in the catalogue.

So what is judged of `arg_max` is known of `argmax` and `max_by`: the engine reads of them
nothing in which they differ.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache

import pyarrow as pa
import pytest

from streams.bench.sql.columns import COLUMNS
from streams.bench.sql.signatures import Signature, calls
from streams.bench.sql.survey import catalogue
from streams.errors import InvalidStatement
from streams.ids import CollectionId
from streams.plan.bind.binder import binder
from streams.plan.compile import Relation, compile_view
from streams.plan.physical import Column
from streams.testing import maintain
from streams.trace.kernel.kernel import Kernel
from tests.support.plan_tables import connect

ALIASES = (
    "SELECT DISTINCT function_name, alias_of FROM duckdb_functions() WHERE function_type ="
    " 'aggregate' AND alias_of <> function_name ORDER BY ALL"
)
SOME = 8
"""Overloads that are looked at in windows."""

EVERY = tuple(
    Column(f"{side}_{name}", type_) for side in "xy" for name, type_ in COLUMNS.items()
)
CATALOG = {"every": Relation(CollectionId("every"), (Column("g", "INTEGER"), *EVERY))}


def aliases() -> list[tuple[str, str]]:
    table = Kernel().query(ALIASES)
    return [tuple(row.values()) for row in table.to_pylist()]


@cache
def every_overload() -> Sequence[Signature]:
    return catalogue(Kernel())


def first_call(overload: Signature) -> str:
    """The first of its calls in which n of `arg_max(x, y, n)` is a constant."""
    is_counted = len(overload.parameters) == len("xyn") and overload.parameters[-1] == "BIGINT"
    return next(
        call for call in calls(overload) if call.endswith(", 2)" if is_counted else ")")
    )


@cache
def written(name: str) -> Sequence[str]:
    """A call of each overload, and of one with FILTER, ORDER BY and DISTINCT: what binds."""
    overloads = [overload for overload in every_overload() if overload.name == name]
    texts = list(dict.fromkeys(map(first_call, overloads)))
    (*_, last) = texts
    arguments = last.removesuffix(")").split("(", 1)[1]
    texts += [f"{last} FILTER (WHERE g > 1)", f"{name}({arguments} ORDER BY g)"]
    if "," not in arguments:
        texts.append(f"{name}(DISTINCT {arguments})")
    with binder({"every": CATALOG["every"].columns}) as bound:
        return [text for text in texts if _binds(bound.check, text)]


def _binds(check: Callable[[str], object], text: str) -> bool:
    try:
        check(f"SELECT {text} FROM every GROUP BY g")
    except InvalidStatement:
        return False
    return True


def planned(query: str, names: Sequence[str]) -> str:
    """The plan of a view, without the function's names."""
    return re.sub(
        rf"\b({'|'.join(names)})\b", "the function", repr(compile_view(query, CATALOG))
    )


def listed(texts: Sequence[str], over: str = "") -> str:
    return ", ".join(f"{text}{over} AS c{place}" for place, text in enumerate(texts))


@pytest.mark.parametrize(("alias", "original"), aliases())
def test_an_alias_has_the_plan_of_its_original(alias: str, original: str) -> None:
    names, texts = (alias, original), written(original)
    others = [re.sub(rf"^{original}\(", f"{alias}(", text) for text in texts]
    assert others != texts
    query = "SELECT g, {} FROM every GROUP BY g"
    assert planned(query.format(listed(others)), names) == planned(
        query.format(listed(texts)), names
    )


OVER = " OVER (PARTITION BY g ORDER BY x_i ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"
AGGREGATES = [names for names in aliases() if names[1] != "first"]
"""Without that of `first`, which is no aggregate in a window."""


@pytest.mark.parametrize("over", [OVER, " OVER (PARTITION BY g)"])
@pytest.mark.parametrize(("alias", "original"), AGGREGATES)
def test_an_alias_has_the_plan_of_its_original_in_a_window(
    alias: str, original: str, over: str
) -> None:
    texts = written(original)[:SOME]
    others = [re.sub(rf"^{original}\(", f"{alias}(", text) for text in texts]
    plans = [
        planned(f"SELECT g, {listed(called, over)} FROM every", (alias, original))
        for called in (texts, others)
    ]
    assert plans[0] == plans[1]


@pytest.mark.parametrize(
    "call",
    [
        "arbitrary(x) OVER (ORDER BY id)",
        "arbitrary(x) OVER (ORDER BY id DESC ROWS 1 PRECEDING)",
        "arbitrary(x) FILTER (WHERE id <> 2) OVER (ORDER BY id)",
        "arbitrary(x ORDER BY id) OVER ()",
        "arbitrary(DISTINCT x ORDER BY x DESC NULLS FIRST) OVER (ORDER BY id)",
    ],
)
def test_arbitrary_is_the_first_be_it_null(call: str) -> None:
    """As in DuckDB, where `any_value` is another function."""
    values = pa.array([None, 5, 6], pa.int32())
    columns = {"id": pa.array([1, 2, 3], pa.int32()), "x": values}
    rows = pa.table(columns | {"_time": [0, 0, 0], "_diff": [1, 1, 1]})
    query = f"SELECT id, {call} AS c FROM t"
    connection = connect()
    connection.register("t", rows)
    view = maintain(query, {"t": "id INTEGER, x INTEGER"}, {"t": rows})
    actual = sorted(tuple(row.values()) for row in view.at(0).to_pylist())
    assert actual == sorted(connection.execute(query).fetchall())
