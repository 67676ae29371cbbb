"""Variance, covariance, correlation and regression: exact, rounded once at the end.

Of n pairs (y, x), with S the sums and their products exact integers in powers of two:

    C(a, b) = n S(ab) - S(a) S(b)      so that  covar_pop = C(y, x) / n^2

and every function here is a quotient of such integers, or the square root of one (rule 40).
From rounded sums the difference could lose every digit. If a value is NaN or infinite the
result is NaN, as in DuckDB; where DuckDB divides by zero the result is that of DuckDB.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streams.operators.accumulators import DEVIATIONS, AccumulatorSlot, GroupAccumulators, place
from streams.plan.physical import Aggregate
from streams.trace.columns import Flags, Ints
from streams.trace.exact import float_sums
from streams.trace.exact.rationals import Doubles, Integers, quotients, roots

_UNIT = 1 << 1074
"""Sums are in units of 1 / _UNIT, sums of products in units of its square."""


@dataclass(frozen=True, slots=True)
class VarianceSums:
    """The sums that one aggregate is computed from, for each group."""

    aggregate: Aggregate
    totals: GroupAccumulators
    slots: Sequence[AccumulatorSlot]

    @property
    def n(self) -> Integers:
        """The number of values, or of pairs."""
        return self.counts.astype(object)

    @property
    def counts(self) -> Ints:
        """The same in numpy's integers."""
        return self.totals.counts[self._place(self._column("y"))]

    @property
    def special(self) -> Flags:
        """Flags where a multiplied value is NaN or infinite."""
        result = np.zeros(len(self.totals.rows), np.bool_)
        for name in {name for pair in DEVIATIONS[self.aggregate.function] for name in pair}:
            result |= self.is_special(name)
        return result

    def is_special(self, name: str) -> Flags:
        """Flags where a value of y or x is NaN or infinite."""
        entries = self._entries(self._place(self._column(name)))
        return float_sums.is_special(entries, len(self.totals.rows))

    def is_flat(self, name: str) -> Flags:
        """Flags where y or x has no variance: DuckDB gives one value none, whatever it is."""
        is_same = np.asarray(self.c(name, name) == 0, np.bool_) & ~self.is_special(name)
        return np.asarray(is_same | (self.counts == 1), np.bool_)

    def nearest(self, name: str) -> Doubles:
        """The sum of y or x as IEEE 754 has it where a value is NaN or infinite."""
        entries = self._entries(self._place(self._column(name)))
        results = float_sums.nearest(entries, len(self.totals.rows))
        return np.where(float_sums.is_special(entries, len(results)), results, 0.0)

    def s(self, name: str) -> Integers:
        """The sum of y or x."""
        return self._integers(self._place(self._column(name)))

    def c(self, first: str, second: str) -> Integers:
        """N S(ab) - S(a) S(b), for y or x; its unit is that of products."""
        product = self._integers(self._place(self._column(first), self._column(second)))
        above: Integers = self.n * product - self.s(first) * self.s(second)
        return above

    def _column(self, name: str) -> int:
        first, second = self.aggregate.argument, self.aggregate.other
        operand = first if name == "y" or second is None else second
        assert operand is not None
        return operand

    def _place(self, column: int, other: int | None = None) -> int:
        return place(self.slots, column, other, distinct=self.aggregate.distinct)

    def _integers(self, index: int) -> Integers:
        return float_sums.integers(self._entries(index), len(self.totals.rows))

    def _entries(self, index: int) -> float_sums.Digits:
        entries = self.totals.sums[index]
        assert isinstance(entries, float_sums.Digits)
        return entries


def value(
    aggregate: Aggregate, totals: GroupAccumulators, slots: Sequence[AccumulatorSlot]
) -> pa.Array:
    """The value of a function of DEVIATIONS for each group; NULL over no pairs."""
    sums = VarianceSums(aggregate, totals, slots)
    values, null = _FUNCTIONS[aggregate.function](sums)
    if aggregate.function not in _OF_ITS_OWN:
        values = np.where(sums.special, np.nan, values)
    if aggregate.function in _NOTHING_OF_ONE:
        values = np.where(sums.counts == 1, 0.0, values)  # DuckDB does not look at the value
    return pa.array(values, mask=null | (sums.counts <= 0))


_OF_ITS_OWN = frozenset({"regr_r2", "regr_intercept"})
"""Functions that say by themselves what they are of values that are NaN or infinite."""

_NOTHING_OF_ONE = frozenset({"var_pop", "stddev_pop", "regr_sxx", "regr_syy"})
_Function = Callable[[VarianceSums], tuple[Doubles, Flags]]


def _some(sums: VarianceSums) -> Flags:
    return np.zeros(len(sums.counts), np.bool_)


def _spread(less: int, factor: int) -> _Function:
    """C(y, x) / (n (n - less)), in units of products; for factor 1 of single values."""

    def function(sums: VarianceSums) -> tuple[Doubles, Flags]:
        n = sums.n
        other = "y" if factor == 1 else "x"
        quotient = quotients(sums.c("y", other), n * (n - less) * _UNIT**2)
        return quotient, sums.counts <= less

    return function


def _deviation(less: int) -> _Function:
    def function(sums: VarianceSums) -> tuple[Doubles, Flags]:
        n = sums.n
        return roots(sums.c("y", "y"), n * (n - less) * _UNIT**2), sums.counts <= less

    return function


def _error(sums: VarianceSums) -> tuple[Doubles, Flags]:
    return roots(sums.c("y", "y"), sums.n**3 * _UNIT**2), _some(sums)


def _average(name: str) -> _Function:
    return lambda sums: (
        quotients(sums.s(name), sums.n * _UNIT) + sums.nearest(name),
        _some(sums),
    )


def _squares(first: str, second: str) -> _Function:
    return lambda sums: (quotients(sums.c(first, second), sums.n * _UNIT**2), _some(sums))


def _correlation(sums: VarianceSums) -> tuple[Doubles, Flags]:
    both, below = sums.c("y", "x"), sums.c("y", "y") * sums.c("x", "x")
    return roots(both * abs(both), below), _some(sums)


def _determination(sums: VarianceSums) -> tuple[Doubles, Flags]:
    """1 where y is flat, even if x is infinite somewhere; NULL where x is."""
    both, y, x = sums.c("y", "x"), sums.c("y", "y"), sums.c("x", "x")
    quotient = np.where(sums.special, np.nan, quotients(both * both, y * x))
    return np.where(sums.is_flat("y"), 1.0, quotient), sums.is_flat("x")


def _slope(sums: VarianceSums) -> tuple[Doubles, Flags]:
    return quotients(sums.c("y", "x"), sums.c("x", "x")), _some(sums)


def _intercept(sums: VarianceSums) -> tuple[Doubles, Flags]:
    """S(y)/n - slope S(x)/n, over one denominator; NULL where DuckDB's slope is NaN."""
    x, both = sums.c("x", "x"), sums.c("y", "x")
    above = sums.s("y") * x - both * sums.s("x")
    return quotients(above, sums.n * x * _UNIT), sums.is_flat("x") | sums.special


_FUNCTIONS: dict[str, _Function] = {
    "var_pop": _spread(0, 1),
    "var_samp": _spread(1, 1),
    "stddev_pop": _deviation(0),
    "stddev_samp": _deviation(1),
    "sem": _error,
    "covar_pop": _spread(0, 2),
    "covar_samp": _spread(1, 2),
    "corr": _correlation,
    "regr_r2": _determination,
    "regr_slope": _slope,
    "regr_intercept": _intercept,
    "regr_avgx": _average("x"),
    "regr_avgy": _average("y"),
    "regr_sxx": _squares("x", "x"),
    "regr_syy": _squares("y", "y"),
    "regr_sxy": _squares("y", "x"),
}
