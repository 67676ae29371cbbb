"""Writes the rows of a copy-to to files, at most once for its uuid.

Replicas, their successors and zombies may try at the same time: each attempt has files of its
own, at most one becomes visible (`streams.copies.destination`), and the manifest has the uuid.
An attempt that finds the directory written for its uuid answers what is there.
"""

import uuid
from collections.abc import Callable, Iterator
from tempfile import SpooledTemporaryFile

import pyarrow as pa

from streams.compute.peeks import CopyFiles, Peek, PeekCanceled, PeekError, PeekFiles
from streams.copies.destination import CopyCanceled, CopyManifest, Destination, opened
from streams.copies.encoding import encode, parquet_kernel
from streams.copies.parquet_types import refuse_columns
from streams.copies.targets import CopyTargets
from streams.errors import InvalidStatement
from streams.plan.physical import Column
from streams.replica.peeks.evaluation import PeekRefused, plan_of

IN_MEMORY = 1 << 20
"""Bytes of files that are kept in memory before they are written; more go to disk."""

MEMORY = 512 << 20
"""Bytes of the engine that converts the rows, a block at a time."""

PIECE = 1 << 20


def copied(
    peek: Peek, rows: pa.RecordBatch, targets: CopyTargets, is_canceled: Callable[[], bool]
) -> PeekFiles | PeekError | PeekCanceled:
    """Write the rows of a copy-to, and return its answer.

    Shape: `rows` as of `evaluation.rows_of`. Errors: PeekRefused, InvalidStatement, those of
    the kernel.
    """
    files = peek.files
    assert files is not None, "a copy-to has files"
    columns = columns_of(peek, files)
    refuse_columns(columns)
    target = targets.find(files.uri)
    try:
        destination = opened(target, uuid.uuid4().hex)
        return _written(peek, rows, columns, destination, is_canceled)
    except CopyCanceled:
        return PeekCanceled()
    except (OSError, pa.ArrowException) as error:
        first = (str(error) or repr(error)).splitlines()[0]
        why = f"COPY could not write to {target.shown}"
        return PeekError(f"{why}\nDETAIL: {target.redacted(first)}")


def columns_of(peek: Peek, files: CopyFiles) -> list[Column]:
    """Return the columns of the files. Errors: PeekRefused."""
    types = plan_of(peek).types[-1]
    if len(files.names) != len(peek.project):
        raise PeekRefused(f"copy-to: expected {len(peek.project)} names, actual {files.names}")
    return [
        Column(name, types[place])
        for name, place in zip(files.names, peek.project, strict=True)
    ]


def _written(
    peek: Peek,
    rows: pa.RecordBatch,
    columns: list[Column],
    destination: Destination,
    is_canceled: Callable[[], bool],
) -> PeekFiles:
    """Errors: CopyCanceled, OSError, InvalidStatement."""
    assert peek.files is not None, "a copy-to has files"
    sizes: list[tuple[int, int]] = []
    table, kernel = pa.Table.from_batches([rows]), parquet_kernel(MEMORY)
    with SpooledTemporaryFile(IN_MEMORY) as spool:
        for piece in encode(table, columns, peek.files.file_bytes, kernel, sizes):
            spool.write(piece)
        spool.seek(0)
        shown = tuple((column.name, column.type) for column in columns)
        manifest = CopyManifest(peek.uuid, peek.time, shown, tuple(sizes))
        pieces: Iterator[bytes] = iter(lambda: spool.read(PIECE), b"")
        try:
            destination.write(pieces, manifest, is_canceled)
        except (OSError, InvalidStatement):
            before = destination.written(peek.uuid)
            if before is None:
                raise
            return PeekFiles(before)
    return PeekFiles(manifest.files)
