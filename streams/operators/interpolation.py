"""Interpolates between two values exactly as DuckDB's `quantile_cont` does.

The value at a fraction d between two others is computed by DuckDB: in doubles, whose product
and sum may or may not be rounded separately, depending on DuckDB's compiler. DuckDB's window
function `fill` interpolates with the same function as `quantile_cont`, at any d: over the rows

    (0, low), (d, NULL), (1, high)

the NULL becomes the wanted value. `fill` skips values that are not finite; their sums are not
rounded, so they are computed here. Timestamps are interpolated as doubles of microseconds.

Source: DuckDB's InterpolateOperator.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streams.trace.columns import Flags, Ints, canonical, one_array
from streams.trace.kernel.kernel import Kernel, arrow_type

Shares = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class InterpolationPoints:
    """Places of a column: the value at `low`, -1 for NULL, and `share` of the way to `high`."""

    low: Ints
    high: Ints
    share: Shares


def interpolate(
    values: pa.Array, places: InterpolationPoints, kind: str, kernel: Kernel
) -> pa.Array:
    """The values, of DuckDB's type `kind`, between those at these places."""
    wide = _cast(values, kind, kernel)
    low = wide.take(pa.array(places.low, mask=places.low < 0))
    apart = np.flatnonzero(places.share > 0)
    if not len(apart):
        return canonical(low)
    high = wide.take(pa.array(places.high[apart]))
    interpolated = _interpolated(low.take(pa.array(apart)), high, places.share[apart], kernel)
    at = np.arange(len(low))
    at[apart] = len(low) + np.arange(len(apart))
    return canonical(pa.concat_arrays([low, interpolated]).take(pa.array(at)))


def _cast(values: pa.Array, kind: str, kernel: Kernel) -> pa.Array:
    if values.type == arrow_type(kind):
        return values
    statement = kernel.prepare(
        f"SELECT CAST(v AS {kind}) AS v FROM {{t}}", t=pa.schema([("v", values.type)])
    )
    return one_array(statement.run(pa.table([values], ["v"]))["v"])


def _interpolated(low: pa.Array, high: pa.Array, share: Shares, kernel: Kernel) -> pa.Array:
    kind = low.type
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        low_values, high_values = (
            pa.array(_micros(array).astype(np.float64)) for array in (low, high)
        )
        exact = _filled(low_values, high_values, share, kernel).to_numpy()
        whole = np.copysign(np.floor(np.abs(exact) + 0.5), exact)
        return pa.array(whole.astype(np.int64)).view(kind)
    if pa.types.is_floating(kind):
        return _of_floats(low, high, share, kernel)
    return _filled(low, high, share, kernel)


def _micros(values: pa.Array) -> Ints:
    result: Ints = values.view(pa.int64()).to_numpy(zero_copy_only=False)
    return result


def _of_floats(low: pa.Array, high: pa.Array, share: Shares, kernel: Kernel) -> pa.Array:
    low_values, high_values = (array.to_numpy().astype(np.float64) for array in (low, high))
    finite: Flags = np.isfinite(low_values) & np.isfinite(high_values)
    with np.errstate(invalid="ignore", over="ignore"):
        if low.type == pa.float64():
            values = low_values * (1.0 - share) + high_values * share
        else:
            values = low_values + (high_values - low_values) * share
    result = values.astype(low.type.to_pandas_dtype())
    some = pa.array(np.flatnonzero(finite))
    filled = _filled(low.take(some), high.take(some), share[finite], kernel)
    result[finite] = filled.to_numpy()
    return pa.array(result)


def _filled(low: pa.Array, high: pa.Array, share: Shares, kernel: Kernel) -> pa.Array:
    """The values at these shares of the way; all are finite and no share is 0 or 1."""
    size = len(low)
    number = np.arange(size)
    shares = np.concatenate((np.zeros(size), share, np.ones(size)))
    values = pa.concat_arrays([low, pa.nulls(size, low.type), high])
    rows = pa.table([pa.array(np.tile(number, 3)), pa.array(shares), values], ["i", "d", "v"])
    statement = kernel.prepare(
        "SELECT v FROM (SELECT i, d, fill(v) OVER (PARTITION BY i ORDER BY d) AS v FROM {t}) "
        "WHERE d > 0 AND d < 1 ORDER BY i",
        t=rows.schema,
    )
    return one_array(statement.run(rows)["v"])
