"""Consolidates each system's changelog, and compares it with ours.

Shape: contents have the case's columns in the view's types and `diff`, never 0.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.json as pj

from streams.plan.physical import Column
from streams.trace.kernel.kernel import Kernel

_READ = {"BIGINT": pa.int64(), "DOUBLE": pa.float64()}


def of_view(rows: pa.Table, columns: Sequence[Column], kernel: Kernel) -> pa.Table:
    """Our own: columns c0 .. cn and diff."""
    names = ", ".join(f"c{place} AS {_quoted(c)}" for place, c in enumerate(columns))
    return _added_up(f"SELECT {names}, diff FROM t", columns, kernel, t=rows)


def of_flink(directory: Path, columns: Sequence[Column], kernel: Kernel) -> pa.Table:
    """Flink's: each change is an object with the row before and the row after."""
    row = pa.struct(list(_fields(columns)))
    files = [path for path in directory.rglob("*") if path.is_file()]
    rows = _read(files, pa.schema([("before", row), ("after", row)]))
    sides = [
        f"SELECT {', '.join(f'{side}.{_quoted(c)}' for c in columns)}, {sign} AS diff"
        f" FROM t WHERE {side} IS NOT NULL"
        for side, sign in (("before", -1), ("after", 1))
    ]
    return _added_up(" UNION ALL ".join(sides), columns, kernel, t=rows)


def of_pathway(file: Path, columns: Sequence[Column], kernel: Kernel) -> pa.Table:
    """Pathway's: each change is the row with its `diff`."""
    rows = _read([file], pa.schema([*_fields(columns), ("diff", pa.int64())]))
    return _added_up("FROM t", columns, kernel, t=rows)


def mismatch(ours: pa.Table, theirs: pa.Table, kernel: Kernel) -> str:
    """The differences of the contents as text; empty when they are equal."""
    rows = ", ".join(_quoted_name(name) for name in ours.column_names if name != "diff")
    apart = kernel.query(
        f"SELECT {rows}, sum(diff)::BIGINT AS ours FROM (SELECT {rows}, diff FROM a"
        f" UNION ALL SELECT {rows}, -diff FROM b) GROUP BY ALL HAVING sum(diff) <> 0",
        a=ours,
        b=theirs,
    )
    if not apart.num_rows:
        return ""
    return f"{apart.num_rows} rows differ, the first is {apart.slice(0, 1).to_pylist()[0]}"


def _fields(columns: Sequence[Column]) -> list[tuple[str, pa.DataType]]:
    """The columns as the peers write them: times are texts."""
    return [(column.name, _READ.get(column.type, pa.string())) for column in columns]


def _read(files: Sequence[Path], schema: pa.Schema) -> pa.Table:
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    block = pj.ReadOptions(block_size=64 << 20)
    batches = [
        pj.read_json(str(file), block, options).select(schema.names)
        for file in files
        if file.stat().st_size
    ]
    return pa.concat_tables([schema.empty_table(), *batches])


def _added_up(
    sql: str, columns: Sequence[Column], kernel: Kernel, **tables: pa.Table
) -> pa.Table:
    by_name: Mapping[str, pa.Table] = tables
    casts = ", ".join(f"CAST({_quoted(c)} AS {c.type}) AS {_quoted(c)}" for c in columns)
    return kernel.query(
        f"SELECT {casts}, sum(diff)::BIGINT AS diff FROM ({sql}) GROUP BY ALL"
        " HAVING sum(diff) <> 0",
        **by_name,
    )


def _quoted(column: Column) -> str:
    return _quoted_name(column.name)


def _quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
