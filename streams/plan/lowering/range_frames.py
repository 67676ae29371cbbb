"""RANGE frames: which values a row's frame contains, and from which rows it is visible.

The bounds of a frame are the row's value x minus (or plus) constants: a value y is in the frame
of x iff it is between them, so x is in the frames of the y that are as far on the other side.
With months that is not exact: 31 March minus a month is 28 February, and 28 February plus a
month is 28 March. So with months the range is a few days wider, which costs a few rows.

In DuckDB a bound that is not a value of the order's type is an error of the partition. A bound
that the query does not contain, but this module computes, is then the end of the order.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from streams.plan.ir import Order
from streams.plan.scalar import Literal, Ref, Scalar
from streams.plan.to_sql import sql
from streams.plan.window_frames import Span

_MEASURED = re.compile(
    r"U?(?:TINYINT|SMALLINT|INTEGER|BIGINT)|HUGEINT|DECIMAL\(\d+,\d+\)|DATE"
    r"|TIMESTAMP(?: WITH TIME ZONE)?"
)
"""Types whose sums are exact, and ordered as what they were made from."""

_NUMBER = re.compile(r"(?:CAST\()+'(\d+(?:\.\d+)?)'(?: AS [A-Z]+(?:\(\d+,\d+\))?\))+")
_INTERVAL = re.compile(r"CAST\('(\d+) months (\d+) days (\d+) microseconds' AS INTERVAL\)")
_LOWEST, _HIGHEST = r"'\x00\x00\x00'::BLOB", r"'\xFF\xFF\xFF'::BLOB"

_SEEN_SLACK, _NEEDED_SLACK = 4, 14
"""Days by which sums with months may be off: a month has 28 to 31; and of two such sums."""


@dataclass(frozen=True, slots=True)
class FrameOffsets:
    """The distances of a frame's bounds before and after the row."""

    before: tuple[Scalar, ...] = ()
    behind: tuple[Scalar, ...] = ()


def cannot_measure(value: Scalar, offsets: FrameOffsets) -> str:
    """Why the rows in reach cannot be found by their values; empty if they can."""
    if not isinstance(value, Ref) or not _MEASURED.fullmatch(value.type):
        return f"RANGE over {value.type}"
    if any(_text(scalar) is None for scalar in offsets.before + offsets.behind):
        return "the frame is computed"
    return ""


def _text(offset: Scalar) -> str | None:
    """The text of a constant that is not negative; None for anything else."""
    if not isinstance(offset, Literal):
        return None
    match = _NUMBER.fullmatch(offset.sql) or _INTERVAL.fullmatch(offset.sql)
    return None if match is None else offset.sql


def _has_months(offset: Scalar) -> bool:
    match = _INTERVAL.fullmatch(sql(offset))
    return match is not None and int(match[1]) > 0


def span(order: Order, calls: Sequence[FrameOffsets]) -> Span:
    """The reach of calls with these offsets and this order."""
    before = tuple(dict.fromkeys(offset for call in calls for offset in call.before))
    behind = tuple(dict.fromkeys(offset for call in calls for offset in call.behind))
    way = _Way(order)
    slack = any(map(_has_months, before + behind))
    seen, needed = (_SEEN_SLACK * slack, _NEEDED_SLACK * slack)
    both = [
        (*before_terms, *behind_terms)
        for before_terms in ((), *((scalar,) for scalar in before))
        for behind_terms in ((), *((scalar,) for scalar in behind))
    ][1:]
    return Span(
        (
            way.first([(scalar,) for scalar in before]),
            way.last([(scalar,) for scalar in behind]),
        ),
        (
            way.first([(scalar,) for scalar in behind], seen),
            way.last([(scalar,) for scalar in before], seen),
        ),
        (way.first(both, needed), way.last(both, needed)),
        way.fails(before, behind),
    )


@dataclass(frozen=True, slots=True)
class _Way:
    """Sort keys of values that lie before and behind a row's own, in the order."""

    order: Order

    def first(self, offsets: Sequence[tuple[Scalar, ...]], days: int = 0) -> str:
        """The key of the least of the row's value and those that lie so far before it."""
        return f"least({', '.join(self._keys('-', offsets, days, _LOWEST))})"

    def last(self, offsets: Sequence[tuple[Scalar, ...]], days: int = 0) -> str:
        """The key of the greatest of the row's value and those that lie so far behind it."""
        return f"greatest({', '.join(self._keys('+', offsets, days, _HIGHEST))})"

    def fails(self, before: Sequence[Scalar], behind: Sequence[Scalar]) -> str:
        """Whether one of the bounds is no value."""
        own = sql(self.order.scalar)
        bounds = [self._moved("-", (scalar,), 0) for scalar in before]
        bounds += [self._moved("+", (scalar,), 0) for scalar in behind]
        return f"{own} IS NOT NULL AND ({' OR '.join(f'TRY({b}) IS NULL' for b in bounds)})"

    def _keys(
        self, way: str, offsets: Sequence[tuple[Scalar, ...]], days: int, end: str
    ) -> list[str]:
        own = sql(self.order.scalar)
        keys = [self._key(own)]
        for scalars in dict.fromkeys(offsets):
            moved = f"TRY({self._moved(way, scalars, days)})"
            some = f"CASE WHEN {moved} IS NULL THEN {end} ELSE {self._key(moved)} END"
            keys.append(f"CASE WHEN {own} IS NULL THEN {self._key(own)} ELSE {some} END")
        return keys

    def _key(self, value: str) -> str:
        way = "DESC" if self.order.descending else "ASC"
        nulls = "FIRST" if self.order.nulls_first else "LAST"
        return f"create_sort_key({value}, '{way} NULLS {nulls}', '', 'ASC NULLS LAST')"

    def _moved(self, way: str, offsets: tuple[Scalar, ...], days: int) -> str:
        """The value so far away: before the row ('-') is above it where the order descends."""
        sign = {"+": "-", "-": "+"}[way] if self.order.descending else way
        kind = self.order.scalar.type
        text = sql(self.order.scalar)
        for offset in offsets:
            text = f"CAST({text} {sign} {sql(offset)} AS {kind})"
        return f"{text} {sign} INTERVAL {days} DAYS" if days else text
