"""What of the language a query uses, told by its text, and how often that was.

A construct that no case uses, or that is refused in every case, is a defect of the generator.
"""

import re
from collections import Counter
from dataclasses import dataclass, field

_PATTERNS = {
    "inner join": r"INNER JOIN",
    "left join": r"LEFT JOIN",
    "right join": r"RIGHT JOIN",
    "full join": r"FULL JOIN",
    "semi join": r"SEMI JOIN",
    "anti join": r"ANTI JOIN",
    "cross join": r"CROSS JOIN",
    "natural join": r"NATURAL",
    "using": r"USING",
    "lateral": r"LATERAL",
    "values": r"\(VALUES",
    "generate_series": r"generate_series|range\(",
    "unnest in from": r"(?:JOIN|,) unnest",
    "unnest in select": r"SELECT (?:DISTINCT )?[^()]*unnest",
    "exists": r"EXISTS \(",
    "in": r"(?<!NOT) IN \(SELECT",
    "not in": r"NOT IN \(SELECT",
    "any": r" ANY \(",
    "all": r" ALL \(SELECT",
    "scalar subquery": r"[,=<>] \(SELECT|SELECT \(SELECT",
    "group by": r"GROUP BY",
    "group by all": r"GROUP BY ALL",
    "rollup": r"ROLLUP",
    "cube": r"CUBE",
    "grouping sets": r"GROUPING SETS",
    "having": r"HAVING",
    "filter": r"FILTER",
    "distinct aggregate": r"\(DISTINCT",
    "ordered aggregate": r"(?:list|agg|first|last|mode|array)\([^()]* ORDER BY",
    "statistics": r"covar|corr|regr_|stddev|var_|variance",
    "quantile": r"quantile|median|mad\(",
    "distinct": r"SELECT DISTINCT (?!ON)",
    "distinct on": r"DISTINCT ON",
    "limit": r"LIMIT \d+(?!\d*%)",
    "limit in percent": r"LIMIT \d+%",
    "offset": r"OFFSET",
    "union": r"UNION (?!ALL)",
    "union all": r"UNION ALL",
    "intersect": r"INTERSECT (?!ALL)",
    "intersect all": r"INTERSECT ALL",
    "except": r"EXCEPT (?!ALL)",
    "except all": r"EXCEPT ALL",
    "rank": r"rank\(\)|cume_dist",
    "row_number": r"row_number\(\) OVER|ntile",
    "lag and lead": r"lag\(|lead\(",
    "value function": r"_value\(",
    "frame of rows": r"ROWS BETWEEN",
    "frame of range": r"RANGE BETWEEN",
    "frame of groups": r"GROUPS BETWEEN",
    "exclude": r"EXCLUDE",
    "ignore nulls": r"IGNORE NULLS",
    "named window": r"WINDOW win",
    "qualify": r"QUALIFY",
    "common table": r"WITH c",
    "recursion": r"WITH RECURSIVE",
    "temporal filter": r"mz_now",
    "case": r"CASE ",
    "cast that may fail": r"\w::(?:INTEGER|DATE|BOOLEAN|TIMESTAMP|UTINYINT)",
    "division": r"10 // |10 % ",
    "lambda": r"lambda",
}  # fmt: skip
_COMPILED = {name: re.compile(pattern) for name, pattern in _PATTERNS.items()}


def constructs(query: str) -> set[str]:
    """The names of what the query uses."""
    return {name for name, pattern in _COMPILED.items() if pattern.search(query)}


@dataclass
class Coverage:
    """How many cases there were, what they used, and what became of them."""

    cases: int = 0
    undetermined: int = 0
    failed_rows: int = 0
    """Views with an error at some time."""

    used: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    def kept(self, query: str, types: set[str]) -> None:
        """A view that was maintained and compared."""
        self.cases += 1
        self.used.update(constructs(query))
        self.types.update(types)

    def turned_away(self, query: str, why: str) -> None:
        """A query that was refused at CREATE."""
        self.cases += 1
        self.refused.update(constructs(query))
        self.reasons[why] += 1

    def missing(self) -> list[str]:
        """What no view was made of."""
        return [name for name in _PATTERNS if not self.used[name]]

    def lines(self) -> list[str]:
        """The report."""
        shown = [f"{'construct':<24}{'compared':>9}{'refused':>9}"]
        shown += [f"{n:<24}{self.used[n]:>9}{self.refused[n]:>9}" for n in _PATTERNS]
        shown.append(f"types of columns: {', '.join(sorted(self.types))}")
        shown += [f"refused {count}: {why}" for why, count in self.reasons.most_common()]
        shown.append(
            f"{self.cases} cases, {self.reasons.total()} of them refused, {self.failed_rows}"
            f" with errors, {self.undetermined} where DuckDB has no one answer"
        )
        if self.missing():
            shown.append(f"never compared: {', '.join(self.missing())}")
        return shown
