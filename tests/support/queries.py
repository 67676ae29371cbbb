"""Random queries of the language, built of parts: joins, subqueries, sets, windows, limits.

A query is text and the terms it offers. Every part asks for terms in scope and for the depth
it may still use, so a part that is added here turns up in all others: in FROM, under a set
operation, inside a subquery. Outer columns are in scope of subqueries, at any depth. No
query has ties that show, so DuckDB has one answer; `grouped_queries` has those that do.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from tests.support.plan_random import Term
from tests.support.plan_tables import SMALL

T = TypeVar("T")
_KINDS = {"DOUBLE": "float", "VARCHAR": "text"}
_LITERALS = {"number": ["0", "1", "2", "3"], "float": ["0.0", "1.5"], "text": ["'x'", "'xy'"]}
_OUTER = ("LEFT", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI", "INNER", "CROSS")
_COMPARISONS = ("=", "=", "<", ">=", "<>")


@dataclass
class Queries:
    """A source of random queries over the small relations."""

    chance: random.Random
    aliases: int = 0
    outer: list[Term] = field(default_factory=list)

    def query(self, depth: int = 2) -> str:
        """A SELECT whose columns have names of their own."""
        return self.select(depth)[0]

    def select(self, depth: int) -> tuple[str, list[Term]]:
        """A SELECT and its columns by name."""
        if depth and self.chance.random() < 0.15:
            return self.sets(depth - 1)
        source, terms = self.source(depth)
        where = self.where(terms, depth)
        text = f" FROM {source}{where}"
        if self.chance.random() < 0.25:
            return self.grouped(text, terms)
        distinct = "DISTINCT " if self.chance.random() < 0.15 else ""
        outputs = [self.output(terms, depth) for _ in range(self.chance.randint(1, 3))]
        return self.shown(distinct, outputs, text)

    def sets(self, depth: int) -> tuple[str, list[Term]]:
        """Two queries under a set operation."""
        kinds = [
            self.chance.choice(["number", "text"]) for _ in range(self.chance.choice([1, 2]))
        ]
        first, columns = self.of_kinds(kinds, depth)
        second, _ = self.of_kinds(kinds, depth)
        verb = self.chance.choice(["UNION", "INTERSECT", "EXCEPT", "EXCEPT"])
        every = self.chance.choice(["", " ALL"])
        return f"({first}) {verb}{every} ({second})", columns

    def of_kinds(self, kinds: list[str], depth: int) -> tuple[str, list[Term]]:
        """A SELECT of columns of these kinds."""
        source, terms = self.source(depth)
        outputs = [self.of_kind(terms, kind) for kind in kinds]
        return self.shown("", outputs, f" FROM {source}{self.where(terms, depth)}")

    def grouped(self, text: str, terms: list[Term]) -> tuple[str, list[Term]]:
        keys = [self.chance.choice(terms) for _ in range(self.chance.randrange(3))]
        term = self.chance.choice(terms)
        calls = [Term("count(*)", "number"), Term(f"count({term.sql})", "number")]
        calls.append(Term(f"count(DISTINCT {term.sql})", "number"))
        calls.append(Term(f"{self.chance.choice(['min', 'max'])}({term.sql})", term.kind))
        chosen = self.chance.sample(calls, self.chance.randint(1, 2))
        by = " GROUP BY " + ", ".join(str(i + 1) for i in range(len(keys))) if keys else ""
        if self.chance.random() < 0.2:
            by += " HAVING count(*) > 1"
        return self.shown("", keys + chosen, text + by)

    def shown(self, distinct: str, outputs: list[Term], text: str) -> tuple[str, list[Term]]:
        self.aliases += 1
        names = [f"o{self.aliases}_{i}" for i in range(len(outputs))]
        pairs = list(zip(outputs, names, strict=True))
        listed = ", ".join(f"{output.sql} AS {name}" for output, name in pairs)
        if self.chance.random() < 0.12 and all(o.kind != "float" for o in outputs):
            # rows that tie in all columns are equal; floats may be equal and print apart
            bounds = [f"LIMIT {n}{o}" for n in (1, 2) for o in ("", " OFFSET 1")]
            text += f" ORDER BY {', '.join(names)} {self.chance.choice(bounds)}"
        return f"SELECT {distinct}{listed}{text}", [Term(n, o.kind) for o, n in pairs]

    def source(self, depth: int) -> tuple[str, list[Term]]:
        """What stands behind FROM, and the terms it offers."""
        text, terms = self.relation(depth)
        for _ in range(self.chance.choice([0, 1, 1, 1, 2])):
            pick = self.chance.random()
            if pick < 0.1 and depth:
                text, terms = self.lateral(text, terms, depth - 1)
            elif pick < 0.18:
                text, terms = self.series(text, terms)
            else:
                text, terms = self.joined(text, terms, depth)
        return text, terms

    def joined(self, text: str, terms: list[Term], depth: int) -> tuple[str, list[Term]]:
        other, offered = self.relation(depth)
        kind = self.chance.choice(_OUTER)
        if kind == "CROSS":
            return f"{text} CROSS JOIN {other}", terms + offered
        on = self.condition(terms, offered)
        joined = f"{text} {kind} JOIN {other} ON {on}"
        return joined, terms if kind in {"SEMI", "ANTI"} else terms + offered

    def condition(self, left: list[Term], right: list[Term]) -> str:
        """What connects two sides: keys, what is left beside keys, or no key at all."""
        parts = [self.link(left, right)]
        while self.chance.random() < 0.35:
            residual = [self.link(left, right), self.plain(left), self.plain(right)]
            parts.append(self.chance.choice(residual))
        return self.chance.choice([" AND ", " AND ", " AND ", " OR "]).join(parts)

    def link(self, left: list[Term], right: list[Term]) -> str:
        pairs = [(a, b) for a in left for b in right if a.kind == b.kind]
        if not pairs:
            return self.plain(left)
        one, other = self.chance.choice(pairs)
        verb = self.chance.choice(["=", "=", "=", "=", "<", "<>", "IS NOT DISTINCT FROM"])
        plus = " + 1" if one.kind == "number" and self.chance.random() < 0.15 else ""
        return f"{one.sql}{plus} {verb} {other.sql}"

    def lateral(self, text: str, terms: list[Term], depth: int) -> tuple[str, list[Term]]:
        """A subquery in FROM that sees what stands before it."""
        inner, columns = self.inside(terms, lambda: self.select(depth))
        self.aliases += 1
        alias = f"l{self.aliases}"
        offered = [Term(f"{alias}.{c.sql}", c.kind) for c in columns]
        return f"{text}, LATERAL ({inner}) {alias}", terms + offered

    def series(self, text: str, terms: list[Term]) -> tuple[str, list[Term]]:
        self.aliases += 1
        name = f"s{self.aliases}"
        term = self.of_kind(terms, "number").sql
        call = self.chance.choice([
            f"generate_series(1, {self.chance.choice(['2', term])}::INTEGER) {name}(x)",
            f"unnest([{term}, 1]) {name}(x)",
        ])  # fmt: skip
        return f"{text}, {call}", [*terms, Term(f"{name}.x", "number")]

    def relation(self, depth: int) -> tuple[str, list[Term]]:
        self.aliases += 1
        alias = f"r{self.aliases}"
        if depth and self.chance.random() < 0.25:
            # FROM does not see the outer query's columns unless it says LATERAL
            kept, self.outer = self.outer, []
            text, columns = self.select(depth - 1)
            self.outer = kept
            return f"({text}) {alias}", [Term(f"{alias}.{c.sql}", c.kind) for c in columns]
        name = self.chance.choice(list(SMALL))
        terms = [Term(f'{alias}."{c}"', _kind(t)) for c, t in SMALL[name].items()]
        return f"{name} {alias}", terms

    def where(self, terms: list[Term], depth: int) -> str:
        parts = []
        if self.outer and self.chance.random() < 0.8:
            parts.append(self.link(terms, self.outer))
        for _ in range(self.chance.choice([0, 0, 1, 1, 2])):
            parts.append(self.predicate(terms, depth))
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def predicate(self, terms: list[Term], depth: int) -> str:
        if not depth or self.chance.random() < 0.3:
            return self.plain(terms)
        test = self.tested(terms, depth - 1)
        other = f"({test} OR {self.plain(terms)})"
        return self.chance.choice([test, test, f"NOT ({test})", other])

    def tested(self, terms: list[Term], depth: int) -> str:
        """A predicate with a subquery in it."""
        term = self.chance.choice(terms)

        def of_kind() -> str:
            return self.of_kinds([term.kind], depth)[0]

        pick = self.chance.randrange(5)
        if pick == 0:
            return f"EXISTS ({self.inside(terms, lambda: self.select(depth))[0]})"
        if pick == 1:
            return (
                f"{term.sql} {self.chance.choice(_COMPARISONS)} {self.scalar(terms, term.kind)}"
            )
        if pick == 2:
            verb = self.chance.choice(_COMPARISONS)
            of = self.chance.choice(["ANY", "ALL"])
            return f"{term.sql} {verb} {of} ({self.inside(terms, of_kind)})"
        verb = self.chance.choice(["IN", "NOT IN"])
        return f"{term.sql} {verb} ({self.inside(terms, of_kind)})"

    def scalar(self, terms: list[Term], kind: str) -> str:
        """A scalar subquery: mostly an aggregate, sometimes whatever rows there are."""

        def one() -> str:
            source, inner = self.source(0)
            term = self.of_kind(inner, kind)
            calls = [f"min({term.sql})", f"max({term.sql})"]
            if kind == "number":
                calls += ["count(*)", f"count({term.sql})"]
            if self.chance.random() < 0.2:
                calls = [term.sql]
            return f"SELECT {self.chance.choice(calls)} FROM {source}{self.where(inner, 0)}"

        return f"({self.inside(terms, one)})"

    def inside(self, terms: list[Term], make: Callable[[], T]) -> T:
        """What is made where these terms are the outer query's columns."""
        kept = self.outer
        self.outer = [*kept, *terms] if self.chance.random() < 0.7 else []
        made = make()
        self.outer = kept
        return made

    def output(self, terms: list[Term], depth: int) -> Term:
        if depth and self.chance.random() < 0.2:
            kind = self.chance.choice(["number", "text"])
            return Term(self.scalar(terms, kind), kind)
        if depth and self.chance.random() < 0.15:
            term = self.chance.choice(terms)
            found = self.inside(terms, lambda: self.of_kinds([term.kind], depth - 1)[0])
            return Term(f"CASE WHEN {term.sql} IN ({found}) THEN 'yes' ELSE 'no' END", "text")
        if self.chance.random() < 0.1:
            return self.window(terms)
        term = self.chance.choice(terms)
        more = {
            "number": f"{term.sql} + 1",
            "float": f"-{term.sql}",
            "text": f"{term.sql} || 'z'",
        }
        return Term(self.chance.choice([term.sql, term.sql, more[term.kind]]), term.kind)

    def window(self, terms: list[Term]) -> Term:
        """A window function that gives peers one value."""
        one, two, three = (self.chance.choice(terms) for _ in range(3))
        by = self.chance.choice(["", f"PARTITION BY {one.sql}"])
        over = f"OVER ({by} ORDER BY {two.sql}{self.chance.choice(['', ' DESC'])})"
        ranks = [Term(f"{call}() {over}", "number") for call in ("rank", "dense_rank")]
        calls = [
            Term(f"count(*) OVER ({by})", "number"),
            Term(f"max({three.sql}) {over}", three.kind),
        ]
        return self.chance.choice(ranks + calls)

    def of_kind(self, terms: list[Term], kind: str) -> Term:
        found = [term for term in terms if term.kind == kind]
        literal = Term(self.chance.choice(_LITERALS[kind]), kind)
        return self.chance.choice(found) if found else literal

    def plain(self, terms: list[Term]) -> str:
        term = self.chance.choice(terms)
        literal = self.chance.choice(_LITERALS[term.kind])
        return self.chance.choice([
            f"{term.sql} > {literal}",
            f"{term.sql} = {literal}",
            f"{term.sql} IS NULL",
            f"{term.sql} IS NOT NULL",
            f"coalesce({term.sql}, {literal}) <= {literal}",
        ])  # fmt: skip


def _kind(type_: str) -> str:
    return _KINDS.get(type_, "number")
