"""Doubles nearest to quotients of integers, and to their square roots: rounded once.

Columns are numpy arrays of Python's integers, of any size. Cost: about a microsecond a number.
"""

import math

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.object_]
Doubles = npt.NDArray[np.float64]

_BITS = 70
"""Bits of a root before it is rounded: more than the 53 of a double, and one that sticks."""


def quotients(numerators: Integers, denominators: Integers) -> Doubles:
    """Each numerator over its denominator; NaN over zero, and infinity beyond all doubles."""
    results = _QUOTIENT(numerators, denominators)
    return np.asarray(results, np.float64)


def roots(numerators: Integers, denominators: Integers) -> Doubles:
    """The square root of each quotient; of a negative one it is that of its size, negative.

    NaN over zero.
    """
    results = _ROOT(numerators, denominators)
    return np.asarray(results, np.float64)


def _quotient(numerator: int, denominator: int) -> float:
    if not denominator:
        return math.nan
    try:
        return numerator / denominator  # Python rounds this once, at any size
    except OverflowError:
        return math.inf if (numerator < 0) == (denominator < 0) else -math.inf


def _root(numerator: int, denominator: int) -> float:
    if not denominator or not numerator:
        return math.nan if not denominator else 0.0
    size, below = abs(numerator), abs(denominator)
    # Scaled by 4^shift, so that the integer part of the root has all bits that count.
    shift = _BITS - (size.bit_length() - below.bit_length()) // 2
    scaled, over = size << max(2 * shift, 0), below << max(-2 * shift, 0)
    whole, rest = divmod(scaled, over)
    root = math.isqrt(whole)
    sticky = rest != 0 or root * root != whole
    result = _quotient((2 * root + sticky) << max(-shift, 0), 1 << (1 + max(shift, 0)))
    return -result if (numerator < 0) != (denominator < 0) else result


_QUOTIENT = np.frompyfunc(_quotient, 2, 1)
_ROOT = np.frompyfunc(_root, 2, 1)
