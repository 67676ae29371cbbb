"""Random tables: columns of every type that a table can hold, and rows that come and go.

A column's name says its type in all tables of a case, but for the width of integers, so that
NATURAL and USING find columns to join on. Values are few: rows meet, tie and repeat.
"""

from dataclasses import dataclass

from tests.random_sql.chance import Chance
from tests.support.plan_tables import LITERALS, NESTED, VALUES

KINDS = {
    "INTEGER": "number",
    "SMALLINT": "number",
    "BIGINT": "number",
    "DECIMAL(8,2)": "number",
    "DOUBLE": "float",
    "VARCHAR": "text",
    "BOOLEAN": "bool",
    "DATE": "date",
    "TIMESTAMP": "stamp",
    "INTEGER[]": "list",
}
"""Types that expressions are written over, by kind; any other type is a kind of its own."""

SIMPLE = LITERALS | {
    "BOOLEAN": ["NULL", "true", "false"],
    "DATE": ["NULL", "'2024-02-29'", "'2024-03-01'"],
    "TIMESTAMP": ["NULL", "'2024-02-29 12:00:00'", "'2024-03-01 00:00:00'"],
    "INTEGER[]": ["NULL", "[]", "[1, NULL]", "[2, 1, 2]", "[1, 1]"],
}
_ENUMS = "ENUM('z', 'a')[]"
RARE = {
    # DuckDB does not read an Arrow batch in which all lists of enums are empty or NULL
    kind.replace(_ENUMS, "VARCHAR[]"): [each for each in literals if each != "[]"]
    if kind == _ENUMS
    else literals
    for kind, *literals in (VALUES | NESTED).values()
    if kind not in SIMPLE and not kind.startswith("UNION")
}
LAST = 4
"""The last time of a change."""


@dataclass(frozen=True)
class Term:
    """An expression in scope and the kind of its type."""

    sql: str
    kind: str


@dataclass(frozen=True)
class Update:
    """A change of a row's multiplicity; the row's cells are literals."""

    row: tuple[str, ...]
    time: int
    diff: int


@dataclass(frozen=True)
class Table:
    """A table of a case: its columns with their types, and its history."""

    name: str
    columns: dict[str, str]
    updates: tuple[Update, ...]

    @property
    def definition(self) -> str:
        return ", ".join(f"{name} {kind}".strip() for name, kind in self.columns.items())


def literals(kind: str) -> list[str]:
    """Values of a type, as they are written; NULL is the first."""
    return SIMPLE[kind] if kind in SIMPLE else RARE[kind]


def tables(chance: Chance) -> list[Table]:
    """One to three tables."""
    more = ["INTEGER", "VARCHAR", "DOUBLE", "BOOLEAN", "DECIMAL(8,2)", "DATE", "TIMESTAMP"]
    kinds = {"b": "VARCHAR", "c": chance.among(more)}
    kinds["d"] = "INTEGER[]" if chance.maybe(30) else chance.among(more)
    if chance.maybe(25):
        kinds["d"] = chance.among(list(RARE))
    return [_table(chance, name, kinds) for name in "tuw"[: chance.pick(2, 1, 3)]]


def _table(chance: Chance, name: str, kinds: dict[str, str]) -> Table:
    columns = {"a": chance.pick("INTEGER", "INTEGER", "BIGINT", "SMALLINT")}
    chosen = chance.several(list(kinds), 1, 3)
    columns |= {column: kinds[column] for column in sorted(chosen)}
    return Table(name, columns, tuple(_history(chance, list(columns.values()))))


def _history(chance: Chance, kinds: list[str]) -> list[Update]:
    """Rows come, go and come back; some updates cancel where they stand."""
    made: list[Update] = []
    live: list[tuple[str, ...]] = []
    at = 0
    for _ in range(chance.pick(3, 2, 1, 0, 4, 5, 6, 8, 10, 12)):
        at = min(LAST, at + chance.pick(0, 0, 1, 1, 2))
        if live and chance.maybe(35):
            made.append(Update(live.pop(chance.below(len(live))), at, -1))
            continue
        row = tuple(chance.among([*literals(kind)[1:], "NULL"]) for kind in kinds)
        if live and chance.maybe(15):
            row = chance.among(live)
        count = chance.pick(1, 1, 2, 3)
        made.append(Update(row, at, count))
        live += [row] * count
        if chance.maybe(8):
            made += [Update(row, at, 3), Update(row, at, -3)]
    return made
