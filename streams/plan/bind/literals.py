"""Constants of a bound plan as exact, typed SQL.

A serialised constant is DuckDB's internal value: days, microseconds, scaled integers, pairs
of 64-bit halves. Here it becomes text that DuckDB reads back as the same value of the same
type. Units: dates in days, times and timestamps as their type says, since 1970.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

from streams.errors import InvalidStatement
from streams.plan.duckdb_plan import Record
from streams.plan.scalar import Literal
from streams.plan.type_names import quoted, type_name

_INTEGERS = frozenset({
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER",
    "UBIGINT", "HUGEINT", "UHUGEINT",
})  # fmt: skip
_FINITE_MAX = {"DATE": 2**31 - 1}  # plus and minus infinity are the extremes of the integer
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PER_SECOND = {
    "TIMESTAMP": 10**6,
    "TIMESTAMP WITH TIME ZONE": 10**6,
    "TIMESTAMP_S": 1,
    "TIMESTAMP_MS": 10**3,
    "TIMESTAMP_NS": 10**9,
    "TIME": 10**6,
    "TIME_NS": 10**9,
}


def literal(value: Record) -> Literal:
    """The constant of a bound plan."""
    type_ = value.record("type")
    name = type_name(type_)
    if value.flag("is_null"):
        return Literal("NULL" if name == '"NULL"' else f"CAST(NULL AS {name})", name, "NULL")
    content = value.raw("value")
    return Literal(_sql(type_, content), name, _label(type_, content))


def text_literal(text: str) -> str:
    """A VARCHAR constant in SQL."""
    if "\0" in text:
        # The parser stops at a zero byte, so it is named instead of written.
        return (
            "(" + " || chr(0) || ".join(text_literal(part) for part in text.split("\0")) + ")"
        )
    return "'" + text.replace("'", "''") + "'"


def _label(type_: Record, content: object) -> str:
    kind = type_.text("id")
    if kind in _INTEGERS and isinstance(content, int):
        return str(content)
    if kind == "VARCHAR" and isinstance(content, str):
        return text_literal(content)
    if kind == "DECIMAL":
        return _decimal_text(type_, content)
    return _sql(type_, content)


def _sql(type_: Record, content: object) -> str:
    kind, name = type_.text("id"), type_name(type_)
    if kind in _NESTED:
        return f"CAST({_NESTED[kind](type_, content)} AS {name})"
    if kind == "BOOLEAN":
        return "true" if content else "false"
    if kind == "VARCHAR" and name == "VARCHAR":
        return text_literal(str(content))
    return f"CAST({text_literal(_plain_text(type_, content))} AS {name})"


def _plain_text(type_: Record, content: object) -> str:  # noqa: C901, PLR0911 - one case a type
    """The text that DuckDB casts back to exactly this value of the type."""
    kind = type_.text("id")
    if kind == "DECIMAL":
        return _decimal_text(type_, content)
    if kind in {"HUGEINT", "UHUGEINT"}:
        return str(_wide(content))
    if kind == "UUID":
        return _uuid_text(content)
    if kind == "INTERVAL":
        return _interval_text(content)
    if kind == "ENUM":
        assert isinstance(content, int)
        return type_.record("type_info").texts("values")[content]
    if kind == "DATE" or kind in _PER_SECOND:
        assert isinstance(content, int)
        return _instant_text(kind, content)
    if kind == "TIME WITH TIME ZONE":
        assert isinstance(content, int)
        return _zoned_time_text(content)
    if kind in {"FLOAT", "DOUBLE"} or kind in _INTEGERS or kind in {"VARCHAR", "BLOB"}:
        return str(content)
    raise InvalidStatement(
        f"constants of type {type_name(type_)} are not supported",
        "the type has no exact text that a plan could hold",
        "write the constant as a cast from text",
    )


def _decimal_text(type_: Record, content: object) -> str:
    scale = type_.record("type_info").number("scale")
    unscaled = Decimal(_wide(content) if isinstance(content, dict) else int(str(content)))
    digits = unscaled.as_tuple().digits
    return f"{Decimal((unscaled.is_signed(), digits, -scale)):f}"


def _wide(content: object) -> int:
    assert isinstance(content, dict)
    halves = Record(content)
    return (halves.number("upper") << 64) + halves.number("lower")


def _uuid_text(content: object) -> str:
    # DuckDB flips the highest bit so that UUIDs order like signed integers.
    digits = f"{(_wide(content) + 2**127) % 2**128:032x}"
    cuts = (0, 8, 12, 16, 20, 32)
    return "-".join(digits[a:b] for a, b in pairwise(cuts))


def _interval_text(content: object) -> str:
    assert isinstance(content, dict)
    part = Record(content)
    months, days, micros = part.number("months"), part.number("days"), part.number("micros")
    return f"{months} months {days} days {micros} microseconds"


def _instant_text(kind: str, value: int) -> str:
    limit = _FINITE_MAX.get(kind, 2**63 - 1)
    if value in {limit, -limit} and not kind.startswith("TIME_") and kind != "TIME":
        return "infinity" if value > 0 else "-infinity"
    if kind == "DATE":
        return _date_text(value)
    seconds, fraction = divmod(value, _PER_SECOND[kind])
    digits = len(str(_PER_SECOND[kind])) - 1
    days, second = divmod(seconds, 86400)
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    clock += f".{fraction:0{digits}}" if digits else ""
    if kind.startswith("TIME") and not kind.startswith("TIMESTAMP"):
        return clock if days == 0 else "24:00:00"
    return f"{_date_text(days)} {clock}{'+00' if kind.endswith('ZONE') else ''}"


def _date_text(days: int) -> str:
    """Years beyond Python's are reached by the calendar's 400-year cycle."""
    cycles, rest = divmod(days, 146097)
    near = _EPOCH + timedelta(days=rest)
    year = near.year + 400 * cycles
    shown = f"{year:04}" if year > 0 else f"{1 - year:04}"
    return f"{shown}-{near.month:02}-{near.day:02}" + ("" if year > 0 else " (BC)")


def _zoned_time_text(bits: int) -> str:
    """Microseconds in the upper 40 bits; below, the offset counted down from +15:59:59."""
    micros, encoded = bits >> 24, bits & (1 << 24) - 1
    offset = 15 * 3600 + 59 * 60 + 59 - encoded
    clock = _instant_text("TIME", micros)
    sign, size = ("-" if offset < 0 else "+"), abs(offset)
    return f"{clock}{sign}{size // 3600:02}:{size // 60 % 60:02}:{size % 60:02}"


def _children(types: Sequence[Record], content: object) -> list[str]:
    assert isinstance(content, dict)
    values = Record(content).records("children")
    return [_child(t, value) for t, value in zip(types, values, strict=True)]


def _child(type_: Record, value: Record) -> str:
    if value.flag("is_null"):
        return f"CAST(NULL AS {type_name(type_)})"
    return _sql(type_, value.raw("value"))


def _elements(type_: Record, content: object) -> list[str]:
    assert isinstance(content, dict)
    child = type_.record("type_info").record("child_type")
    return _children([child] * len(Record(content).items("children")), content)


def _members(type_: Record) -> list[tuple[str, Record]]:
    members = type_.record("type_info").records("child_types")
    return [(member.text("first"), member.record("second")) for member in members]


def _list(type_: Record, content: object) -> str:
    return "[" + ", ".join(_elements(type_, content)) + "]"


def _array(type_: Record, content: object) -> str:
    return "array_value(" + ", ".join(_elements(type_, content)) + ")"


def _map(type_: Record, content: object) -> str:
    return f"map_from_entries([{', '.join(_elements(type_, content))}])"


def _struct(type_: Record, content: object) -> str:
    members = _members(type_)
    values = _children([child for _, child in members], content)
    pairs = (f"{quoted(name)}: {v}" for (name, _), v in zip(members, values, strict=True))
    return "{" + ", ".join(pairs) + "}"


def _tuple(type_: Record, content: object) -> str:
    return f"row({', '.join(_children([child for _, child in _members(type_)], content))})"


def _union(type_: Record, content: object) -> str:
    assert isinstance(content, dict)
    members = _members(type_)
    values = _children([child for _, child in members], content)
    tag = Record(content).records("children")[0].number("value")
    return f"union_value({quoted(members[tag + 1][0])} := {values[tag + 1]})"


_NESTED: dict[str, Callable[[Record, object], str]] = {
    "LIST": _list,
    "ARRAY": _array,
    "MAP": _map,
    "STRUCT": _struct,
    "TUPLE": _tuple,
    "UNION": _union,
}
