"""Random queries over groups: aggregates, grouping sets, top-k and windows.

Each comes with its oracle: the same query, with the ties broken that it leaves open, so that
DuckDB has one answer (rule 39). Rows of `t` have the columns k, n, m, s, b and d; the whole row
in the order of the columns that a query reads is what breaks ties.
"""

import random
from dataclasses import dataclass

TABLE = {
    "k": "INTEGER",
    "n": "BIGINT",
    "m": "SMALLINT",
    "s": "VARCHAR",
    "b": "BOOLEAN",
    "d": "DECIMAL(8,2)",
}
_NUMBERS = ("n", "m", "d")
_ROW = ", ".join(f"{column} NULLS LAST" for column in TABLE)
_NUMBERED = f"(SELECT *, row_number() OVER (PARTITION BY {', '.join(TABLE)}) AS i FROM t)"
"""The rows of `t`, equal ones told apart, so that all calls see them in one order."""


@dataclass(frozen=True)
class Query:
    """A query as a user writes it, and its oracle."""

    text: str
    oracle: str


@dataclass
class Grouped:
    """A generator; `chance` decides everything."""

    chance: random.Random

    def query(self) -> Query:
        return self.chance.choice([self.grouped, self.top, self.windows, self.windows])()

    def pick(self, *options: str) -> str:
        return self.chance.choice(options)

    def column(self) -> str:
        return self.pick(*TABLE)

    def number(self) -> str:
        return self.pick(*_NUMBERS)

    def order(self) -> str:
        """A term of an ORDER BY."""
        direction = self.pick("", "", " DESC", " NULLS FIRST", " DESC NULLS LAST")
        return f"{self.pick(self.column(), f'{self.number()} % 3', 'length(s)')}{direction}"

    def predicate(self) -> str:
        return self.pick("b", "n > 1", "s <> 'x'", "m IS NOT NULL", "k = 1 OR d > 0")

    # Aggregates

    def grouped(self) -> Query:
        keys = self.chance.sample(["k", "s", "b"], self.chance.randrange(3))
        calls = [self.aggregate() for _ in range(self.chance.randint(1, 4))]
        by = self.keys(keys)
        having = self.pick("", "", " HAVING count(*) > 1", " HAVING max(n) > 0")
        shown = [f"grouping({', '.join(keys)})"] if keys and self.chance.random() < 0.4 else []

        def text(which: int) -> str:
            columns = [*keys, *shown, *(call[which] for call in calls)]
            named = ", ".join(f"{c} AS c{i}" for i, c in enumerate(columns))
            return f"SELECT {named} FROM t{by}{having}"

        return Query(text(0), text(1))

    def keys(self, keys: list[str]) -> str:
        if not keys:
            return ""
        listed = ", ".join(keys)
        sets = [f"({listed})", "()", f"({keys[0]})", f"({keys[-1]})"]
        some = ", ".join(self.chance.sample(sets, self.chance.randint(1, 4)))
        return " GROUP BY " + self.pick(
            listed, listed, f"ROLLUP ({listed})", f"CUBE ({listed})", f"GROUPING SETS ({some})"
        )

    def aggregate(self) -> tuple[str, str]:
        """A call, and the same with its ties broken."""
        where = f" FILTER (WHERE {self.predicate()})" if self.chance.random() < 0.3 else ""
        call = self.chance.choice([self.plain, self.distinct, self.ordered, self.extreme])()
        return call[0] + where, call[1] + where

    def plain(self) -> tuple[str, str]:
        n = self.number()
        quantile = self.pick("0.5", "0.25", "[0.1, 0.9]")
        text = self.pick(
            "count(*)", f"count({self.column()})", f"sum({n})", f"avg({n})", "count_if(b)",
            "bool_and(b)", "bool_or(b)", f"min({self.column()})", f"max({self.column()})",
            f"median({n})", f"quantile_cont({n}, {quantile})", f"quantile_disc(s, {quantile})",
            "bit_and(n)", "bit_or(m)", "bit_xor(n)", f"histogram({self.column()})",
            f"min({n}, 2)", "max(s, 2)", "mad(n)", "approx_count_distinct(s)",
            "regr_count(n, m)",
        )  # fmt: skip
        return text, text

    def distinct(self) -> tuple[str, str]:
        column = self.column()
        text = self.pick(
            f"count(DISTINCT {column})", f"sum(DISTINCT {self.number()})",
            f"avg(DISTINCT {self.number()})", f"max(DISTINCT {column})",
            f"list(DISTINCT {column} ORDER BY {column})",
            "string_agg(DISTINCT s, '-' ORDER BY s DESC)", "median(DISTINCT n)",
        )  # fmt: skip
        return text, text

    def ordered(self) -> tuple[str, str]:
        """An aggregate that minds the order in which rows come."""
        column, order = self.column(), self.pick("", self.order(), f"{self.order()}, m")
        start, end = self.pick(
            f"list({column}|)", f"array_agg({column}|)", f"first({column}|)",
            f"last({column}|)", f"mode({column}|)", "product(m|)",
        ).replace("product(m", f"product({self.pick('m', 'n')}").split("|")  # fmt: skip
        if self.chance.random() < 0.3:
            column, start, end = "s", "string_agg(s, '|'", ")"
        inside = start.partition("(")[2].partition(",")[0]
        mine = f" ORDER BY {order}" if order else ""
        pinned = f" ORDER BY {order}, {inside}" if order else f" ORDER BY {inside}"
        return f"{start}{mine}{end}", f"{start}{pinned}{end}"

    def extreme(self) -> tuple[str, str]:
        one, by = self.column(), self.number()
        function = self.pick("arg_min", "arg_max", "min_by", "max_by", "any_value")
        if function == "any_value":
            return f"any_value({one})", f"any_value({one} ORDER BY {one})"
        return f"{function}({one}, {by})", f"{function}({one}, {by} ORDER BY {one}, {by})"

    # Top-k

    def top(self) -> Query:
        order, count = self.order(), self.chance.randrange(4)
        where = self.pick("", "", f" WHERE {self.predicate()}")
        match self.chance.randrange(4):
            case 0:
                offset = self.pick("", f" OFFSET {self.chance.randrange(3)}")
                limit = self.pick(f" LIMIT {count}", f" LIMIT {count}", f" LIMIT {count}0%", "")
                end = f"{limit}{offset}"
                return self.tied(f"SELECT * FROM t{where} ORDER BY {order}|{end}")
            case 1:
                key = self.column()
                return self.tied(
                    f"SELECT DISTINCT ON ({key}) * FROM t{where} ORDER BY {key}, {order}|"
                )
            case 2:
                place = f"row_number() OVER (PARTITION BY {self.column()} ORDER BY {order}|)"
                return self.tied(f"SELECT *, {place} AS r FROM t{where} QUALIFY r <= {count}")
            case _:
                place = f"row_number() OVER (PARTITION BY {self.column()} ORDER BY {order}|)"
                compared = self.pick("= 1", "< 3", f"<= {count}", "BETWEEN 2 AND 3", "> 1")
                inner = f"SELECT *, {place} AS r FROM t{where}"
                return self.tied(f"SELECT k, n, m, s, b, d FROM ({inner}) WHERE r {compared}")

    def tied(self, text: str) -> Query:
        return Query(text.replace("|", ""), text.replace("|", f", {_ROW}"))

    # Windows

    def windows(self) -> Query:
        by, kinds = self.partition(), [self.placed, self.ranked, self.rows, self.peers]
        calls = [self.chance.choice(kinds)(by) for _ in range(self.chance.randint(1, 3))]
        if self.chance.random() < 0.3:
            calls.append(self.ranked(self.partition()))
        qualify = self.pick("", "", " QUALIFY w0 IS NOT NULL")

        def text(which: int, source: str) -> str:
            named = ", ".join(f"{call[which]} AS w{i}" for i, call in enumerate(calls))
            return f"SELECT k, n, m, s, b, d, {named} FROM {source}{qualify}"

        return Query(text(0, "t"), text(1, _NUMBERED).replace(_ROW, f"{_ROW}, i"))

    def partition(self) -> str:
        return self.pick("", f"PARTITION BY {self.column()} ", "PARTITION BY b, k % 2 ")

    def placed(self, by: str) -> tuple[str, str]:
        """By the place of a row: ties are broken by the whole row."""
        column = self.column()
        nulls = self.pick("", "", " IGNORE NULLS")
        call = self.pick(
            "row_number()", "ntile(3)", f"lag({column}{nulls})", f"lead({column}, 2{nulls})",
            f"lag(n, 1, -1{nulls})",
        )  # fmt: skip
        order = self.order()
        return (
            f"{call} OVER ({by}ORDER BY {order})",
            f"{call} OVER ({by}ORDER BY {order}, {_ROW})",
        )

    def ranked(self, by: str) -> tuple[str, str]:
        """By peers: no tie shows."""
        call = self.pick("rank()", "dense_rank()", "percent_rank()", "cume_dist()")
        text = f"{call} OVER ({by}ORDER BY {self.order()})"
        return text, text

    def rows(self, by: str) -> tuple[str, str]:
        """A frame of rows: which rows are in it depends on how ties are broken."""
        call, order = self.framed(), self.order()
        start = self.pick("UNBOUNDED PRECEDING", "2 PRECEDING", "1 PRECEDING", "CURRENT ROW")
        end = self.pick("CURRENT ROW", "1 FOLLOWING", "UNBOUNDED FOLLOWING")
        exclude = self.pick("", "", " EXCLUDE CURRENT ROW")
        frame = f"ROWS BETWEEN {start} AND {end}{exclude}"
        return (
            f"{call} OVER ({by}ORDER BY {order} {frame})",
            f"{call} OVER ({by}ORDER BY {order}, {_ROW} {frame})",
        )

    def framed(self) -> str:
        """A function of a frame that minds the order in it, or not."""
        column = self.column()
        where = f" FILTER (WHERE {self.predicate()})" if self.chance.random() < 0.3 else ""
        values = self.pick(
            f"first_value({column})",
            f"last_value({column} IGNORE NULLS)",
            f"nth_value({column}, 2)",
        )
        call = self.pick(
            f"sum({self.number()})", "count(*)", f"min({column})", f"max({column})", "avg(n)",
            f"count(DISTINCT {column})", "bool_or(b)", f"list({column})", "string_agg(s, '')",
            "median(n)",
        )  # fmt: skip
        return self.pick(values, call + where, call + where)

    def peers(self, by: str) -> tuple[str, str]:
        """A frame of peers; a function that minds the order inside it is given one."""
        column, order = self.column(), self.order()
        start = self.pick("UNBOUNDED PRECEDING", "1 PRECEDING", "CURRENT ROW")
        exclude = self.pick("", "", " EXCLUDE TIES", " EXCLUDE GROUP", " EXCLUDE CURRENT ROW")
        frame = f"GROUPS BETWEEN {start} AND 1 FOLLOWING{exclude}"
        if self.chance.random() < 0.3:
            order = f"{self.pick('n', 'm', 'd')} {self.pick('', 'DESC')}"
            frame = f"RANGE BETWEEN 1 PRECEDING AND {self.pick('CURRENT ROW', '2 FOLLOWING')}"
        elif self.chance.random() < 0.4:
            frame = ""
        over = f"OVER ({by}ORDER BY {order} {frame})"
        blind = self.pick(f"sum({self.number()})", "count(*)", f"max({column})", "avg(d)",
                          f"count(DISTINCT {column})")  # fmt: skip
        minding = self.pick("first_value", "last_value", "list")
        if self.chance.random() < 0.5:
            return f"{blind} {over}", f"{blind} {over}"
        return (
            f"{minding}({column}) {over}",
            f"{minding}({column} ORDER BY {order}, {_ROW}) {over}",
        )
