"""Random histories of relations, a view over them, and DuckDB's answer at every time."""

import itertools
import random
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Literal

import duckdb
import pyarrow as pa

from streams.testing import Maintained, maintain
from streams.trace import updates as trace
from streams.trace.columns import int64
from streams.trace.exact.diffs import repeat_positions
from streams.trace.kernel.kernel import printed_type, typed
from tests.support.plan_tables import LITERALS, NESTED, VALUES, answer, as_plans_mean, carriers

POOL = {kind: literals for kind, *literals in (VALUES | NESTED).values()} | LITERALS
Literals = list[str]
History = list[tuple[Literals, int, int]]
TIMES = 5

_numbers = itertools.count()
_ended = list[str]()


@cache
def _database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def _attached(owner: object) -> duckdb.DuckDBPyConnection:
    """A connection to tables that nobody else has, for as long as `owner` is there.

    They are in a database of their own that is attached to a common one: DuckDB takes 20 ms of
    CPU to start one by itself, and a test of many small views waits for nothing else as long.
    """
    connection, name = as_plans_mean(_database().cursor()), f"tables_{next(_numbers)}"
    while _ended:  # not by a finalizer: it may run amid a statement
        connection.execute(f"DETACH {_ended.pop()}")
    connection.execute(f"ATTACH ':memory:' AS {name}")
    connection.execute(f"USE {name}")
    weakref.finalize(owner, _ended.append, name).atexit = False
    return connection


class Tables:
    """Relations that change, and DuckDB tables with their contents at a time."""

    def __init__(
        self,
        columns: dict[str, dict[str, str]],
        chance: random.Random,
        histories: dict[str, History] | None = None,
        keys: dict[str, list[str]] | None = None,
    ) -> None:
        self.columns, self.keys = columns, keys
        self.connection = _attached(self)
        self._schemas = dict[str, str]()
        self.definitions = {
            name: ", ".join(f'"{column}" {kind}' for column, kind in of.items())
            for name, of in columns.items()
        }
        self.histories = histories or {
            name: list(history(chance, list(of.values()))) for name, of in columns.items()
        }

    def _history(self) -> str:
        """The schema with all changes, each with its number, in which they are entered once.

        Many views are compared over one history.
        """
        schema, is_known = self._schema(f"history {self.histories}")
        if not is_known:
            for name in self.columns:
                self._load(name)
        return schema

    def _schema(self, key: str) -> tuple[str, bool]:
        """Go to the schema of what is told by a key; whether it was there."""
        is_known = key in self._schemas
        schema = self._schemas.setdefault(key, f"contents_{len(self._schemas)}")
        if not is_known:
            self.connection.execute(f"CREATE SCHEMA {schema}")
        self.connection.execute(f"SET schema = '{schema}'")
        return schema, is_known

    def _load(self, name: str) -> None:
        body = f"{self.definitions[name]}, _time BIGINT, _diff BIGINT, _number BIGINT"
        self.connection.execute(f'CREATE TABLE "{name}" ({body})')
        kinds = self.columns[name].values()
        # each literal with its own cast: a list of them would have one type first
        values = [
            ", ".join(
                [
                    *(f"({cell})::{kind}" for cell, kind in zip(row, kinds, strict=True)),
                    f"{at}, {diff}, {number}",
                ]
            )
            for number, (row, at, diff) in enumerate(self.histories[name])
        ]
        if values:
            rows = ", ".join(f"({row})" for row in values)
            self.connection.execute(f'INSERT INTO "{name}" VALUES {rows}')

    def maintain(
        self, query: str, chance: random.Random, engine: Literal["local", "spark"] = "local"
    ) -> Maintained:
        self.connection.execute("SET arrow_lossless_conversion = true")
        self._history()
        updates = {
            name: self.connection.sql(self._selected(name)).to_arrow_table()
            for name in self.columns
        }
        cuts = [*sorted(chance.sample(range(1, TIMES), chance.randrange(TIMES - 1))), TIMES]
        return maintain(
            query,
            self.definitions,
            updates,
            chance.choice([None, cuts]),
            engine,
            buckets=chance.choice([1, 1, 2, 3]),
            merge_factor=chance.choice([0, 1, 2, 1000]),
            keys=self.keys,
        )

    def _selected(self, name: str) -> str:
        columns = carriers(
            (column, printed_type(kind)) for column, kind in self.columns[name].items()
        )
        return f'SELECT {columns}, _time, _diff FROM "{name}"'

    def fill(self, time: int) -> None:
        """Make the tables what the relations are at a time."""
        history = self._history()
        _, is_known = self._schema(f"{time} {self.histories}")
        for name in [] if is_known else self.columns:
            self._take(name, history, time)

    def _take(self, name: str, history: str, time: int) -> None:
        """Make a table of a relation's rows at a time, out of those of its history."""
        numbers: dict[tuple[str, ...], int] = {}
        counts = Counter[int]()
        for number, (row, at, diff) in enumerate(self.histories[name]):
            if at <= time:
                counts[numbers.setdefault(tuple(row), number)] += diff
        self.connection.execute(f'CREATE TABLE "{name}" ({self.definitions[name]})')
        if there := list(counts.elements()):
            own = ", ".join(f'"{column}"' for column in self.columns[name])
            self.connection.execute(
                f'INSERT INTO "{name}" SELECT {own} FROM {history}."{name}"'
                f" JOIN (SELECT unnest({there}) AS _number) USING (_number) ORDER BY _number"
            )


def history(
    chance: random.Random,
    kinds: list[str],
    pool: Mapping[str, list[str]] = POOL,
    sizes: range = range(14),
) -> Iterator[tuple[Literals, int, int]]:
    """Rows that come and go, some at one time and twice."""
    live: list[Literals] = []
    for at in sorted(chance.choices(range(TIMES), k=chance.choice(sizes))):
        if live and chance.random() < 0.4:
            yield live.pop(chance.randrange(len(live))), at, -1
        else:
            row = [chance.choice(pool[kind]) for kind in kinds]
            count = chance.choice([1, 1, 2])
            live += [row] * count
            yield row, at, count


def compare(tables: Tables, view: Maintained, query: str, every: int = 1) -> None:
    want_types, types = None, None  # of all times: telling them is half of a small question
    for time in range(view.since, view.upper)[::-every]:
        tables.fill(time)
        try:
            want = answer(tables.connection, query, want_types)
        except (duckdb.OutOfRangeException, duckdb.ConversionException):
            continue
        assert not view.errors_at(time), (query, time)
        if types is None:
            assert view.at(time).num_rows == len(want[1])
        rows = trace.contents_at(
            view._updates, time, view._kernel
        )  # whose unions are not Arrow's
        counts = repeat_positions(int64(rows.column("diff")))
        tables.connection.register("got", pa.Table.from_batches([rows.take(pa.array(counts))]))
        casts = [
            f"{typed(f'c{i}', column.type)} AS c{i}" for i, column in enumerate(view.columns)
        ]
        actual = answer(tables.connection, f"SELECT {', '.join(casts)} FROM got", types)
        assert actual == want, (query, time)
        want_types, types = want[0], actual[0]
