"""Chooses the column type of a field from its types and constraints, for any database."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from schemas.flow_pb2 import CollectionSpec, FieldSelection, Projection


class Kind(Enum):
    """The kind of values of a column. A dialect has a type for each."""

    TEXT = auto()
    INTEGER = auto()
    NUMBER = auto()
    """Doubles."""
    NUMERIC = auto()
    """Numbers of any size and scale, which come as text."""
    BOOLEAN = auto()
    DATE = auto()
    TIME = auto()
    TIMESTAMP = auto()
    INTERVAL = auto()
    UUID = auto()
    BYTES = auto()
    """The fields encoded as base64."""
    JSON = auto()
    """Objects, lists, and values of several types."""


FORMATS: Mapping[str, Kind] = {
    "date": Kind.DATE,
    "time": Kind.TIME,
    "date-time": Kind.TIMESTAMP,
    "duration": Kind.INTERVAL,
    "uuid": Kind.UUID,
    "integer": Kind.NUMERIC,
    "number": Kind.NUMERIC,
}
"""The formats of JSON Schema that are more than text."""

SCALARS = {"boolean": Kind.BOOLEAN, "integer": Kind.INTEGER, "number": Kind.NUMBER}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column as it should be."""

    name: str
    kind: Kind
    nullable: bool
    comment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The columns of a binding: keys, values, the document."""

    keys: tuple[TableColumn, ...]
    values: tuple[TableColumn, ...]
    document: TableColumn | None

    @property
    def columns(self) -> tuple[TableColumn, ...]:
        """All, in the order of the table."""
        return (*self.keys, *self.values, *([self.document] if self.document else []))


def shape_of(collection: CollectionSpec, selection: FieldSelection) -> Shape:
    """The columns of the fields that are selected."""
    columns = {projection.field: column(projection) for projection in collection.projections}
    return Shape(
        keys=tuple(columns[name] for name in selection.keys),
        values=tuple(columns[name] for name in selection.values),
        document=columns[selection.document] if selection.document else None,
    )


def column(projection: Projection) -> TableColumn:
    """The column of a projection; one that can only be null is text."""
    inference = projection.inference
    return TableColumn(
        name=projection.field,
        kind=kind_of(projection) or Kind.TEXT,
        nullable=not inference.must_exist or "null" in inference.types,
        comment=inference.description or inference.title,
    )


def kind_of(projection: Projection) -> Kind | None:
    """The kind of a projection's values; None if they are always null."""
    inference = projection.inference
    types = set(inference.types) - {"null"}
    if types == {"integer", "number"}:
        return Kind.NUMBER
    if "string" in types and types <= {"string", "integer", "number"}:
        return text_kind(inference.string.format, types, base64=inference.string.is_base64)
    if len(types) > 1:
        return Kind.JSON
    return SCALARS.get(types.pop(), Kind.JSON) if types else None


def text_kind(format_: str, types: set[str], *, base64: bool) -> Kind:
    """Text of a format; numbers may come beside it if the format is one of numbers."""
    kind = Kind.BYTES if base64 else FORMATS.get(format_, Kind.TEXT)
    return kind if len(types) == 1 or kind is Kind.NUMERIC else Kind.JSON
