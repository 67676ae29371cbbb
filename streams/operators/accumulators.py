"""The accumulators of linear aggregates: exact, and sums of sums.

Of each group: the number of rows, and for each argument the number of its values that are not
NULL and, where asked for, their exact sum. All of them are linear in the updates, so partial
totals computed anywhere add up to the same totals (`trace.exact`).

`GroupAccumulators` holds the accumulators of many groups in columns: entry i of every part
belongs to group i.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streams.errors import InvalidUsage
from streams.plan.physical import Aggregate
from streams.trace.columns import Flags, Groups, Ints, int64
from streams.trace.exact import bigint_sums, float_sums
from streams.trace.exact.diffs import running_values, sum_at, sum_by

Sum = bigint_sums.Digits | float_sums.Digits | None

COUNTED, NARROW, WIDE, FLOAT = "counted", "narrow", "wide", "float"
PRODUCT = "product"
_DIGITS = {NARROW: bigint_sums.NARROW, WIDE: bigint_sums.WIDE}
_SUMMED = {"sum", "avg", "bool_and", "bool_or"}
_NARROW_PRECISION = 18

_YY, _XX, _YX = ("y", "y"), ("x", "x"), ("y", "x")
DEVIATIONS = {
    **dict.fromkeys(("var_pop", "var_samp", "stddev_pop", "stddev_samp", "sem"), (_YY,)),
    **dict.fromkeys(("covar_pop", "covar_samp", "regr_sxy"), (_YX,)),
    **dict.fromkeys(("corr", "regr_r2"), (_YY, _XX, _YX)),
    **dict.fromkeys(("regr_slope", "regr_intercept"), (_XX, _YX)),
    **dict.fromkeys(("regr_avgx", "regr_avgy"), ()),
    "regr_sxx": (_XX,),
    "regr_syy": (_YY,),
}
"""Functions of the sums of products of y, their first argument, and x, their second."""
_WORD = 8


_SPARSE = {FLOAT, PRODUCT}


@dataclass(frozen=True, slots=True)
class AccumulatorSlot:
    """The accumulators of one argument: the count of its values, and of `kind` their sum.

    Of kind PRODUCT it is the sum of the products with the argument `other`.
    """

    argument: int
    distinct: bool
    kind: str
    other: int | None = None

    def fields(self, index: int) -> list[pa.Field]:
        """The stored columns."""
        fields = [pa.field(f"n{index}", pa.int64())]
        if self.kind in _SPARSE:
            fields.append(pa.field(f"s{index}", float_sums.STORED))
        elif self.kind != COUNTED:
            fields.append(pa.field(f"s{index}", pa.binary(4 * _DIGITS[self.kind])))
        return fields


@dataclass(frozen=True, slots=True)
class GroupAccumulators:
    """Accumulators of `len(rows)` groups; `counts` and `sums` have one part for each slot."""

    rows: Ints
    counts: tuple[Ints, ...]
    sums: tuple[Sum, ...]


def slots_of(
    aggregates: Sequence[Aggregate], types: Sequence[pa.DataType]
) -> tuple[AccumulatorSlot, ...]:
    """The accumulators that these aggregates need, each once.

    Errors: InvalidUsage for an aggregate that is not linear over its type.
    """
    kinds: dict[tuple[int, bool], str] = {}
    products: dict[tuple[int, int, bool], None] = {}
    for aggregate in aggregates:
        if (
            aggregate.argument is None
            or aggregate.share
            or aggregate.function in {"min", "max"}
        ):
            continue
        if aggregate.function in DEVIATIONS:
            kinds |= dict.fromkeys(_factors(aggregate), FLOAT)
            products |= dict.fromkeys(_products(aggregate))
            continue
        key = (aggregate.argument, aggregate.distinct)
        kind = sum_kind(types[aggregate.argument]) if aggregate.function in _SUMMED else COUNTED
        if kinds.get(key, COUNTED) == COUNTED:
            kinds[key] = kind
    sums = [
        AccumulatorSlot(argument, distinct, kind)
        for (argument, distinct), kind in kinds.items()
    ]
    return (
        *sums,
        *(
            AccumulatorSlot(first, distinct, PRODUCT, second)
            for first, second, distinct in products
        ),
    )


def _factors(aggregate: Aggregate) -> list[tuple[int, bool]]:
    arguments = (aggregate.argument, aggregate.other)
    return [(argument, aggregate.distinct) for argument in arguments if argument is not None]


def _products(aggregate: Aggregate) -> list[tuple[int, int, bool]]:
    """The pairs of arguments whose products a function of DEVIATIONS needs."""
    arguments = {
        "y": aggregate.argument,
        "x": aggregate.argument if aggregate.other is None else aggregate.other,
    }
    pairs = [
        (arguments[first], arguments[second])
        for first, second in DEVIATIONS[aggregate.function]
    ]
    return [(a, b, aggregate.distinct) for a, b in pairs if a is not None and b is not None]


def place(
    slots: Sequence[AccumulatorSlot], argument: int, other: int | None = None, *, distinct: bool
) -> int:
    """The number of the slot of an argument, or of the product of two."""
    wanted = (argument, other, distinct)
    positions = (i for i, s in enumerate(slots) if (s.argument, s.other, s.distinct) == wanted)
    return next(positions)


def sum_kind(kind: pa.DataType) -> str:
    """The summation of values of this type.

    Errors: InvalidUsage when they cannot be.
    """
    if pa.types.is_floating(kind):
        return FLOAT
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return NARROW
    if pa.types.is_decimal(kind):
        return NARROW if kind.precision <= _NARROW_PRECISION else WIDE
    if getattr(kind, "type_name", "") == "hugeint":
        return WIDE
    raise InvalidUsage(f"sum expects numbers, actual {kind}")


def digits_of(array: pa.Array, kind: str) -> bigint_sums.Digits:
    """The digits of a column of numbers; NULL has any value."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_decimal(array.type) or pa.types.is_fixed_size_binary(array.type):
        return bigint_sums.of_bytes(array, _DIGITS[kind])
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    width = array.type.bit_width // 8
    sign = "u" if pa.types.is_unsigned_integer(array.type) else "i"
    values = np.frombuffer(array.buffers()[1], f"{sign}{width}")
    values = values[array.offset : array.offset + len(array)]
    wide = values if width == _WORD else values.astype(np.int64)
    return bigint_sums.of_integers(wide, _DIGITS[kind])


def of_rows(
    groups: Groups,
    diffs: Ints,
    column: Callable[[int], pa.Array],
    slots: Sequence[AccumulatorSlot],
) -> GroupAccumulators:
    """The totals of rows sorted into groups; `column` gives the values of an argument."""
    counts, sums = [], []
    for slot in slots:
        values = column(slot.argument)
        other = None if slot.other is None else column(slot.other)
        present = diffs
        for array in (values, other):
            if array is not None and array.null_count:
                present = np.where(array.is_null().to_numpy(zero_copy_only=False), 0, present)
        counts.append(sum_by(groups, present))
        if other is None:
            sums.append(_sum_rows(groups, present, values, slot))
        else:
            sums.append(_sum_products(groups, present, values, other))
    return GroupAccumulators(sum_by(groups, diffs), tuple(counts), tuple(sums))


def _sum_rows(groups: Groups, weights: Ints, column: pa.Array, slot: AccumulatorSlot) -> Sum:
    if slot.kind == COUNTED:
        return None
    if slot.kind != FLOAT:
        return bigint_sums.weighted_sums(groups, digits_of(column, slot.kind), weights)
    return float_sums.carry_digits(
        float_sums.gather(float_sums.split(_doubles(column, weights), weights, groups.ids))
    )


def _sum_products(groups: Groups, weights: Ints, left: pa.Array, right: pa.Array) -> Sum:
    a, b = _doubles(left, weights), _doubles(right, weights)
    return float_sums.carry_digits(
        float_sums.gather(float_sums.products(a, b, weights, groups.ids))
    )


def _doubles(column: pa.Array, weights: Ints) -> float_sums.Doubles:
    values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    if column.null_count:
        values = np.where(weights == 0, 0.0, values)
    return np.ascontiguousarray(values, np.float64)


def read(rows: pa.RecordBatch, slots: Sequence[AccumulatorSlot]) -> GroupAccumulators:
    """The totals stored in columns `n`, `n0`, `s0`, ..."""
    counts: list[Ints] = []
    sums: list[Sum] = []
    for index, slot in enumerate(slots):
        counts.append(int64(rows.column(f"n{index}")))
        if slot.kind in _SPARSE:
            sums.append(float_sums.load(rows.column(f"s{index}")))
        elif slot.kind != COUNTED:
            sums.append(bigint_sums.of_bytes(rows.column(f"s{index}"), _DIGITS[slot.kind]))
        else:
            sums.append(None)
    return GroupAccumulators(int64(rows.column("n")), tuple(counts), tuple(sums))


def store(totals: GroupAccumulators, slots: Sequence[AccumulatorSlot]) -> list[pa.Array]:
    """The columns `n`, `n0`, `s0`, ... that `read` reads."""
    size = len(totals.rows)
    columns = [pa.array(totals.rows)]
    for index, slot in enumerate(slots):
        columns.append(pa.array(totals.counts[index]))
        match totals.sums[index]:
            case None:
                pass
            case float_sums.Digits() as entries:
                columns.append(
                    float_sums.store(float_sums.carry_digits(float_sums.gather(entries)), size)
                )
            case digits:
                kind = pa.binary(4 * _DIGITS[slot.kind])
                buffers = [None, bigint_sums.to_bytes(digits)]
                columns.append(pa.Array.from_buffers(kind, size, buffers))
    return columns


def empty_groups(size: int, slots: Sequence[AccumulatorSlot]) -> GroupAccumulators:
    """The totals of groups without rows."""
    zeros = np.zeros(size, np.int64)
    return GroupAccumulators(
        zeros, tuple(zeros for _ in slots), tuple(_zero(slot, size) for slot in slots)
    )


def _zero(slot: AccumulatorSlot, size: int) -> Sum:
    if slot.kind == COUNTED:
        return None
    if slot.kind not in _SPARSE:
        return np.zeros((_DIGITS[slot.kind], size), np.int64)
    empty = np.empty(0, np.int64)
    return float_sums.Digits(empty, empty, empty)


def choose(totals: GroupAccumulators, places: Ints) -> GroupAccumulators:
    """The totals of the groups at these places; -1 stands for a group without rows."""
    missing = places < 0
    none_missing = not missing.any()

    def pick(values: Ints) -> Ints:
        if none_missing:
            return values[..., places]
        if not values.shape[-1]:
            return np.zeros((*values.shape[:-1], len(places)), np.int64)
        return np.where(missing, 0, values[..., places])

    return _mapped(totals, pick, lambda entries: _choose_entries(entries, places))


def _choose_entries(entries: float_sums.Digits, places: Ints) -> float_sums.Digits:
    starts = np.searchsorted(entries.owner, places)
    counts = np.searchsorted(entries.owner, places, "right") - starts
    total = int(counts.sum())
    where = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(total)
    owner = np.repeat(np.arange(len(places)), counts)
    return float_sums.Digits(owner, entries.bins[where], entries.digits[where])


def concatenate(left: GroupAccumulators, right: GroupAccumulators) -> GroupAccumulators:
    """The totals of the groups of `left`, then those of `right`."""
    sums: list[Sum] = []
    for a, b in zip(left.sums, right.sums, strict=True):
        if isinstance(a, float_sums.Digits) and isinstance(b, float_sums.Digits):
            owner = np.concatenate((a.owner, b.owner + len(left.rows)))
            bins, digits = (
                np.concatenate((a.bins, b.bins)),
                np.concatenate((a.digits, b.digits)),
            )
            sums.append(float_sums.Digits(owner, bins, digits))
        elif isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            sums.append(np.concatenate((a, b), axis=-1))
        else:
            sums.append(None)
    counts = tuple(np.concatenate(pair) for pair in zip(left.counts, right.counts, strict=True))
    return GroupAccumulators(np.concatenate((left.rows, right.rows)), counts, tuple(sums))


def sum_by_group(totals: GroupAccumulators, groups: Groups) -> GroupAccumulators:
    """The totals of groups of totals."""

    def add(values: Ints) -> Ints:
        if values.ndim == 1:
            return sum_by(groups, values)
        return bigint_sums.carry(np.stack([sum_by(groups, digit) for digit in values]))

    return _mapped(
        totals,
        add,
        lambda e: float_sums.gather(float_sums.Digits(groups.ids[e.owner], e.bins, e.digits)),
    )


def running_totals(
    old: GroupAccumulators, changes: GroupAccumulators, owner: Ints
) -> GroupAccumulators:
    """The running totals: entry i is old[owner[i]] plus the changes of that owner up to i.

    `owner` ascends from 0, and every owner has a change. Errors: DiffOverflow.
    """
    single = len(owner) == len(old.rows)
    first = owner if single else np.flatnonzero(np.diff(owner, prepend=-1))
    starts = first[owner]

    def run(before: Ints, values: Ints) -> Ints:
        if single:
            return before + values
        running = np.cumsum(values, axis=-1)
        return running - (running - values)[..., starts] + before[..., owner]

    sums: list[Sum] = []
    for before, change in zip(old.sums, changes.sums, strict=True):
        if isinstance(change, float_sums.Digits) and isinstance(before, float_sums.Digits):
            sums.append(_accumulate_entries(before, change, owner, first))
        elif isinstance(change, np.ndarray) and isinstance(before, np.ndarray):
            sums.append(bigint_sums.carry(run(before, change)))
        else:
            sums.append(None)
    counts = tuple(
        running_values(change, first, before)
        for before, change in zip(old.counts, changes.counts, strict=True)
    )
    return GroupAccumulators(running_values(changes.rows, first, old.rows), counts, tuple(sums))


def _accumulate_entries(
    old: float_sums.Digits, changes: float_sums.Digits, owner: Ints, first: Ints
) -> float_sums.Digits:
    """Running sums of sparse digits: one track for each (owner, bin), as long as the owner."""
    owners = np.concatenate((old.owner, owner[changes.owner]))
    bins = np.concatenate((old.bins, changes.bins)) - float_sums.MINUS_INFINITY
    span = int(bins.max()) + 1 if len(bins) else 1
    tracks, track = np.unique(owners * span + bins, return_inverse=True)
    lengths = np.diff(np.append(first, len(owner)))[tracks // span]
    ends = np.cumsum(lengths)
    within = np.concatenate(
        (np.zeros(len(old.owner), np.int64), changes.owner - first[owner[changes.owner]])
    )
    digits = np.concatenate((old.digits, changes.digits))
    cells = sum_at((ends - lengths)[track] + within, int(lengths.sum()), digits)
    values = running_values(cells, ends - lengths, np.zeros(len(ends), np.int64))
    begin = np.repeat(ends - lengths, lengths)
    place = np.arange(len(cells)) - begin + np.repeat(first[tracks // span], lengths)
    name = np.repeat(tracks % span, lengths) + float_sums.MINUS_INFINITY
    return float_sums.gather(float_sums.Digits(place, name, values))


def _mapped(
    totals: GroupAccumulators,
    numbers: Callable[[Ints], Ints],
    entries: Callable[[float_sums.Digits], float_sums.Digits],
) -> GroupAccumulators:
    sums: list[Sum] = []
    for sum_ in totals.sums:
        match sum_:
            case None:
                sums.append(None)
            case float_sums.Digits():
                sums.append(entries(sum_))
            case digits:
                sums.append(numbers(digits))
    return GroupAccumulators(
        numbers(totals.rows), tuple(numbers(c) for c in totals.counts), tuple(sums)
    )


def replace_parts(
    totals: GroupAccumulators, parts: Mapping[int, tuple[Ints, Sum]]
) -> GroupAccumulators:
    """The totals with other parts for the slots of these numbers."""
    counts, sums = list(totals.counts), list(totals.sums)
    for index, (count, total) in parts.items():
        counts[index], sums[index] = count, total
    return GroupAccumulators(totals.rows, tuple(counts), tuple(sums))


def has_rows(totals: GroupAccumulators) -> Flags:
    """Whether each group has a row, a count or a sum that is not zero: one entry a group."""
    live: Flags = totals.rows != 0
    for count in totals.counts:
        live |= count != 0
    for total in totals.sums:
        match total:
            case None:
                pass
            case float_sums.Digits():  # a sum of zero has no digits once they are carried
                live[float_sums.carry_digits(float_sums.gather(total)).owner] = True
            case digits:
                live |= digits.any(axis=0)
    return live
