"""TPC-H's tables at a scale, as Arrow, and an endless sequence of changes.

`generate` runs `tpchgen-cli`. `changes` gives batches of updates in the manner of the refresh
functions (new orders with their items, old orders gone with theirs), and beside them rows of
the other tables replaced. A batch takes from each table in proportion to its size, so that the
mix is the same at every scale; what a batch deletes no other one touches, so that every batch
is a change of what is there.

Source: TPC Benchmark H, revision 3.0.1, chapters 1.4, 2.5 and 4.2.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streams.bench.tpch.queries import TABLES
from streams.errors import InvalidUsage
from streams.plan.physical import Column
from streams.trace.columns import Ints, int64, one_array, spans
from streams.trace.kernel.kernel import Kernel

GENERATOR = "tpchgen-cli"
Tables = Mapping[str, pa.Table]

_FREE_KEY = 8
"""Of 32 order keys the first 8 are used: larger keys are free."""
_ORDER_KEYS = {"orders": "o_orderkey", "lineitem": "l_orderkey"}
_REPLACED = {
    "supplier": "s_acctbal",
    "customer": "c_acctbal",
    "part": "p_retailprice",
    "partsupp": "ps_supplycost",
}
"""The columns that a change replaces in tables that the refresh functions do not touch."""


def generate(scale: float, directory: Path) -> dict[str, pa.Table]:
    """All tables at a scale (1 is a gigabyte of text), by way of files in the directory.

    Errors: InvalidUsage when the generator is not installed.
    """
    beside = str(Path(sys.executable).parent)
    path = shutil.which(GENERATOR, path=beside) or shutil.which(GENERATOR)
    if path is None:
        raise InvalidUsage(
            f"{GENERATOR} makes TPC-H's data and is not installed: pip install {GENERATOR}"
        )
    options = ["--scale-factor", f"{scale:g}", "--output-dir", str(directory), "--quiet"]
    subprocess.run([path, "parquet", *options], check=True)  # noqa: S603 - a fixed program, numbers and a path
    return {name: _read(directory / f"{name}.parquet") for name in TABLES}


def _read(path: Path) -> pa.Table:
    """A table with text in the form that the engine keeps it in."""
    table = pq.read_table(path)
    wanted = [
        field.with_type(pa.string()) if field.type == pa.string_view() else field
        for field in table.schema
    ]
    return table.cast(pa.schema(wanted)).replace_schema_metadata().combine_chunks()


def columns(table: pa.Table) -> tuple[Column, ...]:
    """The columns with their DuckDB types."""
    described = Kernel().query("DESCRIBE FROM t", t=table.slice(0, 0))
    pairs = zip(
        described["column_name"].to_pylist(), described["column_type"].to_pylist(), strict=True
    )
    return tuple(Column(name, kind) for name, kind in pairs)


def updates(table: pa.Table, time: int, diffs: Ints | int = 1) -> pa.Table:
    """The rows with `_time` and `_diff`."""
    many = table.num_rows
    return table.append_column("_time", pa.array(np.full(many, time))).append_column(
        "_diff", pa.array(np.broadcast_to(np.asarray(diffs, np.int64), many))
    )


def changes(
    tables: Tables, read: Sequence[str], size: int, seed: int, first: int
) -> Iterator[dict[str, pa.Table]]:
    """Batches of about `size` updates, at the times first, first + 1, ...

    Ends when every row was changed once.

    Args:
        tables: the contents before.
        read: the tables that change.
        size: how many updates there are in a batch.
        seed: which rows.
        first: the time of the first batch.
    """
    parts = [_replaced(name, tables[name]) for name in read if name in _REPLACED]
    refreshed = [name for name in read if name in _ORDER_KEYS]
    if refreshed:
        parts.append(_refreshed(tables["orders"], {name: tables[name] for name in refreshed}))
    rng = np.random.default_rng(seed)
    rows = sum(part.rows for part in parts)
    orders = [rng.permutation(part.units) for part in parts]
    shares = [max(2, round(size * part.units / rows)) for part in parts]
    batches = min(len(o) // share for o, share in zip(orders, shares, strict=True))
    for batch in range(batches):
        changed: dict[str, pa.Table] = {}
        for part, order, share in zip(parts, orders, shares, strict=True):
            changed |= part.change(order[batch * share :][:share], first + batch)
        yield changed


@dataclass(frozen=True, slots=True)
class _Part:
    """Tables that change together: `rows` updates would change all of its `units`."""

    rows: int
    units: int
    change: Callable[[Ints, int], dict[str, pa.Table]]
    """The changes of the units at these places, at a time."""


def _replaced(name: str, table: pa.Table) -> _Part:
    """A table in which rows are replaced by others of the same key."""

    def change(places: Ints, time: int) -> dict[str, pa.Table]:
        old = table.take(pa.array(places))
        index = table.schema.get_field_index(_REPLACED[name])
        field = table.schema.field(index)
        more = pc.add(old.column(index), pa.scalar(1, field.type)).cast(field.type)
        new = old.set_column(index, field, more)
        return {name: pa.concat_tables([updates(old, time, -1), updates(new, time)])}

    return _Part(2 * table.num_rows, table.num_rows, change)


def _refreshed(orders: pa.Table, tables: Tables) -> _Part:
    """Orders and their items: half of those asked for go, of the others copies come."""
    keys = int64(one_array(orders.column("o_orderkey")))
    sorted_by_order = {name: _by_order(table, name) for name, table in tables.items()}

    def change(places: Ints, time: int) -> dict[str, pa.Table]:
        gone, copied = np.array_split(keys[places], 2)
        return {
            name: pa.concat_tables(
                [
                    updates(_of_orders(table, name, gone), time, -1),
                    updates(_renumbered(_of_orders(table, name, copied), name), time),
                ]
            )
            for name, table in sorted_by_order.items()
        }

    return _Part(sum(table.num_rows for table in tables.values()), len(keys), change)


def _by_order(table: pa.Table, name: str) -> pa.Table:
    """A table in the order of its orders' keys, as the generator makes it; only else sorted."""
    keys = int64(one_array(table.column(_ORDER_KEYS[name])))
    return table if (keys[1:] >= keys[:-1]).all() else table.sort_by(_ORDER_KEYS[name])


def _of_orders(table: pa.Table, name: str, keys: Ints) -> pa.Table:
    """The rows of these orders, of a table sorted by the order's key."""
    order_keys = int64(one_array(table.column(_ORDER_KEYS[name])))
    starts = np.searchsorted(order_keys, keys, "left")
    counts = np.searchsorted(order_keys, keys, "right") - starts
    return table.take(pa.array(spans(starts, counts)))


def _renumbered(table: pa.Table, name: str) -> pa.Table:
    index = table.schema.get_field_index(_ORDER_KEYS[name])
    keys = pc.add(table.column(index), _FREE_KEY)
    return table.set_column(index, table.schema.field(index), keys)
