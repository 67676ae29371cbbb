"""Computes a view at one time from its imports at that time, in one step of its dataflow.

A view's contents at t are a function of the contents of its imports at t, regardless of when
the view was created and how its history was split into steps (rules 16, 23). So a caller that
needs them once runs the first step of a dataflow with as_of t, and discards its state.

State is written to run files as usual, so only rows in transit are in memory. The kernel limits
their bytes (`Kernel.most_bytes`).
"""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from streams.ids import Timestamp
from streams.operators.context import ERRORS
from streams.operators.local import LocalDataflow
from streams.plan.physical import Dataflow
from streams.progress import interval_of
from streams.temporary import temporary_directory
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import consolidate, consolidate_if_needed, flatten


def snapshot_of(
    dataflow: Dataflow, snapshots: Mapping[int, pa.Table], time: Timestamp, kernel: Kernel
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The rows and the errors at `time`; rows that stand there with equal ones are apart.

    Args:
        dataflow: the plan.
        snapshots: by index of the import, updates that add up to its contents at `time`, at
            that time: the import's columns under any names, then time and diff.
        time: when.
        kernel: the caller's, who is its only user meanwhile.

    Shape: columns c0 .. cn, time, diff; and error, time, diff.
    Errors: AnswerTooLarge when rows on the way take more bytes than the kernel may have.
    """
    schemas = [
        arrow_schema([c.type for c in imported.columns]) for imported in dataflow.imports
    ]
    imports = {
        index: pa.Table.from_batches(
            [consolidate_if_needed(flatten([table], schemas[index]), kernel)]
        )
        for index, table in snapshots.items()
        if table.num_rows
    }
    with temporary_directory("slackwater-select-") as directory:
        local = LocalDataflow(dataflow, Path(directory), buckets=1, kernel=kernel)
        born = interval_of(time, time + 1, as_of=True)
        outputs, errors = local.step(born, imports)
        schema = arrow_schema(dataflow.types[-1])
        return (
            consolidate_if_needed(flatten(outputs, schema), kernel),
            consolidate(flatten(errors, ERRORS), kernel),
        )
