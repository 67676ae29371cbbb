"""Properties of DuckDB's aggregate functions: how each is maintained, and which are refused.

There are three kinds. *Accumulated* aggregates are functions of exact sums (count, sum,
variance, ...) or of the order of one column (min, max, quantiles): the cost is that of the
changes. All others are *general*: DuckDB recomputes them for each group and time at which the
group changes. Some are refused, because no order of the rows makes their result unique (rule
39).
"""

from streams.plan.type_names import contains

EXTREMES = frozenset({"min", "max"})
_LINEAR = frozenset({"count", "sum", "avg", "bool_and", "bool_or"})
_VARIANCES = frozenset({"var_pop", "var_samp", "stddev_pop", "stddev_samp", "sem"})
_OF_PAIRS = frozenset({
    "covar_pop", "covar_samp", "corr", "regr_avgx", "regr_avgy", "regr_count",
    "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy",
})  # fmt: skip
_ONE_NAME = {
    "mean": "avg",
    "favg": "avg",
    "fsum": "sum",
    "kahan_sum": "sum",
    "sumkahan": "sum",
    "sum_no_overflow": "sum",
    "variance": "var_samp",
    "stddev": "stddev_samp",
    "count_star": "count",
    "count_if": "sum",  # of booleans, and so NULL over no values
    "countif": "sum",
    "arbitrary": "first",  # a NULL too; `any_value` takes the first value that is none
}
"""Functions that have several names; exact sums make those one that differ in rounding."""

REFUSED = {
    "approx_quantile": "quantile_cont is exact",
    "reservoir_quantile": "quantile_cont is exact",
    "approx_top_k": "count under GROUP BY is exact",
}
_SUMMED = ("HUGEINT", "DOUBLE", "DECIMAL")  # result types of sum that are order-blind
_BOTH = 2

_QUANTILES = frozenset({"median", "quantile", "quantile_cont", "quantile_disc"})
_INTERPOLATED = frozenset({
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER",
    "UBIGINT", "FLOAT", "DOUBLE", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE",
})  # fmt: skip
_SEARCHED = _INTERPOLATED | {"VARCHAR", "BLOB", "BOOLEAN"}


def one_name(function: str) -> str:
    """The name under which we know a function of several names."""
    return _ONE_NAME.get(function, function)


def is_accumulated(function: str, arguments: tuple[str, ...], result: str) -> bool:
    """Tell whether sums or an order of one column give the aggregate's value.

    `arguments` are the types of its arguments, `result` that of its value.
    """
    if function in _OF_PAIRS:
        return len(arguments) == _BOTH
    if function in EXTREMES:
        # An ENUM travels as its text, whose order is another one than that of its values; of
        # intervals that are equal one is shown as it came.
        return len(arguments) == 1 and not is_enum(arguments[0]) and not is_long(arguments[0])
    if function in {"sum", "avg"}:
        return result.startswith(_SUMMED)
    return function in _LINEAR | _VARIANCES and len(arguments) <= 1


def is_quantile(function: str, argument: str) -> bool:
    """Tell whether an aggregate is found by search among the values of its argument's type."""
    is_searched = argument in _SEARCHED or argument.startswith("DECIMAL(")
    return function in _QUANTILES and is_searched


def is_interpolated(function: str, argument: str) -> bool:
    """Tell whether a quantile lies between two values; else it is one of them."""
    between = argument in _INTERPOLATED or argument.startswith("DECIMAL(")
    return function == "quantile_cont" or (function == "median" and between)


def is_enum(type_: str) -> bool:
    """Tell whether values of the type are those of an ENUM, and not lists of them."""
    return type_.startswith("ENUM(") and type_.endswith(")")


def is_long(type_: str) -> bool:
    """Tell whether values are intervals, or have some in them: equal ones print apart."""
    return contains(type_, "INTERVAL")


def is_of_pairs(function: str) -> bool:
    """Tell whether a function is one of pairs of numbers that are both not NULL."""
    return function in _OF_PAIRS
