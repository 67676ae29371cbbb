"""What of the language a query uses, told by its text, and how often that was.

A construct that no case uses, or that is refused in every case, is a defect of the generator.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

_PATTERNS = {
    "inner join": r"INNER JOIN",
    "left join": r"LEFT JOIN",
    "right join": r"RIGHT JOIN",
    "full join": r"FULL JOIN",
    "semi join": r"SEMI JOIN",
    "anti join": r"ANTI JOIN",
    "cross join": r"CROSS JOIN",
    "asof join": r"ASOF JOIN",
    "asof left join": r"ASOF LEFT JOIN",
    "star": r"SELECT (?:DISTINCT )?\*",
    "names again": r"AS (o\d+_\d+)\b.* AS \1\b",
    "union by name": r"BY NAME",
    "cast of nested values": r"(?:::|AS )(?:\w+\[|STRUCT|MAP|UNION)",
    "parts of nested values": r"list_transform|\[1\]|\.[stnlxu]\b|union_tag",
    "packed values": r"\{'k'|row\(|union_value\(k",
    "natural join": r"NATURAL",
    "using": r"USING",
    "no equality": r" JOIN (?:\w+ ){2}ON \S+ (?:<|<>|>=) \S+(?! AND)",
    "lateral": r"LATERAL",
    "first rows of each": r"LATERAL \(SELECT .* LIMIT",
    "values": r"\(VALUES",
    "generate_series": r"generate_series|range\(",
    "unnest in from": r"(?:JOIN|,) unnest",
    "ordinality": r"WITH ORDINALITY",
    "json nodes": r"json_each",
    "pivot": r" PIVOT",
    "unpivot": r"UNPIVOT",
    "unnest in select": r"SELECT (?:DISTINCT )?[^()]*unnest",
    "exists": r"EXISTS \(",
    "in": r"(?<!NOT) IN \(SELECT",
    "not in": r"NOT IN \(SELECT",
    "any": r" ANY \(",
    "all": r" ALL \(SELECT",
    "scalar subquery": r"[,=<>] \(SELECT|SELECT \(SELECT",
    "several rows for a value": r"[,=<>] \(SELECT \w+\.\w+ FROM",
    "group by": r"GROUP BY",
    "global aggregate": r"SELECT (?:count|sum|avg|min|max|list)\((?:(?!GROUP|OVER|SELECT).)*$",
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
    "mode": r"mode\(",
    "string_agg": r"string_agg\(",
    "list or array_agg": r"(?<!to_json\()(?:list|array_agg)\(",
    "json aggregate": r"to_json\(list\(",
    "arg_min and arg_max": r"arg_m|m.._by",
    "booleans of a group": r"bool_and|bool_or",
    "average": r"avg\(",
    "min and max": r"(?:min|max)\(",
    "count": r"count\(",
    "sum": r"sum\(",
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
    "mutual recursion": r"MUTUALLY",
    "python function": r"tripled\(|known\(|beside\(",
    "json function": r"json_\w+\(|->",
    "temporal filter": r"mz_now",
    "case": r"CASE ",
    "cast that may fail": r"\w::(?:INTEGER|DATE|BOOLEAN|TIMESTAMP|UTINYINT)",
    "division": r"10 // |10 % ",
    "lambda": r"lambda",
}  # fmt: skip
NAMES = (*_PATTERNS, "correlated")
_COMPILED = {name: re.compile(pattern) for name, pattern in _PATTERNS.items()}


def constructs(query: str) -> set[str]:
    """The names of what the query uses."""
    names = {name for name, pattern in _COMPILED.items() if pattern.search(query)}
    return names | ({"correlated"} if any(map(_sees_others, _subqueries(query))) else set())


def _subqueries(query: str) -> Iterator[str]:
    for match in re.finditer(r"\(SELECT", query):
        depth = 0
        for place in range(match.start(), len(query)):
            depth += {"(": 1, ")": -1}.get(query[place], 0)
            if not depth:
                yield query[match.start() : place]
                break


def _sees_others(subquery: str) -> bool:
    read = set(re.findall(r"\b([a-z]\d+)\.", subquery))
    return bool(read - set(re.findall(r"\b([a-z]\d+)\b(?!\.)", subquery)))


@dataclass
class Coverage:
    """How many cases there were, what they used, and what became of them."""

    cases: int = 0
    undetermined: int = 0
    failed_rows: int = 0
    """Views with an error at some time."""

    with_rows: int = 0
    """Views that hold a row at some time."""

    changing: int = 0
    """Views whose contents are not the same at all times."""

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

    def rare(self) -> list[str]:
        """What fewer than one view in two hundred was made of."""
        return [name for name in NAMES if self.used[name] * 200 < self.cases]

    def lines(self) -> list[str]:
        """The report."""
        shown = [f"{'construct':<24}{'compared':>9}{'refused':>9}"]
        shown += [f"{n:<24}{self.used[n]:>9}{self.refused[n]:>9}" for n in NAMES]
        types = (f"{kind} {count}" for kind, count in sorted(self.types.items()))
        shown.append(f"types of columns: {', '.join(types)}")
        shown += [f"refused {count}: {why}" for why, count in self.reasons.most_common()]
        shown.append(
            f"{self.cases} cases, {self.reasons.total()} of them refused, {self.failed_rows}"
            f" with errors, {self.undetermined} where DuckDB has no one answer"
        )
        shown.append(f"{self.with_rows} with rows at some time, {self.changing} that change")
        if self.rare():
            shown.append(f"rarely compared: {', '.join(self.rare())}")
        return shown
