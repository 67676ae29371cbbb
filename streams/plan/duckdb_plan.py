"""Typed access to DuckDB's serialised plans, which are JSON objects.

Nothing here knows what a plan means. A field of an unexpected kind means that the pinned
DuckDB changed its format, which is our bug: it asserts.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

_NESTED = frozenset({dict, list})
"""What JSON nests; most values in a plan are neither, and a plan is walked several times."""


@dataclass(frozen=True, slots=True)
class Record:
    """One JSON object of a plan, read field by field with the kind the caller expects."""

    fields: Mapping[str, object]

    def has(self, name: str) -> bool:
        """Tell whether the field is there and not null."""
        return self.fields.get(name) is not None

    def raw(self, name: str) -> object:
        """The field as JSON gave it."""
        return self.fields[name]

    def text(self, name: str) -> str:
        """A string; absent means empty."""
        value = self.fields.get(name, "")
        assert isinstance(value, str), (name, value)
        return value

    def number(self, name: str) -> int:
        """An integer."""
        value = self.fields[name]
        assert isinstance(value, int), (name, value)
        return value

    def flag(self, name: str) -> bool:
        """A truth value; absent means false."""
        return bool(self.fields.get(name, False))

    def record(self, name: str) -> "Record":
        """A nested object."""
        value = self.fields[name]
        assert isinstance(value, dict), (name, value)
        return Record(value)

    def records(self, name: str) -> tuple["Record", ...]:
        """A list of objects; absent means empty."""
        return tuple(Record(item) for item in self.items(name) if isinstance(item, dict))

    def items(self, name: str) -> list[object]:
        """A list; absent means empty."""
        value = self.fields.get(name) or []
        assert isinstance(value, list), (name, value)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings; absent means empty."""
        return tuple(str(item) for item in self.items(name))

    def walk(self) -> Iterator["Record"]:
        """This object and every object inside it, outside first."""
        pending: list[object] = [self.fields]
        while pending:
            value = pending.pop()
            if isinstance(value, dict):
                yield Record(value)
                inside = [part for part in value.values() if type(part) in _NESTED]
            else:
                assert isinstance(value, list)
                inside = [part for part in value if type(part) in _NESTED]
            pending += reversed(inside)


def parse(text: str) -> Record:
    """Read a serialised plan.

    Errors: ValueError where DuckDB wrote a constant that its own JSON cannot hold (a BIT or a
    BIGNUM). Numbers with a fraction stay exact.
    """
    # DuckDB writes a constant NaN as NAN, which JSON has no word for.
    value = json.loads(text.replace('"value":NAN', '"value":NaN'), parse_float=Decimal)
    assert isinstance(value, dict)
    return Record(value)
