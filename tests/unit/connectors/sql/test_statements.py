"""Statements that move rows: what SQLite does for each of them, and in which order."""

import sqlite3

import pytest

from connectors.protocol.spec_builder import Bind, Collection, FieldSpec, binding
from connectors.sql.columns import shape_of
from connectors.sql.ddl import changes
from connectors.sql.statements import Table
from connectors.sqlite import DIALECT

PLAIN = (FieldSpec(name="a", types=("integer",)), FieldSpec(name="b"), FieldSpec(name="rowid"))


def table(
    keys: tuple[str, ...], columns: tuple[FieldSpec, ...] = PLAIN, *, adopted: bool = False
) -> Table:
    bind = Bind(
        collection=Collection(name="c", keys=keys, columns=columns), resource={}, path=["t"]
    )
    spec = binding("task", bind)
    return Table(
        dialect=DIALECT,
        index=0,
        name=("t",),
        shape=shape_of(spec.collection, spec.field_selection),
        delta=False,
        soft=False,
        adopted=adopted,
    )


def created(kept: Table) -> str:
    return next(iter(changes(kept, {})))


def opened(kept: Table, creation: str = "") -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for statement in [creation or created(kept), *kept.session_tables()]:
        connection.execute(statement)
    return connection


def plan(connection: sqlite3.Connection, statement: str) -> list[str]:
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]


KEYS = pytest.mark.parametrize("keys", [("a",), ("b",), ("b", "a"), ("rowid", "b", "a")])


@KEYS
@pytest.mark.parametrize("verb", ["remove", "update", "loaded"])
def test_rows_are_looked_up_and_the_table_is_never_scanned(
    keys: tuple[str, ...], verb: str
) -> None:
    """A delete looked at every row of the store for every row of the table."""
    kept = table(keys)
    connection = opened(kept)
    steps = plan(connection, getattr(kept, verb)())
    assert not [step for step in steps if step.startswith("SCAN t")], steps
    key = "rowid=?" if keys == ("a",) else " AND ".join(f"{name}=?" for name in keys)
    assert any(key in step for step in steps), steps


def test_a_column_that_is_called_as_the_row_is_none() -> None:
    hidden = tuple(FieldSpec(name=name) for name in ("a", "ROWID", "_rowid_", "oid"))
    assert table(("a",), hidden).row == ['"a"']
    assert table(("a",), hidden[:3]).row == ["oid"]
    assert table(("a",), PLAIN).row == ["_rowid_"]


@KEYS
@pytest.mark.parametrize("adopted", [False, True])
def test_the_rows_that_go_are_deleted(keys: tuple[str, ...], adopted: bool) -> None:
    """A table that somebody else has made may have no row numbers."""
    kept = table(keys, adopted=adopted)
    creation = f"{created(kept)} WITHOUT ROWID" if adopted else ""
    connection = opened(kept, creation)
    columns = [column.name for column in kept.shape.columns]
    values = [
        [{"a": n, "b": f"b{n}", "rowid": f"r{n}"}.get(name, "{}") for name in columns]
        for n in range(9)
    ]
    marks = ", ".join("?" * len(columns))
    connection.executemany(f"INSERT INTO t VALUES ({marks})", values)
    exists, goes = [True] * 6 + [False] * 3, [True, False, True] * 3
    stored = [[*row, *flags] for row, *flags in zip(values, exists, goes, strict=True)]
    connection.executemany(f"INSERT INTO slackwater_store_0 VALUES ({marks}, ?, ?)", stored)
    assert connection.execute(kept.remove()).rowcount == 4
    left = connection.execute("SELECT a FROM t ORDER BY a").fetchall()
    assert left == [(1,), (4,), (6,), (7,), (8,)]


def test_new_rows_come_in_the_order_of_their_key() -> None:
    kept = table(("a",))
    connection = opened(kept)
    connection.execute("CREATE TEMP TABLE said (a)")
    connection.execute(
        "CREATE TEMP TRIGGER say AFTER INSERT ON main.t"
        " BEGIN INSERT INTO said VALUES (new.a); END"
    )
    rows = [(n, "b", "r", "{}", False, False) for n in (3, 1, 2)]
    connection.executemany("INSERT INTO slackwater_store_0 VALUES (?, ?, ?, ?, ?, ?)", rows)
    assert connection.execute(kept.insert()).rowcount == 3
    said = connection.execute("SELECT a FROM said ORDER BY _rowid_").fetchall()
    assert said == [(1,), (2,), (3,)]
