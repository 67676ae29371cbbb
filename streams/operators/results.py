"""From accumulators to the values of aggregates, as DuckDB has them.

    count(*)    rows                     count(x)   values that are not NULL
    sum(x)      NULL over no values; of a type that holds it, or an error
    avg(x)      NULL over no values; a double

`avg` of integers is double(sum) / count and of decimals double(sum, as a decimal) / count:
both are what DuckDB 2.0 computes, bit for bit (its sum is exact, so its order cannot show).
`sum` of doubles is the exact sum rounded once, `avg` of doubles that divided by the count:
here DuckDB's own answer depends on the order of rows, and ours is the one they surround.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streams.errors import InvalidUsage
from streams.operators.totals import COUNTED, FLOAT, Slot, Sum, Totals
from streams.plan.physical import Aggregate
from streams.trace import floats, limbs
from streams.trace.columns import Flags
from streams.trace.kernel import Kernel, arrow_type

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
    kernel: Kernel,
) -> Values:
    """The values of one linear aggregate.

    Errors: InvalidUsage for an aggregate that is not linear.
    """
    if aggregate.argument is None:
        return Values(_counted(totals.rows, aggregate.type))
    index = next(
        i
        for i, slot in enumerate(slots)
        if (slot.argument, slot.distinct) == (aggregate.argument, aggregate.distinct)
        and (slot.kind != COUNTED or aggregate.function == "count")
    )
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
    return _average(digits, counts, source, kernel)


def _counted(counts: npt.NDArray[np.int64], kind: str) -> pa.Array:
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
    bits = pa.array(~missing).buffers()[1]
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    buffers = [bits, limbs.to_bytes(digits[: limbs.NARROW])]
    plain = pa.Array.from_buffers(storage, digits.shape[1], buffers)
    return plain if storage is kind else pa.ExtensionArray.from_storage(kind, plain)


def _average(
    digits: limbs.Digits, counts: npt.NDArray[np.int64], source: pa.DataType, kernel: Kernel
) -> Values:
    none = counts == 0
    scale = source.scale if pa.types.is_decimal(source) else 0
    failed = ~limbs.fits(digits, limbs.NARROW)
    if scale and not failed.all():
        failed |= ~limbs.magnitude_below(digits, 10**38)
    doubles = limbs.to_double(digits[: limbs.NARROW])
    if scale:
        small = limbs.magnitude_below(digits, _EXACT_DOUBLE + 1)
        doubles = doubles / 10.0**scale
        if not small.all():
            doubles = np.where(small, doubles, _decimal_doubles(digits, failed, scale, kernel))
    result = doubles / np.where(none, 1, counts)
    column = pa.array(result, mask=none | failed)
    return Values(column, failed if failed.any() else None)


def _decimal_doubles(
    digits: limbs.Digits, failed: Flags, scale: int, kernel: Kernel
) -> npt.NDArray[np.float64]:
    """DuckDB's own cast of large decimals to double."""
    kind = pa.decimal128(38, scale)
    statement = kernel.prepare("SELECT x::DOUBLE AS x FROM {t}", t=pa.schema([("x", kind)]))
    numbers = _stored(digits, failed, kind)
    answer = statement.run(pa.table([numbers], ["x"]))["x"]
    return np.asarray(answer.to_numpy(), np.float64)
