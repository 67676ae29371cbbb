"""What the parts of a query share while it is written.

A query is one text for two readers: what stands between ⟦ and ⟧ breaks ties. The view's query
is without it (`asked`), the one that DuckDB answers has it (`pinned`), so that DuckDB has one
answer (rule 39). Inside other queries both have it: columns that nobody reads are pruned there,
and ties are broken by what is left.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.random_sql.chance import Chance
from tests.random_sql.tables import KINDS, Table, Term

Select = tuple[str, list[Term]]
"""A query's text and its columns."""

From = tuple[str, list[Term]]
"""What stands behind FROM, and the terms it offers."""


def asked(text: str) -> str:
    """The query as a user writes it."""
    return re.sub("⟦[^⟦⟧]*⟧", "", text)


def pinned(text: str) -> str:
    """The query with its ties broken."""
    return re.sub("[⟦⟧]", "", text)


@dataclass
class Writer:
    """A query on its way: where its choices come from, and what is in scope."""

    chance: Chance
    tables: list[Table]
    write: Callable[["Writer", int], Select]
    """Writes a SELECT of a depth; its columns have names of their own."""

    fails: bool = False
    """Whether expressions may fail."""

    functions: list[str] = field(default_factory=list)
    """Functions in Python that expressions may call."""

    outer: list[Term] = field(default_factory=list)
    named: dict[str, list[Term]] = field(default_factory=dict)
    """Common tables in scope."""

    aliases: int = 0
    inner: int = 0
    """How many queries are around the one that is written."""

    def alias(self, letter: str) -> str:
        self.aliases += 1
        return f"{letter}{self.aliases}"

    def nested(self, depth: int) -> Select:
        """A SELECT that becomes part of another."""
        with self.within():
            text, columns = self.write(self, depth)
        return pinned(text), columns

    @contextmanager
    def within(self, outer: list[Term] | None = None) -> Iterator[None]:
        """Write an inner query; `outer` are the columns it sees of those around it."""
        outer_tables = self.outer
        self.outer, self.inner = outer or [], self.inner + 1
        try:
            yield
        finally:
            self.outer, self.inner = outer_tables, self.inner - 1


def columns_of(table: Table, alias: str) -> list[Term]:
    return [
        Term(f"{alias}.{name}", KINDS.get(kind, kind)) for name, kind in table.columns.items()
    ]


def shown(writer: Writer, outputs: list[Term], unique: bool = False) -> Select:
    """A select list, and its columns by the names that another query gives them.

    Names may repeat, unless they have to be `unique`, and a column may keep the one it has.
    """
    chance, prefix = writer.chance, writer.alias("o")
    names = [f"{prefix}_{i}" for i in range(len(outputs))]
    listed = ", ".join(f"{o.sql} AS {n}" for o, n in zip(outputs, names, strict=True))
    if len(outputs) > 1 and not unique and chance.maybe(20):
        is_bare = chance.maybe(50) and all(re.fullmatch(r"\w+\.\w+", o.sql) for o in outputs)
        again = [chance.pick(names[0], names[0], names[0].upper()) for _ in names]
        written = [o.sql.rpartition(".")[2] for o in outputs] if is_bare else again
        query = told_apart(written)
        if query:
            return ", ".join(
                o.sql if is_bare else f"{o.sql} AS {n}"
                for o, n in zip(outputs, written, strict=True)
            ), [Term(n, o.kind) for o, n in zip(outputs, query, strict=True)]
    return listed, [Term(n, o.kind) for o, n in zip(outputs, names, strict=True)]


def told_apart(names: list[str]) -> list[str]:
    """The names of a subquery's columns: `a`, `a_1`; none if such a name is there already."""
    seen = Counter[str]()
    outputs = []
    for name in names:
        before = seen[name.lower()]
        outputs.append(f"{name}_{before}" if before else name)
        seen[name.lower()] += 1
    return outputs if len({name.lower() for name in outputs}) == len(outputs) else []
