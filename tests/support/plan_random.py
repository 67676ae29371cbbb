"""Random queries of the language that views may use, over the small relations."""

import random
from dataclasses import dataclass

from tests.support.plan_tables import SMALL

_NUMBERS = ("INTEGER", "SMALLINT", "BIGINT", "DECIMAL(8,2)", "DOUBLE")


@dataclass(frozen=True)
class Term:
    """An expression in scope and the kind of its type."""

    sql: str
    kind: str  # number, float or text


@dataclass
class Generator:
    chance: random.Random
    aliases: int = 0

    def query(self, depth: int = 2) -> tuple[str, list[Term]]:
        """A SELECT and its columns by name."""
        pick = self.chance.random()
        if depth and pick < 0.15:
            return self.union(depth - 1)
        source, terms, conditions = self.source(depth)
        where = conditions + self.predicates(terms, self.chance.randrange(3))
        text = f" FROM {source}" + (f" WHERE {' AND '.join(where)}" if where else "")
        if pick < 0.5:
            return self.grouped(text, terms)
        return self.plain(text, terms)

    def plain(self, text: str, terms: list[Term]) -> tuple[str, list[Term]]:
        outputs = [self.term(terms) for _ in range(self.chance.randint(1, 3))]
        distinct = "DISTINCT " if self.chance.random() < 0.25 else ""
        return self.select(distinct, outputs, text)

    def grouped(self, text: str, terms: list[Term]) -> tuple[str, list[Term]]:
        keys = [self.term(terms) for _ in range(self.chance.randrange(3))]
        calls = [self.aggregate(terms) for _ in range(self.chance.randint(0 if keys else 1, 3))]
        if keys:
            text += " GROUP BY " + ", ".join(str(i + 1) for i in range(len(keys)))
        if self.chance.random() < 0.3:
            text += f" HAVING count(*) > {self.chance.randrange(3)}"
        distinct = "DISTINCT " if self.chance.random() < 0.15 else ""
        return self.select(distinct, keys + calls, text)

    def select(self, distinct: str, outputs: list[Term], text: str) -> tuple[str, list[Term]]:
        self.aliases += 1
        names = [f"o{self.aliases}_{i}" for i in range(len(outputs))]
        shown = ", ".join(f"{o.sql} AS {n}" for o, n in zip(outputs, names, strict=True))
        columns = [Term(n, o.kind) for o, n in zip(outputs, names, strict=True)]
        return f"SELECT {distinct}{shown}{text}", columns

    def union(self, depth: int) -> tuple[str, list[Term]]:
        first, columns = self.query(depth)
        for _ in range(20):
            second, others = self.query(depth)
            if [c.kind for c in others] == [c.kind for c in columns]:
                every = "ALL " if self.chance.random() < 0.7 else ""
                return f"({first}) UNION {every}({second})", columns
        return first, columns

    def source(self, depth: int) -> tuple[str, list[Term], list[str]]:
        """What stands behind FROM, what it offers, and conditions that connect it."""
        parts, terms, conditions = [], list[Term](), list[str]()
        for _ in range(self.chance.choice([1, 1, 2, 2, 3])):
            text, offered = self.relation(depth)
            if terms:
                link = self.link(terms, offered)
                if link is None:
                    continue
                conditions.append(link)
            parts.append(text)
            terms += offered
        if len(parts) == 2 and self.chance.random() < 0.4:
            return f"{parts[0]} JOIN {parts[1]} ON {conditions[0]}", terms, []
        return ", ".join(parts), terms, conditions

    def relation(self, depth: int) -> tuple[str, list[Term]]:
        self.aliases += 1
        alias = f"r{self.aliases}"
        if depth and self.chance.random() < 0.35:
            text, columns = self.query(depth - 1)
            return f"({text}) {alias}", [Term(f"{alias}.{c.sql}", c.kind) for c in columns]
        name = self.chance.choice(list(SMALL))
        terms = [Term(f'{alias}."{c}"', _kind(t)) for c, t in SMALL[name].items()]
        return f"{name} {alias}", terms

    def link(self, left: list[Term], right: list[Term]) -> str | None:
        pairs = [(a, b) for a in left for b in right if a.kind == b.kind]
        if not pairs:
            return None
        one, other = self.chance.choice(pairs)
        operator = self.chance.choice(["=", "=", "=", "IS NOT DISTINCT FROM"])
        return f"{one.sql} {operator} {other.sql}"

    def predicates(self, terms: list[Term], count: int) -> list[str]:
        return [self.predicate(terms) for _ in range(count)]

    def predicate(self, terms: list[Term]) -> str:
        term = self.chance.choice(terms)
        other = self.chance.choice([t for t in terms if t.kind == term.kind])
        literal = {"number": "1", "float": "0.5", "text": "'xy'"}[term.kind]
        return self.chance.choice(
            [
                f"{term.sql} > {literal}",
                f"{term.sql} <> {other.sql}",
                f"{term.sql} IS NULL",
                f"({term.sql} <= {literal} OR {other.sql} IS NOT NULL)",
                f"{term.sql} = {other.sql}",
                f"coalesce({term.sql}, {literal}) >= {literal}",
            ]
        )

    def term(self, terms: list[Term]) -> Term:
        term = self.chance.choice(terms)
        more = {
            "number": [f"{term.sql} + 1", f"{term.sql} * 2", f"-({term.sql})"],
            "float": [f"{term.sql} * -1", f"{term.sql} + 0.5"],
            "text": [f"{term.sql} || 'z'", f"upper({term.sql})"],
        }[term.kind]
        return Term(self.chance.choice([term.sql] * 3 + more), term.kind)

    def aggregate(self, terms: list[Term]) -> Term:
        numbers = [t for t in terms if t.kind == "number"]
        term = self.chance.choice(terms)
        found = [Term("count(*)", "number"), Term(f"count({term.sql})", "number")]
        found += [Term(f"{f}({term.sql})", term.kind) for f in ("min", "max")]
        if numbers:
            number = self.chance.choice(numbers).sql
            found += [Term(f"sum({number})", "number"), Term(f"avg({number})", "float")]
        call = self.chance.choice(found)
        if self.chance.random() < 0.2:
            return Term(f"{call.sql} FILTER ({self.predicate(terms)})", call.kind)
        return call


def _kind(type_: str) -> str:
    if type_ == "DOUBLE":
        return "float"
    return "number" if type_ in _NUMBERS else "text"
