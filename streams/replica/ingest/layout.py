"""Which members of a message are read for its columns, and how.

A column of a type without parts is a field that is parsed (`fields`). Every other member is
read as a text and taken apart (`nested`): a LIST, STRUCT or MAP; the members on a path, one for
all columns whose paths begin with it; a member that another column reads too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streams.errors import InvalidUsage
from streams.plan.physical import Column
from streams.plan.source_types import is_source_type
from streams.replica.ingest.fields import Field, field, text_field
from streams.replica.ingest.nested import (
    JsonReader,
    Make,
    Members,
    Opening,
    Split,
    reader_of,
)
from streams.trace.kernel.types import parts


@dataclass(frozen=True, slots=True)
class MemberLayout:
    """A member of messages, the places of its columns, and what takes its text apart, if so."""

    field: Field
    places: tuple[int, ...]
    reader: JsonReader | None = None


def layout(
    columns: Sequence[Column],
    paths: Mapping[str, Sequence[str]],
    opening: Opening,
    make: Make,
    split: Split,
) -> list[MemberLayout]:
    """Return the members to read. Errors: InvalidUsage for a type that JSON cannot give."""
    slots: list[MemberLayout] = []
    below: dict[str, list[int]] = {}
    parsed: set[str] = set()
    for place, column in enumerate(columns):
        if not is_source_type(column.type):
            raise InvalidUsage(
                f'{opening(column.name)}": a source cannot have a column of type {column.type}'
            )
        member, *rest = paths.get(column.name, (column.name,))
        if rest:
            below.setdefault(member, []).append(place)
        elif parts(column.type) is None and member not in parsed:
            parsed.add(member)
            slots.append(
                MemberLayout(field(member, opening(column.name), column.type), (place,))
            )
        else:
            text = text_field(member, opening(column.name), column.type)
            slots.append(MemberLayout(text, (place,), reader_of(column.type, make, split)))
    for member, places in below.items():
        inner = [columns[place] for place in places]
        rest_of = {column.name: paths[column.name][1:] for column in inner}
        text = text_field(member, "", "")
        slots.append(MemberLayout(text, tuple(places), Members(inner, rest_of, opening, make)))
    return slots
