"""Encodes the rows of an answer as Parquet files, of which only a block is in memory."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from streams.copies.parquet_types import WIDE, parquet_type
from streams.errors import InvalidStatement
from streams.plan.physical import Column
from streams.plan.type_names import identifier
from streams.trace.kernel.connection import EvaluationFailed
from streams.trace.kernel.kernel import Kernel

MOST_ROWS = 122_880
"""Rows of a row group."""

MOST_BYTES = 16 << 20
"""Bytes of the rows of a row group, in memory."""

GROUPS = 4
"""A file has room for so many row groups at least."""

COMPRESSION = "zstd"


def parquet_kernel(memory: int) -> Kernel:
    """Return a kernel whose answers have Arrow's plain types, also inside of nested ones."""
    kernel = Kernel(f"{memory}B")
    kernel.set("arrow_lossless_conversion", "false")
    return kernel


def encode(
    table: pa.Table,
    columns: Sequence[Column],
    file_bytes: int,
    kernel: Kernel,
    sizes: list[tuple[int, int]],
) -> Iterator[bytes]:
    """Yield the bytes of Parquet files that hold the rows in their order; at least one file.

    A file ends before the rows that would make it larger than `file_bytes`, if they were not
    compressed. `sizes` gets the rows and the bytes of each. Shape: `table` has the `columns` in
    the types of `arrow_schema`. Errors: InvalidStatement for a value that has no form in
    Parquet; those of the kernel.
    """
    writer: _FileWriter | None = None
    for block in _blocks(table, file_bytes):
        rows = _converted(block, columns, kernel)
        if writer is not None and writer.size + rows.nbytes > file_bytes:
            yield writer.ended(sizes)
            writer = None
        if writer is None:
            writer = _FileWriter(rows.schema)
        yield writer.written(rows)
    assert writer is not None, "there is a block, if only an empty one"
    yield writer.ended(sizes)


def _blocks(table: pa.Table, file_bytes: int) -> Iterator[pa.Table]:
    most = min(MOST_BYTES, file_bytes // GROUPS)
    per_row = max(table.nbytes // max(table.num_rows, 1), 1)
    count = max(min(MOST_ROWS, most // per_row), 1)
    for start in range(0, max(table.num_rows, 1), count):
        yield table.slice(start, count)


def _converted(block: pa.Table, columns: Sequence[Column], kernel: Kernel) -> pa.Table:
    """Return the rows in the types and with the names that they have in Parquet."""
    named = block.rename_columns([f"c{place}" for place in range(len(columns))])
    values = [_value(place, column) for place, column in enumerate(columns)]
    try:
        rows = _queried(named, columns, values, kernel)
    except EvaluationFailed:
        _refuse_values(named, columns, values, kernel)
        raise
    return rows.rename_columns([column.name for column in columns])


def _value(place: int, column: Column) -> str:
    kind = parquet_type(column.type)
    return f"c{place}" if kind == column.type else f"CAST(c{place} AS {kind}) AS c{place}"


def _queried(
    named: pa.Table, columns: Sequence[Column], values: Sequence[str], kernel: Kernel
) -> pa.Table:
    types = [column.type for column in columns]
    return kernel.query_as(
        f"SELECT {', '.join(values)} FROM answer", {"answer": (named, types)}
    )


def _refuse_values(
    named: pa.Table, columns: Sequence[Column], values: Sequence[str], kernel: Kernel
) -> None:
    """Errors: InvalidStatement that names the first column with a value that has no form."""
    for column, value in zip(columns, values, strict=True):
        try:
            _queried(named, columns, [value], kernel)
        except EvaluationFailed as error:
            kind = WIDE if WIDE in value else parquet_type(column.type)
            raise InvalidStatement(
                f"COPY cannot write a value of column {column.name}, of type {column.type}",
                f"expected one that fits {kind}",
                f"write it as text: CAST({identifier(column.name)} AS VARCHAR)",
            ) from error


class _FileWriter:
    """One Parquet file, whose bytes are taken while it grows."""

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = self.size = 0
        self._sink = _Sink()
        import pyarrow.parquet as pq  # noqa: PLC0415  slow, and few statements are a COPY

        self._writer = pq.ParquetWriter(self._sink, schema, compression=COMPRESSION)

    def written(self, rows: pa.Table) -> bytes:
        self._writer.write_table(rows, row_group_size=MOST_ROWS)
        self.rows += rows.num_rows
        return self._taken()

    def ended(self, sizes: list[tuple[int, int]]) -> bytes:
        self._writer.close()
        last = self._taken()
        sizes.append((self.rows, self.size))
        return last

    def _taken(self) -> bytes:
        taken = self._sink.take()
        self.size += len(taken)
        return taken


class _Sink:
    """A file, as Arrow writes one: it keeps what was written since it was last taken."""

    def __init__(self) -> None:
        self.closed = False
        self._pieces: list[bytes] = []
        self._place = 0

    def tell(self) -> int:
        return self._place

    def write(self, data: bytes) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._place += len(piece)
        return len(piece)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        self.closed = True

    def take(self) -> bytes:
        taken = b"".join(self._pieces)
        self._pieces.clear()
        return taken
