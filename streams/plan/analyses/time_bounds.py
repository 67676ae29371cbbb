"""Derives the maximum distance between two times of a row from its predicates.

From `mz_now() < e` and `l <= r` follows `mz_now() < r + d` if e is at most l + d. So a join
condition that bounds the distance of two times gives the rows of one side an end that depends
on the other side: from that time on they are in no pair that is still visible.

A derived bound must not hide an error. A row for which an expression fails is an error row,
unless another predicate is false or NULL (rule 38); and a time plus an interval fails at the
ends of the calendar. So e may consist only of expressions that do not fail for times in the far
past, and l only of those that do not fail for times in the far future. r is taken as it is:
where it fails, no bound is derived. Hence a row for which e, l or r fails while no predicate is
false or NULL either has times that are, as numbers, beyond the derived end, or has no bound.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from streams.plan.analyses.fallible import can_fail
from streams.plan.analyses.temporal import is_temporal, or_never
from streams.plan.scalar import Call, Form, Literal, Ref, Scalar, refs

POINTS = frozenset({"TIMESTAMP", "TIMESTAMP WITH TIME ZONE"})
"""Types to which an interval is added without a cast."""

_PARTS = re.compile(r"CAST\('(-?\d+) months (-?\d+) days (-?\d+) microseconds' AS INTERVAL\)")
_DAY = 86_400_000_000
_LONGEST_MONTH = 31 * _DAY
_FARTHEST = 1 << 61
"""Microseconds of an interval; longer ones are beyond what this module proves."""

_TRUNCATED = {"second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000, "day": _DAY}
"""Units that divide a day, with the microseconds of each."""

_ZONED_BUCKET = ("time_bucket", "TIMESTAMP WITH TIME ZONE")
"""It fails on the first day of the calendar."""

_MIRRORED = {"<": (0, 1), "<=": (0, 1), ">": (1, 0), ">=": (1, 0)}
_EQUAL = ((0, 1), (1, 0))


@dataclass(frozen=True, slots=True)
class LatestTime:
    """The greatest of columns plus microseconds and of constants: no time is later."""

    columns: Mapping[Ref, int]
    constants: tuple[Literal, ...] = ()


def microseconds(interval: Scalar) -> int | None:
    """The most microseconds that adding a constant interval moves a time; below 0 back.

    None if it is no constant, has parts of both signs, or is too long.
    """
    match = _PARTS.fullmatch(interval.sql) if isinstance(interval, Literal) else None
    if match is None:
        return None
    months, days, rest = map(int, match.groups())
    moved = months * _LONGEST_MONTH + days * _DAY + rest
    one_way = min(months, days, rest) >= 0 or max(months, days, rest) <= 0
    return moved if one_way and abs(moved) <= _FARTHEST else None


def later(time: Scalar, micros: int) -> Scalar:
    """The expression for a time `micros` microseconds later."""
    if not micros:
        return time
    return Call(Form.INFIX, "+", (time, _interval(micros)), time.type)


def rounded_up(time: Scalar, micros: int) -> Scalar:
    """An expression at most `micros` microseconds later, equal for many times."""
    cut = Call(Form.FUNCTION, "time_bucket", (_interval(micros), time), time.type)
    return later(cut, micros)


def _interval(micros: int) -> Literal:
    text = f"CAST('0 months 0 days {micros} microseconds' AS INTERVAL)"
    return Literal(text, "INTERVAL", text)


def latest(time: Scalar) -> LatestTime | None:  # noqa: PLR0911 - one case a form
    """What an expression is never later than, if it fails at no time in the far past."""
    if isinstance(time, Ref):
        return LatestTime({time: 0}) if time.type in POINTS else None
    if isinstance(time, Literal):
        return LatestTime({}, (time,)) if time.type in POINTS else None
    if not isinstance(time, Call):
        return None
    if (moved := _moved(time)) is not None:
        start, micros = moved
        return _plus(latest(start), micros) if micros >= 0 else None
    if (cut := _cut(time)) is not None:
        return latest(cut[0]) if (time.name, time.type) != _ZONED_BUCKET else None
    if (tried := _tried(time)) is not None:
        return latest(tried)
    if time.form is Form.CASE:
        return _greatest(_of_birth(time))
    is_one = time.form is Form.COALESCE or time.name == "greatest"
    return _greatest(time.arguments if is_one else ())


def earliest(time: Scalar) -> tuple[Ref, int] | None:
    """A column and microseconds, below 0: the expression is never earlier than their sum.

    None also if it fails at a time in the far future.
    """
    if isinstance(time, Ref):
        return (time, 0) if time.type in POINTS else None
    if not isinstance(time, Call):
        return None
    moved = _moved(time)
    if moved is not None and moved[1] > 0:
        return None
    start, micros = moved or (time, 0)
    if moved is None:
        cut = _cut(time)
        if cut is None:
            return None
        start, micros = cut[0], -cut[1]
    below = earliest(start)
    return None if below is None else (below[0], below[1] + micros)


def _moved(time: Call) -> tuple[Scalar, int] | None:
    """The time to which a constant interval is added, and its microseconds."""
    if time.form is not Form.INFIX or time.name not in {"+", "-"} or time.type not in POINTS:
        return None
    start, interval = time.arguments
    if time.name == "+" and isinstance(start, Literal):
        start, interval = interval, start
    micros = microseconds(interval)
    if micros is None or start.type != time.type:
        return None
    return start, micros if time.name == "+" else -micros


def _cut(time: Call) -> tuple[Scalar, int] | None:
    """The time that is rounded down to a part of a day, and the length of that."""
    if len(time.arguments) != 2 or time.form is not Form.FUNCTION:  # noqa: PLR2004 - unit and time
        return None
    unit, start = time.arguments
    length: int | None = None
    if time.name == "time_bucket":
        length = microseconds(unit)
    elif time.name == "date_trunc" and isinstance(unit, Literal):
        length = _TRUNCATED.get(unit.label.strip("'").lower())
    if length is None or length <= 0 or _DAY % length or start.type != time.type:
        return None
    return start, length


def _tried(time: Call) -> Scalar | None:
    """The expression of which this is the total form (`analyses.temporal.or_never`)."""
    match time:
        case Call(
            form=Form.COALESCE, arguments=(Call(form=Form.TRY) as tried, Literal() as end)
        ):
            return tried.arguments[0] if end.label == "'infinity'" else None
        case _:
            return None


def _of_birth(time: Call) -> tuple[Scalar, ...]:
    """The two times of which a CASE is the later one (`bind.closing`)."""
    match time.arguments:
        case (Call(name="<", arguments=(end, first)), then, other) if (
            end == other and first == then
        ):
            return end, first
        case _:
            return ()


def _greatest(times: Sequence[Scalar]) -> LatestTime | None:
    columns: dict[Ref, int] = {}
    constants: list[Literal] = []
    for time in times:
        one = latest(time)
        if one is None:
            return None
        for column, micros in one.columns.items():
            columns[column] = max(micros, columns.get(column, micros))
        constants += one.constants
    return LatestTime(columns, tuple(dict.fromkeys(constants))) if columns else None


def _plus(time: LatestTime | None, micros: int) -> LatestTime | None:
    """The bound so much later; constants would have to be computed, which none does."""
    if time is None or time.constants:
        return None
    return LatestTime({column: so_far + micros for column, so_far in time.columns.items()})


def implied_conjuncts(
    conjunct: Scalar, predicates: Sequence[Scalar], home: Callable[[Scalar], int | None]
) -> Iterator[tuple[int, Scalar]]:
    """What a temporal conjunct of a join's rows says of the rows of each input alone.

    Args:
        conjunct: `mz_now() < end`; of others nothing is derived.
        predicates: what is true of each row of the join.
        home: the one input whose columns an expression reads; None if there are several.
    """
    if not is_temporal(conjunct) or not isinstance(conjunct, Call):
        return
    end = latest(conjunct.arguments[0]) if conjunct.name in {"<", "<="} else None
    if end is None or not end.columns:
        return
    orders = [order for predicate in predicates for order in _orders(predicate)]
    ways = [_reached(column, far, orders, home) for column, far in end.columns.items()]
    own = home(conjunct)
    for place in sorted(frozenset(ways[0]).intersection(*ways[1:])):
        if place != own:
            farthest: dict[Scalar, int] = {}
            for time, micros in (way[place] for way in ways):
                farthest[time] = max(micros, farthest.get(time, micros))
            times = [later(time, micros) for time, micros in farthest.items()]
            safe = [or_never(time) if can_fail(time) else time for time in times]
            yield place, before(conjunct, (*safe, *end.constants))


def _orders(predicate: Scalar) -> Iterator[tuple[Scalar, Scalar]]:
    """Two expressions of which the first is never later than the second."""
    if not isinstance(predicate, Call) or predicate.form is not Form.INFIX:
        return
    ways = _EQUAL if predicate.name == "=" else (_MIRRORED.get(predicate.name),)
    for way in filter(None, ways):
        one, other = (predicate.arguments[place] for place in way)
        if other.type in POINTS and refs(other):
            yield one, other


def _reached(
    column: Ref,
    micros: int,
    orders: Sequence[tuple[Scalar, Scalar]],
    home: Callable[[Scalar], int | None],
) -> Mapping[int, tuple[Scalar, int]]:
    """For each input an expression over it, and microseconds: their sum is no earlier.

    That is, than the column plus `micros`.
    """
    reached: dict[int, tuple[Scalar, int]] = {}
    ways, seen = [(column, micros)], {column}
    while ways:
        start, far = ways.pop(0)
        own = home(start)
        assert own is not None, "a column belongs to one input"
        reached.setdefault(own, (start, far))
        for one, other in orders:
            least, place = earliest(one), home(other)
            if least is None or least[0] != start or place is None:
                continue
            farther = far - least[1]
            if farther > _FARTHEST:
                continue
            reached.setdefault(place, (other, farther))
            beyond = latest(other)
            if beyond is not None and len(beyond.columns) == 1 and not beyond.constants:
                ((next_column, more),) = beyond.columns.items()
                if next_column not in seen:
                    seen.add(next_column)
                    ways.append((next_column, farther + more))
    return reached


def before(conjunct: Call, times: Sequence[Scalar]) -> Scalar:
    """The conjunct with the latest of some times for its end."""
    first, *others = times
    if not others:
        return replace(conjunct, arguments=(first,))
    end = Call(Form.FUNCTION, "greatest", tuple(times), first.type)
    return replace(conjunct, arguments=(end,))
