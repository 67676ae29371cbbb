"""What is in the tables, over every SQL database that a connector of ours writes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from connectors.protocol.spec_builder import Collection, FieldSpec
from connectors.runtime.runner import can_pass
from connectors.sql.connector import check_tables
from connectors.transport.errors import ConnectorFailed, is_known
from streams.errors import InvalidUsage
from tests.support.endpoints import Endpoint, on_duckdb, on_postgres, on_sqlite, write
from tests.support.materialization_tasks import NAMES, PAIRS

ODD = Collection(
    name="odd",
    keys=("the key", 'a"b'),
    columns=(
        FieldSpec(name="the key"),
        FieldSpec(name='a"b', types=("integer",)),
        FieldSpec(name="select", types=("string", "null"), required=False),
        FieldSpec(name="ä;--"),
    ),
)


@pytest.fixture(params=[on_sqlite, on_duckdb, on_postgres])
def endpoint(request: Any, memory_path: Path) -> Endpoint:
    endpoint_: Endpoint = request.param(memory_path, request)
    return endpoint_


@pytest.mark.parametrize("endpoint_on", [on_sqlite, on_duckdb])
def test_validate_and_a_dry_run_create_no_database(
    endpoint_on: Any, memory_path: Path, request: Any
) -> None:
    endpoint: Endpoint = endpoint_on(memory_path, request)
    files = set(memory_path.iterdir())
    endpoint.validate(NAMES)
    assert "CREATE TABLE" in endpoint.apply(endpoint.task(NAMES), dry_run=True)
    assert set(memory_path.iterdir()) == files
    endpoint.apply(endpoint.task(NAMES))
    assert endpoint.apply(endpoint.task(NAMES), dry_run=True) == "", "an existing file is read"


def test_columns_come_and_go(endpoint: Endpoint) -> None:
    """Seed, "Validate": what changes have occurred."""
    endpoint.apply(endpoint.task(NAMES))
    write(endpoint, endpoint.task(NAMES), [{"id": 1, "name": "a"}])
    wider = Collection(
        name=NAMES.name,
        keys=NAMES.keys,
        columns=(
            FieldSpec(name="id", types=("integer",)),
            FieldSpec(name="age", types=("integer",)),
        ),
    )
    spec = endpoint.task(wider)
    lines = endpoint.apply(spec).splitlines()
    assert lines[0].startswith('ALTER TABLE "t" ADD COLUMN "age" ')
    assert lines[-1] == "-- record task test, version 1"
    write(endpoint, spec, [{"id": 2, "age": 7}])
    assert endpoint.query("SELECT id, name, age FROM t ORDER BY id") == [
        (1, "a", None),
        (2, None, 7),
    ]


SALES = Collection(
    name="shop/sales",
    keys=("id",),
    columns=(
        FieldSpec(name="id", types=("integer",)),
        FieldSpec(name="price", types=("integer",)),
        FieldSpec(name="size", types=("integer",)),
    ),
)


@pytest.mark.parametrize("soft", [False, True])
def test_a_column_that_comes_back_has_no_old_values(endpoint: Endpoint, soft: bool) -> None:
    """What it held when it went may not be what the collection has by now."""
    both = endpoint.task(SALES, soft_delete=soft)
    prices = endpoint.task(SALES, fields=("id", "price"), soft_delete=soft)
    rows = [{"id": key, "price": 1, "size": 1} for key in (1, 2, 3)]
    endpoint.apply(both)
    write(endpoint, both, rows)
    endpoint.apply(prices)
    sizes = "SELECT id, price, size FROM t ORDER BY id"
    assert endpoint.query(sizes) == [(1, 1, 1), (2, 1, 1), (3, 1, 1)], "nothing is lost yet"
    write(endpoint, prices, [{"id": 2, "price": 5, "size": 5}], exists=[True])
    statements = endpoint.apply(both).splitlines()
    assert statements[0] == 'UPDATE "t" SET "size" = NULL WHERE "size" IS NOT NULL;'
    assert endpoint.query(sizes) == [(1, 1, None), (2, 5, None), (3, 1, None)]
    assert endpoint.apply(both) == ""
    write(endpoint, both, [{"id": 1, "price": 1, "size": 9}], exists=[True])
    assert endpoint.apply(both, version="2").startswith("-- record"), "it is emptied once"
    assert endpoint.query(sizes) == [(1, 1, 9), (2, 5, None), (3, 1, None)]


def test_a_column_comes_back_as_others_change(endpoint: Endpoint) -> None:
    """All in one transaction, which some databases allow in this order alone."""
    endpoint.apply(endpoint.task(SALES))
    write(endpoint, endpoint.task(SALES), [{"id": 1, "price": 1, "size": 1}])
    endpoint.apply(endpoint.task(SALES, fields=("id", "price")))
    wider = replace(SALES, columns=(*SALES.columns, FieldSpec(name="note", types=("string",))))
    spec = endpoint.task(wider, fields=("id", "size", "note"), soft_delete=True)
    endpoint.apply(spec)
    write(endpoint, spec, [{"id": 2, "price": 2, "size": 2, "note": "b"}])
    shown = endpoint.query("SELECT id, price, size, note, _deleted FROM t ORDER BY id")
    assert shown == [(1, 1, None, None, False), (2, None, 2, "b", False)]


def test_delta_updates_keep_a_column_that_comes_back(endpoint: Endpoint) -> None:
    """Its rows are what the changes were: none of them is old."""
    both = endpoint.task(SALES, delta_updates=True)
    prices = endpoint.task(SALES, fields=("id", "price"), delta_updates=True)
    row = {"id": 1, "price": 1, "size": 1}
    for spec in (both, prices, both):
        endpoint.apply(spec)
        write(endpoint, spec, [row])
    shown = endpoint.query("SELECT id, price, size FROM t ORDER BY size NULLS LAST")
    assert shown == [(1, 1, 1), (1, 1, 1), (1, 1, None)]


def test_a_table_belongs_to_one_task(endpoint: Endpoint) -> None:
    """Seed, "Validate": whether there is any existing data at the endpoint."""
    endpoint.apply(endpoint.task(NAMES, "mine", name="gone"))
    endpoint.query("DELETE FROM slackwater_tasks")
    with pytest.raises(ConnectorFailed, match="table mine exists, and no task created it"):
        endpoint.validate(NAMES, "mine")
    endpoint.apply(endpoint.task(NAMES, "mine", adopt=True))
    with pytest.raises(ConnectorFailed, match="table mine is kept by task test"):
        endpoint.apply(endpoint.task(NAMES, "mine", name="other"))
    with pytest.raises(ConnectorFailed, match="delta updates cannot be turned on or off"):
        endpoint.apply(endpoint.task(NAMES, "mine", delta_updates=True))


def test_odd_names_and_composite_keys(endpoint: Endpoint) -> None:
    spec = endpoint.task(ODD, 'my "table"; --')
    endpoint.apply(spec)
    rows = [
        {"the key": "k", 'a"b': 1, "select": None, "ä;--": "x"},
        {"the key": "k", 'a"b': 2, "select": "s", "ä;--": "y"},
    ]
    write(endpoint, spec, rows)
    changed = [rows[0] | {"ä;--": "z"}]
    write(endpoint, spec, changed, exists=[True])
    table = endpoint.query('SELECT * FROM "my ""table""; --" ORDER BY 2')
    assert [row[:4] for row in table] == [("k", 1, None, "z"), ("k", 2, "s", "y")]


def test_delta_updates_append_every_document(endpoint: Endpoint) -> None:
    """Seed, "Delta updates": an append-only journal, from which nothing is loaded."""
    spec = endpoint.task(NAMES, delta_updates=True)
    endpoint.apply(spec)
    write(endpoint, spec, [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}])
    write(endpoint, spec, [{"id": 1, "name": "c"}], exists=[True])
    assert endpoint.query("SELECT id, name FROM t ORDER BY name") == [
        (1, "a"),
        (1, "b"),
        (1, "c"),
    ]


@pytest.mark.parametrize("soft", [False, True])
def test_deleted_rows_go_or_are_marked(endpoint: Endpoint, soft: bool) -> None:
    spec = endpoint.task(PAIRS, soft_delete=soft)
    endpoint.apply(spec)
    first, second = {"a": "x", "b": 1, "n": 1}, {"a": "x", "b": 2, "n": 2}
    write(endpoint, spec, [first, second])
    write(endpoint, spec, [first], exists=[True], deletes=[True])
    shown = endpoint.query("SELECT a, b, n FROM t ORDER BY b")
    if not soft:
        assert shown == [("x", 2, 2.0)]
        return
    assert shown == [("x", 1, 1.0), ("x", 2, 2.0)]
    marks = "SELECT b, _deleted FROM t ORDER BY b"
    assert endpoint.query(marks) == [(1, 1), (2, 0)]
    write(endpoint, spec, [first, {"a": "y", "b": 3, "n": 3}])
    assert endpoint.query(marks) == [(1, 0), (2, 0), (3, 0)]
    with pytest.raises(ConnectorFailed, match="refuses INSERT"):
        write(endpoint, spec, [first])


def test_soft_deletes_are_turned_on_and_not_off(endpoint: Endpoint) -> None:
    """Rows that are marked as deleted would appear again, and the collection has none."""
    hard, soft = endpoint.task(NAMES), endpoint.task(NAMES, soft_delete=True)
    endpoint.apply(hard)
    write(endpoint, hard, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    assert 'ADD COLUMN "_deleted"' in endpoint.apply(soft)
    write(endpoint, soft, [{"id": 1, "name": "a"}], exists=[True], deletes=[True])
    marks = "SELECT id, _deleted FROM t ORDER BY id"
    assert endpoint.query(marks) == [(1, True), (2, False)]
    error = "table t: soft_delete cannot be turned off, .*: raise the binding's backfill"
    with pytest.raises(ConnectorFailed, match=error):
        endpoint.apply(hard)
    with pytest.raises(ConnectorFailed, match=error):
        endpoint.validate(NAMES)
    anew = endpoint.task(NAMES, backfill=1)
    endpoint.apply(anew)
    assert endpoint.query("SELECT * FROM t") == []


def test_a_key_that_widens_is_altered_or_refused_with_the_way_out(endpoint: Endpoint) -> None:
    endpoint.apply(endpoint.task(NAMES))
    write(endpoint, endpoint.task(NAMES), [{"id": 1, "name": "a"}])
    text = Collection(name=NAMES.name, keys=("id",), columns=(FieldSpec(name="id"),))
    if "user" in endpoint.config:
        endpoint.apply(endpoint.task(text))
        write(endpoint, endpoint.task(text), [{"id": "1"}], exists=[True])
        assert endpoint.query("SELECT id FROM t") == [("1",)]
        return
    error = (
        "the column is (INTEGER|BIGINT), expected (TEXT|VARCHAR); name another table, or rai"
    )
    with pytest.raises(ConnectorFailed, match=rf"table t: id: {error}"):
        endpoint.apply(endpoint.task(text))


def test_a_key_of_lists_is_kept_or_refused_by_name(endpoint: Endpoint) -> None:
    keyed = Collection(name="c", keys=("k",), columns=(FieldSpec(name="k", types=("array",)),))
    if "user" in endpoint.config:
        assert endpoint.kinds(keyed)["k"] == "UNSATISFIABLE"
        error = "table t: k: PostgreSQL has no key of json; declare another key"
        with pytest.raises(ConnectorFailed, match=error):
            endpoint.apply(endpoint.task(keyed))
        return
    spec = endpoint.task(keyed)
    endpoint.apply(spec)
    write(endpoint, spec, [{"k": [1, 2]}, {"k": [1]}])
    write(endpoint, spec, [{"k": [1]}], exists=[True], deletes=[True])
    assert endpoint.query("SELECT k FROM t") == [("[1,2]",)]


def test_a_table_that_is_gone_does_not_come_back_by_itself(endpoint: Endpoint) -> None:
    """So the task ends, and is not tried again for ever."""
    spec = endpoint.task(NAMES)
    endpoint.apply(spec)
    endpoint.query("DROP TABLE t")
    with pytest.raises(ConnectorFailed, match="cannot do INSERT") as caught:
        write(endpoint, spec, [{"id": 1, "name": "a"}])
    assert is_known(caught.value)
    assert not can_pass(caught.value)


def test_checkpoint_and_fence_are_in_the_database(endpoint: Endpoint) -> None:
    """Seed, "Setup": fence, materialization, key range and checkpoint, in one table."""
    spec = endpoint.task(NAMES)
    endpoint.apply(spec)
    write(endpoint, spec, [{"id": 1}], checkpoint=7)
    write(endpoint, spec, [{"id": 2}], checkpoint=8)
    columns = "task, key_begin, key_end, fence, read_through"
    (row,) = endpoint.query(f"SELECT {columns} FROM slackwater_checkpoints")
    assert row[:4] == ("test", 0, 2**32 - 1, 2)
    assert json.loads(row[4]) == {"sources": {"testing/accounts": {"readThrough": "8"}}}


def test_a_count_that_is_wrong_says_so(endpoint: Endpoint) -> None:
    spec = endpoint.task(NAMES)
    endpoint.apply(spec)
    write(endpoint, spec, [{"id": 1}])
    error = "table t: expected to update 2 rows, actual 1; another client has changed the table"
    with pytest.raises(ConnectorFailed, match=error):
        write(endpoint, spec, [{"id": 1}, {"id": 2}], exists=[True, True])
    error = "table t: expected to delete 1 rows, actual 0"
    with pytest.raises(ConnectorFailed, match=error):
        write(endpoint, spec, [{"id": 3}], exists=[True], deletes=[True])


EVERY = Collection(
    name="every",
    keys=("id",),
    columns=(
        FieldSpec(name="id", types=("integer",)),
        FieldSpec(name="text", types=("string", "null"), required=False),
        FieldSpec(name="list", types=("array",)),
        FieldSpec(name="mixed", types=("string", "boolean")),
        FieldSpec(name="never", types=("null",)),
        FieldSpec(name="slackwater exists"),
    ),
)


def test_every_projection_has_a_constraint(endpoint: Endpoint) -> None:
    """Seed, "Validate": field constraints, of a new table and of one that is there."""
    kinds = {
        "id": "LOCATION_REQUIRED",
        "text": "LOCATION_RECOMMENDED",
        "list": "FIELD_OPTIONAL",
        "mixed": "FIELD_OPTIONAL",
        "never": "FIELD_FORBIDDEN",
        "slackwater exists": "FIELD_FORBIDDEN",
        "flow_document": "LOCATION_REQUIRED",
    }
    assert endpoint.kinds(EVERY) == kinds
    endpoint.apply(endpoint.task(EVERY, fields=("list", "text")))
    assert endpoint.kinds(EVERY) == kinds
    number = FieldSpec(name="text", types=("boolean",))
    changed = Collection(name="every", keys=("id",), columns=(*EVERY.columns[:1], number))
    assert endpoint.kinds(changed)["text"] == "UNSATISFIABLE"
    reasons = endpoint.validate(changed)["text"][1]
    assert "name another table, or raise the binding's backfill" in reasons


def test_a_dry_run_says_what_is_done_and_does_nothing(endpoint: Endpoint) -> None:
    """Seed, "Apply": the connector should perform it, or just return what it would do."""
    first, second = endpoint.task(NAMES), endpoint.task(EVERY, fields=("text",))
    statements = endpoint.apply(first, dry_run=True)
    for statement in ('CREATE TABLE "slackwater_checkpoints"', 'CREATE TABLE "t" ('):
        assert statement in statements
    assert statements.endswith("-- record task test, version 1")
    assert endpoint.apply(first, dry_run=True) == statements, "nothing was done"
    assert endpoint.apply(first) == statements
    assert endpoint.apply(first) == ""
    statements = endpoint.apply(second, version="2", dry_run=True)
    assert 'ALTER TABLE "t" ADD COLUMN "text"' in statements
    assert endpoint.apply(second, version="2") == statements


def test_a_table_has_a_name_of_its_own(endpoint: Endpoint) -> None:
    """PostgreSQL would cut a name that is too long, and so take two tables for one."""
    most = 63 if "user" in endpoint.config else 1024
    error = f"takes names of 1 to {most} bytes, this one has {most + 1}; give it another name"
    with pytest.raises(ConnectorFailed, match=error):
        endpoint.validate(NAMES, "ä" * (most // 2) + "x" * (most % 2 + 1))
    with pytest.raises(ConnectorFailed, match="slackwater_tasks: it is a table of ours"):
        endpoint.validate(NAMES, "slackwater_tasks")
    for name in ("slackwater_store_0", "slackwater_load_12"):
        with pytest.raises(ConnectorFailed, match=f"{name}: the name is reserved for sessions"):
            endpoint.validate(NAMES, name)
    other = "one" if "user" in endpoint.config else "ONE"
    with pytest.raises(InvalidUsage, match=f"table {other}: it is that of another binding"):
        check_tables(endpoint.connector.dialect, [("one",), (other,)])


def test_tables_and_columns_say_what_they_are(endpoint: Endpoint) -> None:
    if not endpoint.connector.dialect.comments:
        return
    described = FieldSpec(name="v", description="what it's for", required=False)
    spec = endpoint.task(NAMES)
    endpoint.apply(spec)
    more = Collection(name=NAMES.name, keys=NAMES.keys, columns=(*NAMES.columns, described))
    endpoint.apply(endpoint.task(more))
    table = "collection test/names, kept by task test"
    if "user" in endpoint.config:
        query = "SELECT obj_description('t'::regclass), col_description('t'::regclass, 4)"
    else:
        query = """SELECT t.comment, c.comment FROM duckdb_tables() t, duckdb_columns() c
          WHERE t.table_name = 't' AND c.table_name = 't' AND c.column_name = 'v'"""
    assert endpoint.query(query) == [(table, "what it's for")]


def test_a_task_that_changed_since_it_was_applied_is_refused(endpoint: Endpoint) -> None:
    """Seed, "Open -> Opened": the same materialization as in Apply."""
    endpoint.apply(endpoint.task(NAMES))
    other = endpoint.task(NAMES, fields=())
    error = "the driver broke the rule spec: Open: task test is not as it was applied"
    with pytest.raises(ConnectorFailed, match=error):
        write(endpoint, other, [{"id": 1}])
