"""Run a view in process and look at it at every time.

    >>> import pyarrow as pa
    >>> from streams.testing import maintain
    >>> orders = pa.table({
    ...     "customer": ["ann", "bob", "ann", "bob"],
    ...     "amount": [10, 20, 5, 20],
    ...     "_time": [1, 1, 2, 3],
    ...     "_diff": [1, 1, 1, -1],
    ... })
    >>> view = maintain(
    ...     "SELECT customer, sum(amount)::BIGINT AS total FROM orders GROUP BY customer",
    ...     tables={"orders": "customer VARCHAR, amount BIGINT"},
    ...     updates={"orders": orders},
    ... )
    >>> sorted(view.at(1).to_pylist(), key=str)
    [{'customer': 'ann', 'total': 10}, {'customer': 'bob', 'total': 20}]
    >>> sorted(view.at(3).to_pylist(), key=str)
    [{'customer': 'ann', 'total': 15}]
    >>> view.updates.num_rows
    5
    >>> view.errors_at(3)
    []

The view is compiled and stepped by the functions that production runs, over real run files in
a temporary directory, with an exchange between two buckets: in this process, or with
`engine="spark"` in Spark's workers.
"""

import threading
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from streams.errors import InvalidUsage
from streams.ids import CollectionId, Timestamp
from streams.operators.context import ERRORS
from streams.operators.local import LocalDataflow
from streams.plan.bind.functions import function_of
from streams.plan.compile import CompiledView, Relation, compile_view
from streams.plan.physical import Column
from streams.plan.sql.statements import CreateFunction, parse
from streams.progress import interval_of
from streams.temporary import temporary_directory
from streams.trace import updates as trace
from streams.trace.columns import Ints, int64
from streams.trace.exact.diffs import repeat_positions
from streams.trace.kernel.functions import Function
from streams.trace.kernel.kernel import Kernel, arrow_schema, arrow_type, printed_type, typed
from streams.trace.kernel.unions import as_struct, has_union

if TYPE_CHECKING:
    from streams.testing.spark import SparkDataflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintained:
    """A view's history over [since, upper): its contents and its errors at each time.

    `columns` are the view's columns with their DuckDB types.
    """

    columns: tuple[Column, ...]
    since: int
    upper: int
    _updates: pa.RecordBatch
    _errors: pa.RecordBatch
    _kernel: Kernel

    @property
    def updates(self) -> pa.Table:
        """The consolidated updates: the view's columns, `_time` and `_diff`."""
        return self._named(self._updates, '"time" AS _time, "diff" AS _diff')

    def at(self, time: int) -> pa.Table:
        """The contents at `time`, each row with its multiplicity, in no order.

        Arrow types are DuckDB's lossless ones, but HUGEINT is a decimal of 38 digits. Rows
        whose expressions failed are missing here and show in `errors_at`; in production such
        a read fails.

        Errors: InvalidUsage when `time` lies outside [since, upper).
        """
        self._check(time)
        rows = trace.contents_at(self._updates, time, self._kernel)
        counts = int64(rows.column("diff"))
        assert not len(counts) or counts.min() > 0, f"a row has a negative count at {time}"
        return self._named(rows.take(pa.array(repeat_positions(counts))), "")

    def errors_at(self, time: int) -> list[str]:
        """The errors at `time`, sorted, each with its multiplicity.

        Errors: InvalidUsage when `time` lies outside [since, upper).
        """
        self._check(time)
        rows = trace.contents_at(self._errors, time, self._kernel).to_pylist()
        return sorted(row["error"] for row in rows for _ in range(row["diff"]))

    def _check(self, time: int) -> None:
        if not self.since <= time < self.upper:
            raise InvalidUsage(f"time lies outside [{self.since}, {self.upper}): {time}")

    def _named(self, rows: pa.RecordBatch, more: str) -> pa.Table:
        casts = [
            f"{typed(f'c{index}', column.type)} AS {_quoted(column.name)}"
            for index, column in enumerate(self.columns)
        ]
        text = ", ".join([*casts, *([more] if more else [])])
        # names are quoted, types are DuckDB's own
        table = self._kernel.query(f"SELECT {text} FROM updates", updates=rows)  # noqa: S608
        return _readable(table)


def maintain(  # noqa: PLR0913 - few are needed at once, and a public function keeps its shape
    query: str,
    tables: Mapping[str, str],
    updates: Mapping[str, pa.Table],
    frontiers: Sequence[int] | None = None,
    engine: Literal["local", "spark"] = "local",
    *,
    buckets: int = 2,
    merge_factor: int = 2,
    keys: Mapping[str, Sequence[str]] | None = None,
    functions: str | Sequence[str] = (),
) -> Maintained:
    """Maintain the view of `query` over changing tables; see the module for an example.

    Args:
        query: a SELECT over the tables, in DuckDB's dialect, perhaps with EMIT ON CLOSE.
        tables: for each table its columns as in CREATE TABLE: `"a BIGINT, b VARCHAR"`.
        updates: for some of the tables, those columns with `_time` and `_diff`.
        frontiers: the ascending uppers at which micro-batches are cut; after every distinct
            time when not given. Updates at or beyond the last one are not seen; rows that go
            by themselves (`mz_now()`) do so up to there.
        engine: where the stages run: `local` is this process, `spark` the workers of the active
            Spark session, or of one that is started here. The answers are the same.
        buckets: how many buckets the keyed operators are spread over.
        merge_factor: how much larger a run file must be not to be merged with a newer one.
        keys: of tables that stand for sources with ENVELOPE UPSERT the columns of their keys,
            on which the plan then relies.
        functions: CREATE FUNCTION statements, of functions that the query may call.

    Errors: InvalidStatement when the query is refused, InvalidUsage for wrong arguments.
    """
    kernel = _kernel(threading.get_ident())
    start = _engine(engine, kernel)
    keys = keys or {}
    _refuse_undefined(set(tables), updates=set(updates), keys=set(keys))
    catalog = {
        name: _relation(name, _columns(kernel, definition), keys.get(name))
        for name, definition in tables.items()
    }
    compiled = compile_view(query, catalog, defined(functions))
    read = {str(imported.collection) for imported in compiled.dataflow.imports}
    rows = {name: _read(kernel, catalog[name].columns, updates.get(name)) for name in read}
    for name in keys.keys() & rows.keys():
        _refuse_duplicates(catalog[name], rows[name], kernel)
    since, uppers = _cuts([int64(row.column("time")) for row in rows.values()], frontiers)
    if compiled.end is not None:
        compiled = compile_view(query, catalog, defined(functions), Timestamp(since))
    with temporary_directory("slackwater-") as directory:
        stepped = start(compiled.dataflow, Path(directory), buckets, merge_factor)
        return _run(stepped, kernel, compiled, rows, (since, uppers))


def _refuse_undefined(tables: AbstractSet[str], **named: AbstractSet[str]) -> None:
    """Errors: InvalidUsage for an argument that names undefined tables."""
    for what, names in named.items():
        if unknown := names - tables:
            raise InvalidUsage(f"{what} name tables that are not defined: {sorted(unknown)}")


@cache
def _kernel(thread: int) -> Kernel:
    """Return a thread's kernel: opening DuckDB takes longer than a small view."""
    del thread
    return Kernel()


def defined(texts: str | Sequence[str]) -> tuple[Function, ...]:
    """Return the functions of CREATE FUNCTION statements.

    Errors: InvalidUsage for another statement, InvalidStatement for what cannot be made.
    """
    texts = [texts] if isinstance(texts, str) else texts
    statements = [statement for text in texts for statement in parse(text)]
    for statement in statements:
        if not isinstance(statement, CreateFunction):
            raise InvalidUsage(f"expected CREATE FUNCTION, actual {type(statement).__name__}")
    return tuple(
        function_of(function) for function in statements if isinstance(function, CreateFunction)
    )


def _engine(name: str, kernel: Kernel) -> "partial[LocalDataflow] | type[SparkDataflow]":
    """Return what creates a stepped dataflow. Errors: InvalidUsage for an unknown name."""
    if name == "local":
        return partial(LocalDataflow, kernel=kernel)
    if name != "spark":
        raise InvalidUsage(f"engine is not known: expected local or spark, actual {name}")
    from streams.testing.spark import SparkDataflow  # noqa: PLC0415  only who wants Spark loads it

    return SparkDataflow


def _readable(table: pa.Table) -> pa.Table:
    """HUGEINT as decimals, which Python shows as numbers; the bytes are the same."""
    kind = pa.decimal128(38, 0)
    for index, field in enumerate(table.schema):
        if field.type == arrow_type("HUGEINT"):
            chunks = [_as_decimals(chunk.storage) for chunk in table.column(index).chunks]
            column = pa.chunked_array(chunks, kind)
            table = table.set_column(index, pa.field(field.name, kind), column)
    return table


def _as_decimals(storage: pa.Array) -> pa.Array:
    kind = pa.decimal128(38, 0)
    return pa.Array.from_buffers(kind, len(storage), storage.buffers(), -1, storage.offset)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@lru_cache(maxsize=1024)
def _columns(kernel: Kernel, definition: str) -> tuple[Column, ...]:
    return tuple(Column(name, kind) for name, kind in kernel.columns(definition))


def _relation(name: str, columns: tuple[Column, ...], key: Sequence[str] | None) -> Relation:
    """Errors: InvalidUsage for a key of unknown columns."""
    unknown = set(key or ()) - {column.name for column in columns}
    if unknown:
        raise InvalidUsage(f"key of {name} names columns that there are not: {sorted(unknown)}")
    return Relation(CollectionId(name), columns, () if key is None else (tuple(key),))


def _refuse_duplicates(relation: Relation, rows: pa.RecordBatch, kernel: Kernel) -> None:
    """Errors: InvalidUsage when at some time several rows have one key, or one is not there."""
    (key,), whole = relation.places, range(len(relation.columns))
    for places in (key, whole):
        by = ", ".join(f"c{place}" for place in places)
        count = f"sum(sum(diff)) OVER (PARTITION BY {by} ORDER BY time)"
        text = f"SELECT {count} AS n FROM rows GROUP BY {by}, time"  # noqa: S608 - numbers alone
        wrong = f"SELECT count(*) AS n FROM ({text}) WHERE n NOT IN (0, 1)"  # noqa: S608
        if kernel.query(wrong, rows=rows)["n"][0].as_py():
            raise InvalidUsage(f"rows of {relation.id} are not one for each key at each time")


def _read(kernel: Kernel, columns: Sequence[Column], table: pa.Table | None) -> pa.RecordBatch:
    """Return a table's updates in the engine's form."""
    schema = arrow_schema([column.type for column in columns])
    if table is None:
        return trace.flatten([], schema)
    casts = [f"{_carried(table, c)} AS c{i}" for i, c in enumerate(columns)]
    casts += ["_time::BIGINT AS time", "_diff::BIGINT AS diff"]
    # names are quoted, types are DuckDB's own
    read = kernel.query(f"SELECT {', '.join(casts)} FROM updates", updates=table)  # noqa: S608
    return trace.flatten([read], schema)


def _carried(table: pa.Table, column: Column) -> str:
    """SQL for what carries a column's values."""
    kind = printed_type(column.type)
    value = f"CAST({_quoted(column.name)} AS {kind})"
    if not has_union(kind):
        return value
    own = table.schema.field(column.name).type
    return _quoted(column.name) if own == arrow_type(kind) else as_struct(value, kind)


def _cuts(times: Sequence[Ints], frontiers: Sequence[int] | None) -> tuple[int, list[int]]:
    """Return the as_of, and the uppers of the micro-batches."""
    seen = np.unique(np.concatenate([*times, np.empty(0, np.int64)]))
    uppers = [int(time) + 1 for time in seen] or [1]
    if frontiers is not None:
        uppers = [int(upper) for upper in frontiers]
        if not uppers or any(upper >= next_upper for upper, next_upper in pairwise(uppers)):
            raise InvalidUsage(f"frontiers are not ascending: {uppers}")
    since = min(uppers[0] - 1, *(int(time) for time in seen[:1]), uppers[0] - 1)
    return since, uppers


def _run(
    stepped: "LocalDataflow | SparkDataflow",
    kernel: Kernel,
    compiled: CompiledView,
    rows: Mapping[str, pa.RecordBatch],
    cuts: tuple[int, list[int]],
) -> Maintained:
    since, uppers = cuts
    outputs, errors = [], []
    for lower, upper in pairwise([since, *uppers]):
        imports = {
            index: pa.Table.from_batches(
                [trace.clip(rows[str(imported.collection)], lower, upper)]
            )
            for index, imported in enumerate(compiled.dataflow.imports)
        }
        step, failed = stepped.step(interval_of(lower, upper, as_of=lower == since), imports)
        outputs += step
        errors += failed
    schema = arrow_schema([column.type for column in compiled.columns])
    return Maintained(
        columns=tuple(compiled.columns),
        since=since,
        upper=uppers[-1],
        _updates=trace.consolidate(trace.flatten(outputs, schema), kernel),
        _errors=trace.consolidate(trace.flatten(errors, ERRORS), kernel),
        _kernel=kernel,
    )
