"""Options of a subscription: filter, projection, and time range. Pure.

A filter is a conjunction of comparisons of columns with constants: enough to skip chunks, and
simple enough for a client in any language to apply identically. A comparison with NULL is true
for no row. Errors of the collection are delivered regardless of the filter.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from streams.errors import InvalidUsage
from streams.ids import Timestamp
from streams.kafka.log import ChunkRef, Limit, Range
from streams.storage.description import Description
from streams.trace.kernel.kernel import arrow_schema
from streams.trace.updates import flatten

Value = str | int | float | bool | bytes


class Operator(StrEnum):
    """A comparison operator."""

    EQUAL = "="
    NOT_EQUAL = "<>"
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="


KERNELS: Mapping[Operator, Callable[[pa.ChunkedArray, pa.Scalar], pa.ChunkedArray]] = {
    Operator.EQUAL: pc.equal,
    Operator.NOT_EQUAL: pc.not_equal,
    Operator.LESS: pc.less,
    Operator.LESS_EQUAL: pc.less_equal,
    Operator.GREATER: pc.greater,
    Operator.GREATER_EQUAL: pc.greater_equal,
}


ALLOWS: Mapping[Operator, Callable[[float, float, float], bool]] = {
    Operator.EQUAL: lambda low, high, value: low <= value <= high,
    # NaN satisfies it, and is in no range
    Operator.NOT_EQUAL: lambda _low, _high, _value: True,
    Operator.LESS: lambda low, _high, value: low < value,
    Operator.LESS_EQUAL: lambda low, _high, value: low <= value,
    Operator.GREATER: lambda _low, high, value: high > value,
    Operator.GREATER_EQUAL: lambda _low, high, value: high >= value,
}
"""Whether a column with values from low to high may hold one that satisfies the comparison."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The filter `column operator value`."""

    column: str
    operator: Operator
    value: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a subscription differs from the whole collection without end.

    `columns` are delivered in this order, all if None; `until` is the first time that is not
    delivered.
    """

    snapshot: bool = True
    where: tuple[Comparison, ...] = ()
    columns: tuple[str, ...] | None = None
    until: Timestamp | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter and a projection over the columns of one collection, by position."""

    schema: pa.Schema
    where: tuple[tuple[int, Operator, pa.Scalar], ...]
    columns: tuple[int, ...]

    @property
    def result(self) -> pa.Schema:
        """Return the schema of deliveries: c0 .. cn are the selected columns."""
        fields = [
            pa.field(f"c{number}", self.schema.field(position).type)
            for number, position in enumerate(self.columns)
        ]
        return pa.schema([*fields, self.schema.field("time"), self.schema.field("diff")])

    def may_match(self, chunk: ChunkRef) -> bool:
        """Whether the chunk's ranges allow a matching row."""
        if not chunk.ranges:
            return True
        return all(
            overlaps(chunk.ranges[position], operator, value.as_py())
            for position, operator, value in self.where
        )

    def apply(self, updates: pa.Table) -> pa.Table:
        """Return the matching rows, with the selected columns.

        Shape: in `schema`, with the chunk's own types; out `result`.
        """
        if not updates.schema.equals(self.schema):
            updates = pa.Table.from_batches([flatten([updates], self.schema)])
        for position, operator, value in self.where:
            keep = KERNELS[operator](updates.column(position), value)
            updates = updates.filter(keep)
        arrays = [updates.column(position) for position in self.columns]
        arrays += [updates.column("time"), updates.column("diff")]
        return pa.Table.from_arrays(arrays, schema=self.result)


def overlaps(bounds: Range | None, operator: Operator, value: Limit) -> bool:
    """Whether a value within the bounds may satisfy the comparison with `value`."""
    if bounds is None:
        return True
    # all three are text or all are numbers: bounds and constant have the column's type
    low, high, point = cast("tuple[float, float, float]", (bounds.low, bounds.high, value))
    return ALLOWS[operator](low, high, point)


def selection(options: Options, description: Description) -> Selection:
    """Return the filter and projection of the options.

    Errors: InvalidUsage if a column does not exist or cannot be compared this way.
    """
    schema = arrow_schema(description.types)
    where = tuple(
        (position, comparison.operator, constant(comparison, schema.field(position).type))
        for comparison in options.where
        for position in (place(comparison.column, description),)
    )
    wanted = description.names if options.columns is None else options.columns
    columns = tuple(place(name, description) for name in wanted)
    return Selection(schema, where, columns)


def place(column: str, description: Description) -> int:
    """Return the position of a column. Errors: InvalidUsage if there is none, or several."""
    if description.names.count(column) != 1:
        raise InvalidUsage(f"expected one of the columns {description.names}, actual {column}")
    return description.names.index(column)


def constant(comparison: Comparison, kind: pa.DataType) -> pa.Scalar:
    """Cast the constant to the column's type. Errors: InvalidUsage if it does not fit."""
    try:
        value = pa.scalar(comparison.value, kind)
        KERNELS[comparison.operator](pa.nulls(0, kind), value)
    except (
        pa.ArrowInvalid,
        pa.ArrowTypeError,
        pa.ArrowNotImplementedError,
        OverflowError,  # as for a negative constant of an unsigned type
    ) as cause:
        raise InvalidUsage(
            f"column {comparison.column} of type {kind}: cannot be compared"
            f" {comparison.operator} {comparison.value!r}"
        ) from cause
    return value
