"""Lists of columns: of sources, with paths and a watermark, and the arguments of functions."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from streams.errors import InvalidStatement
from streams.plan.metadata import Located
from streams.plan.physical import Column
from streams.plan.sql import event_time, messages
from streams.plan.sql.tokens import Cursor


@dataclass(slots=True)
class Beside:
    """What the column list of a source says beside names and types."""

    located: list[Located] = field(default_factory=list)
    watermark: event_time.Clause | None = None


def columns(cursor: Cursor, beside: Beside | None = None) -> tuple[Column, ...]:
    """`(name type, ...)`; what a source may say beside that is added to `beside`.

    Errors: InvalidStatement.
    """
    cursor.expect("(")
    declared: list[Column] = []
    while True:
        if beside is not None and event_time.is_clause(cursor):
            if beside.watermark is not None:
                raise InvalidStatement("WATERMARK appears twice", "expected one event time")
            beside.watermark = event_time.clause(cursor)
        else:
            declared.append(_column(cursor, beside))
        if not cursor.accept(","):
            break
    cursor.expect(")")
    if not declared:
        raise InvalidStatement("expected a column beside WATERMARK, actual none")
    _refuse_repeated(declared)
    return tuple(declared)


def _refuse_repeated(columns: Sequence[Column]) -> None:
    seen = set()
    for column in columns:
        if column.name.lower() in seen:
            raise InvalidStatement(
                f"column {column.name} appears twice", "column names are compared without case"
            )
        seen.add(column.name.lower())


def _column(cursor: Cursor, beside: Beside | None) -> Column:
    name = cursor.name("a column name")
    words = () if beside is None else ("PATH",)
    type_ = cursor.until((",", ")", *words, *_CONSTRAINTS))
    path = None if beside is None else messages.path(cursor, name)
    if beside is not None and path is not None:
        beside.located.append(path)
    if any(cursor.at(word) for word in _CONSTRAINTS):
        raise cursor.refused(f"only a name and a type for column {name}")
    return Column(name, type_)


_CONSTRAINTS = ("NOT", "NULL", "PRIMARY", "DEFAULT", "UNIQUE", "CHECK", "REFERENCES", "COLLATE")
