"""A dataflow's levels, simulated: every node on its own bucket's rows, exchanges by hash.

This is no engine: it computes one state from scratch with DuckDB. What it proves is the
planner's claim about where rows lie. Rows of the imports start on arbitrary buckets; the hash
is that of the key's text, so that two equal keys with different bits part ways.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from streams.ids import CollectionId
from streams.plan.physical import (
    MARKED,
    Aggregate,
    Arrange,
    Asof,
    Constant,
    Dataflow,
    Distinct,
    EmitOnClose,
    Groupwise,
    Join,
    Linear,
    Lookup,
    Loop,
    Negate,
    Node,
    Reduce,
    Rule,
    Source,
    Temporal,
    Threshold,
    TopK,
    Union,
    Unnest,
    Upsert,
    inputs,
)

BUCKETS = 3
KEYLESS = "'all'"


@dataclass
class Simulation:
    dataflow: Dataflow
    names: Mapping[CollectionId, str]  # collection -> table
    chance: random.Random
    steps: dict[str, str] = field(default_factory=dict)

    def run(self) -> str:
        """A query for the output's rows, over all buckets."""
        for number, node in enumerate(self.dataflow.nodes):
            self._place(number, node)
        last = len(self.dataflow.nodes) - 1
        parts = [f"SELECT * FROM n{last}_{b}" for b in range(BUCKETS)]
        steps = ", ".join(f"{name} AS MATERIALIZED ({q})" for name, q in self.steps.items())
        return f"WITH {steps} {' UNION ALL '.join(parts)}"

    def _place(self, number: int, node: Node) -> None:
        if isinstance(node, Source):
            return self._source(number, node)
        width = len(self.dataflow.types[number])
        ports = [
            self._port(number, child, keys)
            for child, keys in zip(inputs(node), _keys(node, width), strict=True)
        ]
        for bucket in range(BUCKETS):
            tables = [f"{port}_{bucket}" for port in ports]
            if isinstance(node, Lookup):
                query = self._lookup(node, tables, width)
            else:
                query = _query(node, tables, bucket, width)
            shown = ", ".join(
                f"CAST(c{i} AS {type_}) AS c{i}"
                for i, type_ in enumerate(self.dataflow.types[number])
            )
            names = ", ".join(f"c{i}" for i in range(width))
            self._create(f"n{number}_{bucket}", f"SELECT {shown} FROM ({query}) AS q({names})")
        return None

    def _source(self, number: int, node: Source) -> None:
        part = self.dataflow.imports[node.index]
        shown = ", ".join(f'"{c.name}" AS c{i}' for i, c in enumerate(part.columns))
        table = self.names[part.collection]
        salt = self.chance.randrange(10**6)
        for bucket in range(BUCKETS):
            numbered = f'SELECT *, row_number() OVER () AS _row FROM "{table}"'
            where = f"hash(_row + {salt}) % {BUCKETS} = {bucket}"
            self._create(
                f"n{number}_{bucket}", f"SELECT {shown} FROM ({numbered}) WHERE {where}"
            )

    def _lookup(self, node: Lookup, tables: list[str], width: int) -> str:
        """At one time: what came before it is nothing."""
        keeper = self.dataflow.nodes[node.arranged]
        assert isinstance(keeper, Arrange)
        on = _on(node.keys, keeper.keys, keeper.null_equal)
        sides = f"{tables[0]} l JOIN {tables[1]} r ON {on}"
        names = ", ".join(f"c{i}" for i in range(width))
        joined = f"(SELECT l.*, r.* FROM {sides}) AS p({names})"
        return f"SELECT * FROM {joined} WHERE {not node.strict}"

    def _port(self, number: int, child: int, keys: tuple[int, ...] | None) -> str:
        """What arrives from the child: moved if the level rises, in place if it does not."""
        levels = self.dataflow.levels
        assert levels[child] <= levels[number], "levels never fall along an edge"
        if levels[child] == levels[number] or keys is None:
            return f"n{child}"
        name = f"x{number}_{child}_{self.chance.randrange(10**9)}"
        everything = " UNION ALL ".join(f"SELECT * FROM n{child}_{b}" for b in range(BUCKETS))
        text = ", ".join(f"CAST(c{key} AS VARCHAR)" for key in keys) or KEYLESS
        for bucket in range(BUCKETS):
            where = f"hash({text}) % {BUCKETS} = {bucket}"
            self._create(f"{name}_{bucket}", f"SELECT * FROM ({everything}) WHERE {where}")
        return name

    def _create(self, table: str, query: str) -> None:
        self.steps[table] = query


def _keys(node: Node, width: int) -> list[tuple[int, ...] | None]:
    match node:
        case Join() | Asof():
            return [node.left_keys, node.right_keys]
        case Lookup():
            return [node.keys, None]  # the state is where the arrangement keeps it
        case Reduce():
            return [node.keys]
        case Threshold():
            return [node.keys] * len(node.inputs)
        case Groupwise() | TopK() | Arrange():
            return [node.keys]
        case Distinct():
            return [tuple(range(width))]
        case _:
            return [None for _ in inputs(node)]


def _query(node: Node, tables: list[str], bucket: int, width: int) -> str:
    match node:
        case Constant():
            return f"SELECT * FROM ({node.sql}) WHERE {bucket} = {_BORN}"
        case Linear():
            shown = ", ".join(f"{e.sql} AS c{i}" for i, e in enumerate(node.outputs))
            where = " AND ".join(e.sql for e in node.predicates) or "true"
            return f"SELECT {shown} FROM {tables[0]} WHERE {where}"
        case Join():
            on = _on(node.left_keys, node.right_keys, node.null_equal)
            sides = f"{tables[0]} l JOIN {tables[1]} r ON {on or 'true'}"
            judged = " AND ".join(e.sql for e in node.residual) or "true"
            names = ", ".join(f"c{i}" for i in range(width))
            return f"SELECT * FROM (SELECT l.*, r.* FROM {sides}) AS p({names}) WHERE {judged}"
        case Asof():
            return _asof(node, tables, width)
        case Reduce():
            return _reduce(node, tables[0], bucket)
        case Groupwise():
            return _groupwise(node, tables[0])
        case TopK():
            return _top(node, tables[0])
        case Distinct():
            return f"SELECT DISTINCT * FROM {tables[0]}"
        case Threshold():
            return _threshold(node, tables, width)
        case Unnest():
            lists = ", ".join(f"unnest(c{at})" for at in node.lists)
            return f"SELECT *, {lists} FROM {tables[0]}"
        case Union():
            return " UNION ALL ".join(f"SELECT * FROM {table}" for table in tables)
        case Negate():  # as long as there is nothing to take back
            return f"SELECT * FROM {tables[0]} WHERE error('rows of a Negate')::BOOLEAN"
        case Arrange():
            return f"SELECT * FROM {tables[0]}"
        case Source() | Upsert() | Temporal() | EmitOnClose() | Loop() | Lookup():
            raise AssertionError(node)


def _asof(node: Asof, tables: list[str], width: int) -> str:
    on = _on(node.left_keys, node.right_keys, node.null_equal)
    point, start, end = (f"({key})" for key in node.sorts)
    ends = ("<=", "<") if node.closed else ("<", "<=")
    left_side = f"SELECT *, {point} AS point FROM {tables[0]} WHERE c{node.point} IS NOT NULL"
    right = (
        f"SELECT *, {start} AS s, {end} AS e FROM {tables[1]} WHERE c{node.start} IS NOT NULL"
    )
    within = f"s {ends[0]} point AND point {ends[1]} e AND {on or 'true'}"
    shown = f"l.* EXCLUDE (point), r.* EXCLUDE (s, e) REPLACE (NULL AS c{node.end})"
    names = ", ".join(f"c{i}" for i in range(width))
    joined = f"SELECT {shown} FROM ({left_side}) l JOIN ({right}) r ON {within}"
    return f"SELECT * FROM ({joined}) AS p({names})"


def _on(left: tuple[int, ...], right: tuple[int, ...], null_equal: tuple[bool, ...]) -> str:
    return " AND ".join(
        f"l.c{a} {'IS NOT DISTINCT FROM' if null else '='} r.c{b}"
        for a, b, null in zip(left, right, null_equal, strict=True)
    )


_BORN = f"hash({KEYLESS}) % {BUCKETS}"


def _threshold(node: Threshold, tables: list[str], width: int) -> str:
    same = " AND ".join(
        f"l.c{i} IS NOT DISTINCT FROM r.c{i}" for i in range(width - (node.rule in MARKED))
    )

    def found(table: str) -> str:
        return f"EXISTS (FROM {table} r WHERE {same})"

    def times(table: str) -> str:
        return f"(SELECT count(*) FROM {table} r WHERE {same})"

    match node.rule:
        case Rule.WITH:
            return f"SELECT * FROM {tables[0]} l WHERE {found(tables[1])}"
        case Rule.SINGLE:
            mark = f"CASE WHEN NOT {found(tables[1])} THEN false END"
            several = f"{times(tables[1])} > {times(tables[0])}"
            condition = f"NOT {found(tables[1])} OR {several}"
            return f"SELECT *, {mark} FROM {tables[0]} l WHERE {condition}"
        case Rule.WITHOUT:
            return f"SELECT * FROM {tables[0]} l WHERE NOT {found(tables[1])}"
        case Rule.MARK:
            unknown = found(tables[2]) if len(tables) > 2 else "false"
            is_in_second = found(tables[1])
            mark = f"CASE WHEN {is_in_second} THEN true WHEN {unknown} THEN NULL ELSE false END"
            return f"SELECT *, {mark} FROM {tables[0]} l"
        case _:
            return f"FROM {tables[0]} {node.rule.upper()} FROM {tables[1]}"


def _reduce(node: Reduce, table: str, bucket: int) -> str:
    calls = list(map(_call, node.aggregates))
    keys = [f"c{key}" for key in node.keys]
    text = f"SELECT {', '.join(keys + calls)} FROM {table}"
    if keys:
        return f"{text} GROUP BY {', '.join(keys)}"
    # One bucket has all rows; if none has, one emits the row of the empty input.
    here = f"(SELECT count(*) FROM {table}) > 0"
    return f"{text} HAVING {here} OR ({bucket} = {_BORN} AND {_nowhere(table)})"


def _call(call: Aggregate) -> str:
    if call.sql:
        return call.sql
    columns = ", ".join(f"c{c}" for c in (call.argument, call.other) if c is not None)
    share = f", {call.share}" if call.share else ""
    return f"{call.function}({'DISTINCT ' if call.distinct else ''}{columns or '*'}{share})"


def _groupwise(node: Groupwise, table: str) -> str:
    keys = ", ".join(f"c{key}" for key in node.keys) or "1"
    numbers = f"dense_rank() OVER (ORDER BY {keys}) AS p, row_number() OVER () AS i"
    for number in range(len(node.reach.before) if node.reach else 0):
        numbers += f", 0 AS b{number}"  # before the whole partition lies nothing
    numbered = f"SELECT *, {numbers} FROM {table}"
    shown = ", ".join(f"{e.sql} AS c{i}" for i, e in enumerate(node.outputs))
    where = f" QUALIFY {node.condition.sql}" if node.condition else ""
    return f"SELECT {shown} FROM ({numbered}){where}"


def _top(node: TopK, table: str) -> str:
    keys = ", ".join(f"c{key}" for key in node.keys) or "1"
    order = f"ORDER BY create_sort_key({node.order})"
    place = f"row_number() OVER (PARTITION BY {keys} {order})"
    return f"SELECT * FROM {table} QUALIFY {place} BETWEEN {node.offset + 1} AND {node.upto}"


def _nowhere(table: str) -> str:
    name = table.rpartition("_")[0]
    return " AND ".join(f"(SELECT count(*) FROM {name}_{b}) = 0" for b in range(BUCKETS))
