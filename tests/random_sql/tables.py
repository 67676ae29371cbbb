"""Random tables: columns of every type that a table can hold, and rows that come and go.

A column's name says its type in all tables of a case, but for the width of integers, so that
NATURAL and USING find columns to join on. Values are few: rows meet, tie and repeat.
"""

from dataclasses import dataclass

from tests.random_sql.chance import Chance
from tests.support.plan_tables import LITERALS, NESTED, VALUES

_WIDTHS = {
    "TINYINT": "-60",
    "HUGEINT": "1234567890123456789",
    "DECIMAL(38,10)": "1234567890123456789.0123456789",
}
"""Other types of numbers, with a wide value of each that leaves room for a sum, and that BIGINT
has too: a cast that fails where nobody reads it fails in DuckDB alone."""

_UNSIGNED = {
    "UTINYINT": "255", "USMALLINT": "65535", "UINTEGER": "4294967295",
    "UBIGINT": "18446744073709551615", "UHUGEINT": "340282366920938463463374607431768211455",
}  # fmt: skip
"""Those that meet themselves alone, for arithmetic fails on most of their values."""

KINDS = dict.fromkeys(_WIDTHS, "number") | {
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
    "JSON": "json",
}
"""Types that expressions are written over, by kind; any other type is a kind of its own."""

ROUNDED = "rounded"
"""The kind of floats whose last digit is not the same everywhere: equal ones may be two."""

SIMPLE = LITERALS | {kind: ["NULL", "1", "2", "0", wide] for kind, wide in _WIDTHS.items()}
SIMPLE |= {
    "VARCHAR": ["NULL", "'x'", "'xy'", "'z'", "'1'", "'é😀'"],
    "DOUBLE": ["NULL", "1.5", "0.0", "-2.25", "'-0.0'", "'nan'", "'inf'"],
    "BOOLEAN": ["NULL", "true", "false"],
    "DATE": ["NULL", "'2024-02-29'", "'2024-03-01'"],
    "TIMESTAMP": ["NULL", "'2024-02-29 12:00:00'", "'2024-03-01 00:00:00'"],
    "INTEGER[]": ["NULL", "[1, NULL]", "[2, 1, 2]", "[]", "[1, 1]"],
    "JSON": [
        "NULL",
        """'{"a": 1}'""",
        """'{"a": [2, null], "b": "x"}'""",
        "'[1, 1]'",
        "'null'",
    ],
}
RARE = {
    # DuckDB does not read an Arrow batch in which all lists of enums are empty or NULL
    kind: literals
    for kind, *literals in (VALUES | NESTED).values()
    if kind not in SIMPLE and kind != "ENUM('z', 'a')[]"
}
NESTED_KINDS = [
    kind for kind in RARE if kind[-1] == "]" or (kind.endswith(")") and "DEC" not in kind)
]
"""Types whose values have parts."""
RARE |= {kind: ["NULL", "1", "2", "0", edge] for kind, edge in _UNSIGNED.items()}
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
    """One to three tables, whose columns have many values or so few that most rows meet."""
    more = ["INTEGER", "VARCHAR", "DOUBLE", "BOOLEAN", "DECIMAL(8,2)", "DATE", "TIMESTAMP"]
    kinds = {"b": "VARCHAR", "c": chance.among(more)}
    kinds["d"] = chance.pick("INTEGER[]", "JSON") if chance.maybe(45) else chance.among(more)
    if chance.maybe(27):
        kinds["d"] = chance.among(list(RARE))
    if chance.maybe(25):
        kinds["c"] = chance.among(NESTED_KINDS)
    width = chance.pick(2, 3, 9)
    return [_table(chance, name, kinds, width) for name in "tuw"[: chance.pick(2, 1, 3)]]


def _table(chance: Chance, name: str, kinds: dict[str, str], width: int) -> Table:
    columns = {"a": chance.pick("INTEGER", "INTEGER", "BIGINT", "SMALLINT")}
    if chance.maybe(15):
        columns["a"] = chance.among(list(_WIDTHS))
    chosen = chance.several(list(kinds), 1, 3)
    columns |= {column: kinds[column] for column in sorted(chosen)}
    domains = [literals(kind)[1 : width + 1] for kind in columns.values()]
    return Table(name, columns, tuple(_history(chance, domains)))


def _history(chance: Chance, domains: list[list[str]]) -> list[Update]:
    """Rows come, go and come back; some updates cancel where they stand."""
    updates: list[Update] = []
    live: list[tuple[str, ...]] = []
    at = 0
    sizes = (0,) if chance.maybe(3) else (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14)
    for _ in range(chance.among(sizes)):
        at = min(LAST, at + chance.pick(0, 0, 1, 1, 2))
        if live and chance.maybe(35):
            row = chance.among(live)
            count = live.count(row) if chance.maybe(30) else 1
            for _ in range(count):
                live.remove(row)
            updates.append(Update(row, at, -count))
            continue
        row = tuple("NULL" if chance.maybe(15) else chance.among(domain) for domain in domains)
        if live and chance.maybe(15):
            row = chance.among(live)
        count = chance.pick(1, 1, 2, 3)
        updates.append(Update(row, at, count))
        live += [row] * count
        if chance.maybe(8):
            updates += [Update(row, at, 3), Update(row, at, -3)]
    return updates
