"""What a subscriber asks for: which rows, which columns, from and to which times. Pure.

A filter is a conjunction of comparisons of columns with constants: enough to leave data where
it is, and so simple that a client in any language applies the same. A comparison with NULL
holds for no row. Errors of the collection are delivered whatever the filter says.
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
from streams.trace.kernel import arrow_schema
from streams.trace.updates import flatten

Value = str | int | float | bool | bytes


class Operator(StrEnum):
    """How a column is compared."""

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
    Operator.NOT_EQUAL: lambda _low, _high, _value: True,  # NaN differs, and is in no range
    Operator.LESS: lambda low, _high, value: low < value,
    Operator.LESS_EQUAL: lambda low, _high, value: low <= value,
    Operator.GREATER: lambda _low, high, value: high > value,
    Operator.GREATER_EQUAL: lambda _low, high, value: high >= value,
}
"""Whether a column with values from low to high may hold one that compares so."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A row is wanted when its `column` compares so with `value`."""

    column: str
    operator: Operator
    value: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a subscription differs from all of a collection for ever.

    `columns` are delivered in this order, all when None; `until` is the first time that is not
    delivered any more.
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
        """The schema of what is delivered: c0 .. cn are the columns asked for."""
        fields = [
            pa.field(f"c{number}", self.schema.field(position).type)
            for number, position in enumerate(self.columns)
        ]
        return pa.schema([*fields, self.schema.field("time"), self.schema.field("diff")])

    def may_match(self, chunk: ChunkRef) -> bool:
        """Whether the chunk's ranges allow for a row that is wanted."""
        if not chunk.ranges:
            return True
        return all(
            overlaps(chunk.ranges[position], operator, value.as_py())
            for position, operator, value in self.where
        )

    def apply(self, updates: pa.Table) -> pa.Table:
        """The rows and columns that are wanted.

        Shape: in `schema`, as the chunk spells its types; out `result`.
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
    """Whether some value within the bounds may compare so with `value`."""
    if bounds is None:
        return True
    # text or numbers, all three: a range is of its column's values, a constant of its type
    low, high, point = cast("tuple[float, float, float]", (bounds.low, bounds.high, value))
    return ALLOWS[operator](low, high, point)


def selection(options: Options, description: Description) -> Selection:
    """The filter and projection of the options.

    Errors: InvalidUsage when a column is not there, or cannot be compared so.
    """
    schema = arrow_schema(description.types)
    where = tuple(
        (position, each.operator, constant(each, schema.field(position).type))
        for each in options.where
        for position in (place(each.column, description),)
    )
    wanted = description.names if options.columns is None else options.columns
    columns = tuple(place(name, description) for name in wanted)
    return Selection(schema, where, columns)


def place(column: str, description: Description) -> int:
    """The position of a column. Errors: InvalidUsage when there is none, or several."""
    if description.names.count(column) != 1:
        raise InvalidUsage(f"expected one of the columns {description.names}, actual {column}")
    return description.names.index(column)


def constant(comparison: Comparison, kind: pa.DataType) -> pa.Scalar:
    """The constant in the column's type. Errors: InvalidUsage when it has no place there."""
    try:
        value = pa.scalar(comparison.value, kind)
        KERNELS[comparison.operator](pa.nulls(0, kind), value)
    except (
        pa.ArrowInvalid,
        pa.ArrowTypeError,
        pa.ArrowNotImplementedError,
        OverflowError,  # as for less than none of a type that has no sign
    ) as cause:
        raise InvalidUsage(
            f"column {comparison.column} of type {kind}: cannot be compared"
            f" {comparison.operator} {comparison.value!r}"
        ) from cause
    return value
