"""Computes aggregate values from accumulators, with DuckDB's results.

    count(*)    rows                     count(x)   values that are not NULL
    sum(x)      NULL over no values; of a type that holds it, or an error
    avg(x)      NULL over no values; a double
    bool_and(x) whether as many are true as there are; NULL over no values

Each is a function of the group's contents alone. `avg` of integers and decimals is the exact
quotient rounded once, as DuckDB's `avg` computes it. (DuckDB's optimizer may rewrite it to sum
/ count, with two roundings, depending on the query and on statistics: then the last bit
differs.) `sum` of doubles is the exact sum rounded once, and `avg` of doubles is that sum
divided by the count: DuckDB's own result varies around it with the order of rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streams.errors import InvalidUsage
from streams.operators import variance
from streams.operators.accumulators import (
    DEVIATIONS,
    AccumulatorSlot,
    GroupAccumulators,
    Sum,
    place,
)
from streams.plan.physical import Aggregate
from streams.trace.columns import Flags, Ints
from streams.trace.exact import bigint_sums, float_sums
from streams.trace.kernel.kernel import arrow_type

_EXACT_DOUBLE = 1 << 53


@dataclass(frozen=True, slots=True)
class AggregateValues:
    """An aggregate's value for each group; where `failed` is set there is an error instead."""

    column: pa.Array
    failed: Flags | None = None


def value(
    aggregate: Aggregate,
    totals: GroupAccumulators,
    slots: Sequence[AccumulatorSlot],
    types: Sequence[pa.DataType],
) -> AggregateValues:
    """The values of one linear aggregate.

    Errors: InvalidUsage for an aggregate that is not linear.
    """
    if aggregate.argument is None:
        return AggregateValues(_counted(totals.rows, aggregate.type))
    if aggregate.function in DEVIATIONS:
        return AggregateValues(variance.value(aggregate, totals, slots))
    index = place(slots, aggregate.argument, distinct=aggregate.distinct)
    counts, total = totals.counts[index], totals.sums[index]
    match aggregate.function:
        case "count":
            return AggregateValues(_counted(counts, aggregate.type))
        case "bool_and" | "bool_or":
            return _truth(aggregate, counts, _digits(total)[0])
        case "sum" | "avg":
            return _summed(aggregate, counts, total, types[aggregate.argument])
        case other:
            raise InvalidUsage(f"aggregate is not known: {other}")


def _summed(
    aggregate: Aggregate, counts: Ints, total: Sum, source: pa.DataType
) -> AggregateValues:
    none = counts == 0
    if isinstance(total, float_sums.Digits):
        sums = float_sums.nearest(total, len(counts))
        if aggregate.function == "avg":
            sums = sums / np.where(none, 1, counts)
        return AggregateValues(pa.array(sums, mask=none))
    digits = _digits(total)
    if aggregate.function == "sum":
        return _sum(digits, none, arrow_type(aggregate.type))
    return _average(digits, counts, source)


def _truth(aggregate: Aggregate, counts: Ints, trues: Ints) -> AggregateValues:
    """Whether all, or some, of the values are true, by how many are."""
    values = trues == counts if aggregate.function == "bool_and" else trues > 0
    return AggregateValues(pa.array(values, mask=counts == 0))


def _counted(counts: Ints, kind: str) -> pa.Array:
    if kind == "BIGINT":
        return pa.array(counts)
    if kind != "HUGEINT":
        return pa.array(counts).cast(arrow_type(kind))
    digits = bigint_sums.carry(bigint_sums.of_integers(counts, bigint_sums.NARROW))
    return _stored(digits, np.zeros(len(counts), np.bool_), arrow_type(kind))


def _digits(total: Sum) -> bigint_sums.Digits:
    assert isinstance(total, np.ndarray)
    return total


def _sum(digits: bigint_sums.Digits, none: Flags, kind: pa.DataType) -> AggregateValues:
    if pa.types.is_decimal(kind):
        failed = ~bigint_sums.magnitude_below(digits, 10**kind.precision)
    else:
        failed = ~bigint_sums.fits(digits, bigint_sums.NARROW)
    return AggregateValues(
        _stored(digits, none | failed, kind), failed if failed.any() else None
    )


def _stored(digits: bigint_sums.Digits, missing: Flags, kind: pa.DataType) -> pa.Array:
    """The numbers as HUGEINT or DECIMAL; of the lowest four digits."""
    bits = None
    if missing.any():
        bits = pa.py_buffer(np.packbits(~missing, bitorder="little").data)
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    buffers = [bits, bigint_sums.to_bytes(digits[: bigint_sums.NARROW])]
    plain = pa.Array.from_buffers(storage, digits.shape[1], buffers)
    return plain if storage is kind else pa.ExtensionArray.from_storage(kind, plain)


def _average(digits: bigint_sums.Digits, counts: Ints, source: pa.DataType) -> AggregateValues:
    """The exact sum divided by the count, rounded to the nearest double once."""
    none = counts == 0
    scale = 10**source.scale if pa.types.is_decimal(source) else 1
    failed = ~bigint_sums.fits(digits, bigint_sums.NARROW)
    numbers = np.where(none, 1, counts)
    # A quotient of two exact doubles is rounded once; Python's of integers is so at any size.
    result = bigint_sums.to_double(digits) / (numbers * float(scale))
    small = bigint_sums.magnitude_below(digits, _EXACT_DOUBLE) & (
        numbers < _EXACT_DOUBLE // scale
    )
    large = np.flatnonzero(~small & ~none & ~failed)
    if len(large):
        below = numbers[large].astype(object) * scale
        result[large] = (bigint_sums.to_objects(digits[:, large]) / below).astype(np.float64)
    column = pa.array(result, mask=none | failed)
    return AggregateValues(column, failed if failed.any() else None)
