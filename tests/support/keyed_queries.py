"""Random joins, groups and sets over relations with keys, in which keys decide much."""

import random
from dataclasses import dataclass

from tests.support.plan_tables import KEYED

_JOINED = {
    "facts": ["f.id = {a}.fact", "f.customer = {a}.id", "f.supplier = {a}.id", "f.v = {a}.id"],
    "customers": ["f.customer = {a}.id", "f.supplier = {a}.id", "{a}.nation = f.v"],
    "suppliers": ["f.supplier = {a}.id", "f.id = {a}.nation", "f.supplier + 1 = {a}.id"],
    "nations": ["f.v = {a}.id", "f.customer = {a}.id"],
    "lines": ["f.id = {a}.fact", "f.id = {a}.fact AND {a}.line = f.v", "f.v = {a}.line"],
}


@dataclass(frozen=True)
class Keyed:
    """Writes queries."""

    chance: random.Random

    def query(self) -> str:
        """A SELECT over facts, called f, and others that its rows refer to."""
        names = self.chance.choices(
            [n for n in KEYED if n != "facts"], k=self.chance.randrange(4)
        )
        others = [(f"r{n}", name) for n, name in enumerate(names)]
        if self.chance.random() < 0.2:
            others.append(("s", "facts"))
        source, conditions = "facts f", list[str]()
        for alias, name in others:
            source, conditions = self._joined(source, conditions, alias, name)
        columns = ["f.id", "f.v", "f.customer"]
        columns += [
            f"{a}.{c}" for a, name in others if f"{name} {a}" in source for c in KEYED[name][0]
        ]
        conditions += self._filters(columns)
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return self._shown(columns, f" FROM {source}{where}")

    def _joined(
        self, source: str, conditions: list[str], alias: str, name: str
    ) -> tuple[str, list[str]]:
        on = (
            "f.id = s.id"
            if name == "facts"
            else self.chance.choice(_JOINED[name]).format(a=alias)
        )
        kind = self.chance.choice([",", ",", "JOIN", "LEFT JOIN", "SEMI"])
        if kind == "SEMI":
            word = self.chance.choice(["EXISTS", "NOT EXISTS"])
            return source, [*conditions, f"{word} (FROM {name} {alias} WHERE {on})"]
        if kind == "," and " JOIN " not in source:
            return f"{source}, {name} {alias}", [*conditions, on]
        return f"{source} {'JOIN' if kind == ',' else kind} {name} {alias} ON {on}", conditions

    def _filters(self, columns: list[str]) -> list[str]:
        numbers = [column for column in columns if not column.endswith(".name")]
        conditions = [
            f"{self.chance.choice(numbers)} {self.chance.choice(['= 1', '> 0', '<> 2'])}"
        ]
        return conditions if self.chance.random() < 0.4 else []

    def _shown(self, columns: list[str], text: str) -> str:
        some = self.chance.sample(columns, self.chance.randint(1, len(columns)))
        shown = ", ".join(f"{column} AS o{n}" for n, column in enumerate(some))
        match self.chance.randrange(5):
            case 0:
                return f"SELECT {shown}{text}"
            case 1:
                return f"SELECT DISTINCT {shown}{text}"
            case 2:
                keys = ", ".join(str(n + 1) for n in range(len(some)))
                calls = "count(*) AS n, sum(f.v) AS s, min(f.customer) AS m, count(f.v) AS c"
                return f"SELECT {shown}, {calls}{text} GROUP BY {keys}"
            case 3:
                word = self.chance.choice(["UNION", "EXCEPT", "INTERSECT", "EXCEPT ALL"])
                return f"SELECT f.id, f.v{text} {word} SELECT id, v FROM facts"
            case _:
                most = "(SELECT max(v) FROM lines l WHERE l.fact = f.id)"
                return f"SELECT {shown}, {most} AS most{text}"
