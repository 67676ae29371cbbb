"""From accumulators to the values of aggregates, as DuckDB has them.

    count(*)    rows                     count(x)   values that are not NULL
    sum(x)      NULL over no values; of a type that holds it, or an error
    avg(x)      NULL over no values; a double

Each is a function of the group's contents alone. `avg` of integers and decimals is the exact
quotient rounded once: what DuckDB's own `avg` computes. (Its optimizer may make sum / count of
it, with two roundings, as it suits the rest of the query and the statistics: then the last bit
differs.) `sum` of doubles is the exact sum rounded once, `avg` of doubles that divided by the
count: DuckDB's answer depends on the order of rows, and ours is the one they surround.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streams.errors import InvalidUsage
from streams.operators.totals import FLOAT, Slot, Sum, Totals
from streams.plan.physical import Aggregate
from streams.trace import floats, limbs
from streams.trace.columns import Flags, Ints
from streams.trace.kernel import arrow_type

_EXACT_DOUBLE = 1 << 53


@dataclass(frozen=True, slots=True)
class Values:
    """An aggregate's value for each group; where `failed` is set there is an error instead."""

    column: pa.Array
    failed: Flags | None = None


def value(
    aggregate: Aggregate,
    totals: Totals,
    slots: Sequence[Slot],
    types: Sequence[pa.DataType],
) -> Values:
    """The values of one linear aggregate.

    Errors: InvalidUsage for an aggregate that is not linear.
    """
    if aggregate.argument is None:
        return Values(_counted(totals.rows, aggregate.type))
    key = (aggregate.argument, aggregate.distinct)
    index = next(i for i, slot in enumerate(slots) if (slot.argument, slot.distinct) == key)
    counts = totals.counts[index]
    if aggregate.function == "count":
        return Values(_counted(counts, aggregate.type))
    if aggregate.function not in {"sum", "avg"}:
        raise InvalidUsage(f"aggregate is not known: {aggregate.function}")
    none = counts == 0
    source = types[aggregate.argument]
    if slots[index].kind == FLOAT:
        sums = floats.nearest(_entries(totals.sums[index]), len(counts))
        if aggregate.function == "avg":
            sums = sums / np.where(none, 1, counts)
        return Values(pa.array(sums, mask=none))
    digits = _digits(totals.sums[index])
    if aggregate.function == "sum":
        return _sum(digits, none, arrow_type(aggregate.type))
    return _average(digits, counts, source)


def _counted(counts: Ints, kind: str) -> pa.Array:
    if kind == "BIGINT":
        return pa.array(counts)
    if kind != "HUGEINT":
        return pa.array(counts).cast(arrow_type(kind))
    digits = limbs.carry(limbs.of_integers(counts, limbs.NARROW))
    return _stored(digits, np.zeros(len(counts), np.bool_), arrow_type(kind))


def _entries(total: Sum) -> floats.Entries:
    assert isinstance(total, floats.Entries)
    return total


def _digits(total: Sum) -> limbs.Digits:
    assert isinstance(total, np.ndarray)
    return total


def _sum(digits: limbs.Digits, none: Flags, kind: pa.DataType) -> Values:
    if pa.types.is_decimal(kind):
        failed = ~limbs.magnitude_below(digits, 10**kind.precision)
    else:
        failed = ~limbs.fits(digits, limbs.NARROW)
    return Values(_stored(digits, none | failed, kind), failed if failed.any() else None)


def _stored(digits: limbs.Digits, missing: Flags, kind: pa.DataType) -> pa.Array:
    """The numbers as HUGEINT or DECIMAL; of the lowest four digits."""
    bits = None
    if missing.any():
        bits = pa.py_buffer(np.packbits(~missing, bitorder="little").data)
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    buffers = [bits, limbs.to_bytes(digits[: limbs.NARROW])]
    plain = pa.Array.from_buffers(storage, digits.shape[1], buffers)
    return plain if storage is kind else pa.ExtensionArray.from_storage(kind, plain)


def _average(digits: limbs.Digits, counts: Ints, source: pa.DataType) -> Values:
    """The exact sum divided by the count, rounded to the nearest double once."""
    none = counts == 0
    scale = 10**source.scale if pa.types.is_decimal(source) else 1
    failed = ~limbs.fits(digits, limbs.NARROW)
    numbers = np.where(none, 1, counts)
    # A quotient of two exact doubles is rounded once; Python's of integers is so at any size.
    result = limbs.to_double(digits) / (numbers * float(scale))
    small = limbs.magnitude_below(digits, _EXACT_DOUBLE) & (numbers < _EXACT_DOUBLE // scale)
    large = np.flatnonzero(~small & ~none & ~failed)
    if len(large):
        below = numbers[large].astype(object) * scale
        result[large] = (limbs.to_objects(digits[:, large]) / below).astype(np.float64)
    column = pa.array(result, mask=none | failed)
    return Values(column, failed if failed.any() else None)
