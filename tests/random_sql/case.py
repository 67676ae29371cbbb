"""A case: tables with their histories, a query over them, and how time is cut.

As a script it is one directive of `tests/datadriven/sql`:

    view
    function NAME (..) RETURNS ..      one line a function in Python, as behind CREATE FUNCTION
    table NAME COLUMN TYPE, ..         one line a table
    @TIME NAME +COUNT VALUE, ..        one line an update; -COUNT takes rows away
    until TIME                         the last time to look at, if it is beyond all updates
    pinned SELECT ..                   the query with its ties broken, if it has ties
    SELECT ..                          the rest is the query
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from streams.ids import CollectionId
from streams.plan.compile import Relation
from streams.plan.physical import Column
from streams.trace.kernel.kernel import Kernel
from tests.random_sql import tables as random_tables
from tests.random_sql.chance import Chance
from tests.random_sql.scalars import FUNCTIONS, declared
from tests.random_sql.selects import query as random_query
from tests.random_sql.tables import Table, Update

_UPDATE = re.compile(r"@(\d+) (\w+) ([+-]\d*) (.*)")
_HEADS = ("function ", "table ", "@", "until ", "pinned ")


@dataclass(frozen=True, kw_only=True)
class Case:
    """Everything that decides a view's history.

    `pinned` is the query that DuckDB answers. `cuts` are the uppers of the micro-batches, or
    None for one after each change; `last` is the last time to look at.
    """

    tables: tuple[Table, ...]
    query: str
    pinned: str
    last: int
    cuts: tuple[int, ...] | None = None
    buckets: int = 2
    merge_factor: int = 2
    functions: tuple[str, ...] = ()

    @property
    def first(self) -> int:
        """The time of the first change."""
        return min(
            (update.time for table in self.tables for update in table.updates), default=0
        )

    @property
    def types(self) -> set[str]:
        """The types of the tables' columns."""
        return {kind for table in self.tables for kind in table.columns.values()}

    def script(self) -> str:
        """The directive, without what comes of it."""
        lines = ["view", *(function.removeprefix("CREATE ") for function in self.functions)]
        lines += [f"table {table.name} {table.definition}" for table in self.tables]
        changes = [
            (update.time, table.name, update)
            for table in self.tables
            for update in table.updates
        ]
        for time, name, update in sorted(changes, key=lambda change: change[0]):
            lines.append(f"@{time} {name} {update.diff:+d} {', '.join(update.row)}")
        if self.last > max((time for time, *_ in changes), default=-1):
            lines.append(f"until {self.last}")
        if self.pinned != self.query:
            lines.append(f"pinned {self.pinned}")
        return "\n".join([*lines, self.query])


def parse(text: str) -> Case:
    """The case of a directive's input. A row is one literal here: `1, 'x'`."""
    lines = text.splitlines()
    defined = [line[6:].split(" ", 1) for line in lines if line.startswith("table ")]
    updates = [match.groups() for line in lines if (match := _UPDATE.fullmatch(line))]
    tables = tuple(
        Table(
            name,
            {"": columns},
            tuple(
                Update((row,), int(at), int(sign if len(sign) > 1 else f"{sign}1"))
                for at, table, sign, row in updates
                if table == name
            ),
        )
        for name, columns in defined
    )
    query = "\n".join(line for line in lines if not line.startswith(_HEADS))
    pinned = [line[7:] for line in lines if line.startswith("pinned ")]
    until = [int(line[6:]) for line in lines if line.startswith("until ")]
    last = max([*until, *(int(at) for at, *_ in updates)])
    functions = tuple(f"CREATE {line}" for line in lines if line.startswith("function "))
    return Case(
        tables=tables,
        query=query,
        pinned=(*pinned, query)[0],
        last=last,
        functions=functions,
    )


def case(chance: Chance) -> Case:
    """A random case."""
    tables = random_tables.tables(chance)
    functions = chance.several(list(FUNCTIONS), 1, 3) if chance.maybe(7) else []
    query, pinned = random_query(chance, tables, functions)
    last = random_tables.LAST + (3 if "mz_now" in query else 0)
    return Case(
        tables=tuple(tables),
        query=query,
        pinned=pinned,
        last=last,
        cuts=_cuts(chance, last),
        buckets=chance.pick(1, 2, 2, 3),
        merge_factor=chance.pick(2, 1, 0, 1000),
        functions=declared([function for function in functions if f"{function}(" in query]),
    )


def _cuts(chance: Chance, last: int) -> tuple[int, ...]:
    """The uppers: all times at once, or in some micro-batches."""
    inner: Sequence[int] = chance.several(range(1, last + 1), 0, chance.pick(0, 1, 2, 4, 4))
    return (*sorted(inner), last + 1)


def catalog(drawn: Case, kernel: Kernel) -> dict[str, Relation]:
    """The tables of a case as the binder knows them."""
    return {
        table.name: Relation(
            CollectionId(table.name),
            tuple(Column(*column) for column in kernel.columns(table.definition)),
        )
        for table in drawn.tables
    }


def has_unions(drawn: Case) -> bool:
    """Whether values in it are unions, which a plan carries as structs, and DuckDB does not."""
    texts = [drawn.query, *(table.definition for table in drawn.tables)]
    return any(word in text for text in texts for word in ("UNION(", "union_"))


def spans_times(drawn: Case) -> bool:
    """Whether the query has no meaning over one state alone, as DuckDB has it."""
    return any(word in drawn.query for word in ("RECURSIVE", "mz_now"))
