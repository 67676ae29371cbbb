"""The DDL that Apply executes, derived from the existing tables."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from connectors.sql.columns import TableColumn
from connectors.sql.constraints import missing_keys, unfitting
from connectors.sql.dialect import Dialect, Existing
from connectors.sql.statements import DELETED, Table
from streams.errors import InvalidUsage

CHECKPOINTS = ("slackwater_checkpoints",)
"""For each key range of each task: its fence and its checkpoint."""
TASKS = ("slackwater_tasks",)
"""For each task: the applied specification."""

META = {
    CHECKPOINTS: (
        ("task", "TEXT NOT NULL"),
        ("key_begin", "BIGINT NOT NULL"),
        ("key_end", "BIGINT NOT NULL"),
        ("fence", "BIGINT NOT NULL"),
        ("opened", "BIGINT NOT NULL"),
        ("nonce", "TEXT NOT NULL"),
        ("checkpoint", "TEXT NOT NULL"),  # bytes in base64
        ("read_through", "TEXT NOT NULL"),  # the same as JSON, for people
        ("", "PRIMARY KEY (task, key_begin, key_end)"),
    ),
    TASKS: (
        ("task", "TEXT NOT NULL PRIMARY KEY"),
        ("version", "TEXT NOT NULL"),
        ("spec", "TEXT NOT NULL"),  # a MaterializationSpec in base64
    ),
}


def create_meta(dialect: Dialect) -> Iterator[str]:
    """The connector's own tables; their names need no quotes."""
    for name, columns in META.items():
        body = ", ".join(f"{column} {type_}".strip() for column, type_ in columns)
        yield f"CREATE TABLE {dialect.table(name)} ({body})"


def changes(
    table: Table, existing: Mapping[str, Existing], kept: Collection[str] | None = None
) -> Iterator[str]:
    """The statements that bring a table to its shape. Errors: InvalidUsage if impossible.

    `kept` are the columns that the table's task has written so far, if there is such a task: a
    column that it has written before them, and not since, has old values.
    """
    wanted = [*table.shape.columns, *([DELETED] if table.soft else [])]
    if not existing:
        yield create(table, wanted)
        yield from told(table)
        yield from comments(table, wanted)
        return
    refuse(table, existing)
    if kept is not None and not table.delta:
        stale = {column.name for column in table.changing} & existing.keys() - set(kept)
        yield from emptied(table, [column for column in wanted if column.name in stale])
    target = f"ALTER TABLE {table.dialect.table(table.name)}"
    for column in wanted:
        yield from adapt(table, target, column, existing.get(column.name))
    yield from comments(table, [column for column in wanted if column.name not in existing])
    names = {column.name for column in wanted}
    for name, actual in existing.items():
        if name not in names and not actual.nullable and table.dialect.strict_nulls:
            yield f"{target} ALTER COLUMN {table.dialect.quote(name)} DROP NOT NULL"


def emptied(table: Table, columns: Sequence[TableColumn]) -> Iterator[str]:
    """The statement that sets columns to NULL, so that they are as new ones are."""
    names = table.dialect.columns(columns)
    if names:
        values = ", ".join(f"{name} = NULL" for name in names)
        filled = " OR ".join(f"{name} IS NOT NULL" for name in names)
        yield f"UPDATE {table.dialect.table(table.name)} SET {values} WHERE {filled}"


def recreate(table: Table, task: str, existing: Mapping[str, Existing]) -> Iterator[str]:
    """The statements that replace a table; sessions that write it are fenced."""
    if existing:
        yield f"DROP TABLE {table.dialect.table(table.name)}"
    checkpoints = table.dialect.table(CHECKPOINTS)
    yield f"UPDATE {checkpoints} SET fence = fence + 1 WHERE task = {literal(task)}"


def refuse(table: Table, existing: Mapping[str, Existing]) -> None:
    """Errors: InvalidUsage if a column stands in the way."""
    keys = {column.name for column in table.shape.keys}
    problems = {
        column.name: unfitting(
            table.dialect, column, existing, key=column.name in keys and not table.delta
        )
        for column in table.shape.columns
    }
    if not table.delta:
        gone = missing_keys(existing, list(keys))
        problems |= dict.fromkeys(gone, "the table's key has it, the collection's does not")
    wrong = [f"{name}: {problem}" for name, problem in problems.items() if problem]
    if wrong:
        raise InvalidUsage(f"table {'.'.join(table.name)}: {'; '.join(wrong)}")


def create(table: Table, columns: list[TableColumn]) -> str:
    """A new table. One of delta updates has no key."""
    lines = [definition(table, column) for column in columns]
    if not table.delta:
        keys = ", ".join(table.dialect.columns(table.shape.keys))
        lines.append(f"PRIMARY KEY ({keys})")
    body = ",\n  ".join(lines)
    return f"CREATE TABLE {table.dialect.table(table.name)} (\n  {body}\n)"


def definition(table: Table, column: TableColumn) -> str:
    """A column of a new table."""
    strict = not column.nullable and (
        table.dialect.strict_nulls or column == DELETED or column in table.shape.keys
    )
    default = " DEFAULT FALSE" if column == DELETED else ""
    return f"{table.plain(column)}{' NOT NULL' if strict else ''}{default}"


def adapt(
    table: Table, target: str, column: TableColumn, actual: Existing | None
) -> Iterator[str]:
    """The statements that adapt a column."""
    name, type_ = table.dialect.quote(column.name), table.dialect.types[column.kind]
    if actual is None:
        default = " NOT NULL DEFAULT FALSE" if column == DELETED else ""
        yield f"{target} ADD COLUMN {table.plain(column)}{default}"
        return
    if actual.type != type_:
        yield f"{target} ALTER COLUMN {name} SET DATA TYPE {type_}"
    if column.nullable and not actual.nullable and table.dialect.strict_nulls:
        yield f"{target} ALTER COLUMN {name} DROP NOT NULL"


def told(table: Table) -> Iterator[str]:
    """The comment of a table: its source and task."""
    if table.dialect.comments and table.comment:
        name = table.dialect.table(table.name)
        yield f"COMMENT ON TABLE {name} IS {literal(table.comment)}"


def comments(table: Table, columns: list[TableColumn]) -> Iterator[str]:
    """The comments of columns, from the collection's schema."""
    for column in columns:
        if column.comment and table.dialect.comments:
            name = f"{table.dialect.table(table.name)}.{table.dialect.quote(column.name)}"
            yield f"COMMENT ON COLUMN {name} IS {literal(column.comment)}"


def literal(text: str) -> str:
    """Text in a statement that takes no parameters."""
    return "'" + text.replace("'", "''") + "'"
