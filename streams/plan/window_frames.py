"""The reach of window functions: the rows near a change, or behind it, that see it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """The reach of a row's outputs by value, as for a RANGE frame.

    Each field but the last has two SQL texts over `c0 .. cn`: the sort keys, by the query's
    order with an empty text after it, of the first and of the last value that

        sees     is in the frame of the row
        seen     may have the row in its frame
        needed   may be in the frame of a row that has this row in its frame

    `fails` is the SQL text of whether DuckDB raises for the row, because a bound is not a value
    of the type.
    """

    sees: tuple[str, str]
    seen: tuple[str, str]
    needed: tuple[str, str]
    fails: str


@dataclass(frozen=True, slots=True)
class Before:
    """A number over rows: how many `rows`, the `count` of a column's values, or their `sum`.

    `type` is that of the column with the number. A sum is of integers or decimals of at most 64
    bits.
    """

    function: str
    argument: int
    type: str


@dataclass(frozen=True, slots=True)
class RunningExtreme:
    """The row that determines a running `max`, `min` or `first` value of column `argument`.

    The first of those with the greatest value, or the least; NULLs decide nothing but what is
    first.
    """

    function: str
    argument: int


@dataclass(frozen=True, slots=True)
class Reach:
    """The reach of a row's outputs: at most `back` rows before it and `ahead` rows after it.

    Rows stand in the order that the arguments `order` of DuckDB's `create_sort_key` give, in
    which no two different rows are equal; of equal rows each counts. If `peers` is not empty it
    has such arguments for the query's order alone, and not rows count but groups of peers, the
    row's own included whatever the numbers are. With a `span` there are no numbers.
    Where `before` is not empty all rows behind a change see it, and outputs have its numbers,
    over the rows before those given to them, in columns `b0`, `b1`, ...
    With `extremes` the rows behind a change see it until one decides as much as what changed.
    Outputs have of each the value that decides before the rows given to them, in columns `m0`,
    `m1`, ..., and whether there is a row that does, in `w0`, `w1`, ...
    """

    order: str
    back: int
    ahead: int
    peers: str = ""
    span: Span | None = None
    before: tuple[Before, ...] = ()
    extremes: tuple[RunningExtreme, ...] = ()
