"""The clauses of CREATE SOURCE about event time: the watermark, and the options of WITH."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from streams.errors import InvalidStatement
from streams.plan.metadata import Included, LateRows, Watermark
from streams.plan.physical import Column
from streams.plan.sql.durations import format_duration, milliseconds
from streams.plan.sql.tokens import Cursor

USAGE = "[, WATERMARK FOR column AS column [- INTERVAL '...']]"
OPTIONS_USAGE = "LATE ROWS PLACE | DEAD LETTER | FAIL, IDLE AFTER '...', MAX AHEAD '...'"

OPTIONS = ("LATE ROWS", "IDLE AFTER", "MAX AHEAD")

IDLE_MS = 30_000
AHEAD_MS = 86_400_000

LONGEST_MS = 5_200 * 7 * 86_400_000
"""The longest of all durations here: about a hundred years."""

_LATE_ROWS: dict[str, LateRows] = {
    "PLACE": "place",
    "DEAD LETTER": "dead_letter",
    "FAIL": "fail",
}


@dataclass(frozen=True, slots=True)
class Clause:
    """`WATERMARK FOR column AS column - delay`, as it is written."""

    column: str
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Options:
    """The options of WITH about event time; None: not given."""

    late_rows: LateRows | None = None
    idle_ms: int | None = None
    ahead_ms: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of those that are given."""
        values = (self.late_rows, self.idle_ms, self.ahead_ms)
        return tuple(
            name for name, value in zip(OPTIONS, values, strict=True) if value is not None
        )


def is_clause(cursor: Cursor) -> bool:
    """Tell whether an element of the column list is a watermark: no type begins with FOR."""
    return cursor.at("WATERMARK", "FOR")


def clause(cursor: Cursor) -> Clause:
    """`WATERMARK FOR ts AS ts - INTERVAL '5 seconds'`. Errors: InvalidStatement."""
    cursor.expect("WATERMARK", "FOR")
    column = cursor.name("a column name")
    cursor.expect("AS")
    if cursor.name(column).casefold() != column.casefold():
        cursor.position -= 1
        raise cursor.refused(f"column {column}")
    if not any(cursor.at(word) for word in ("-", ",", ")")):
        raise cursor.refused("- INTERVAL '...', a comma or )")
    return Clause(column, _interval(cursor, column) if cursor.accept("-") else 0)


def _interval(cursor: Cursor, column: str) -> int:
    """`INTERVAL '5 seconds'`, `INTERVAL '5' SECONDS` or `INTERVAL 5 SECONDS`."""
    cursor.expect("INTERVAL")
    token = cursor.current
    if token is not None and token.text.isdecimal():
        text = f"{cursor.take().text} {cursor.name('a unit, as SECONDS')}"
    else:
        text = cursor.string("a duration, as '5 seconds'")
    return _bounded(text, f"the delay of column {column}")


def option(cursor: Cursor, name: str, options: Options) -> Options:
    """Return the options with one of `OPTIONS`, whose value comes next.

    Errors: InvalidStatement.
    """
    if name in options.names:
        raise InvalidStatement(f"option {name} appears twice")
    if name == "LATE ROWS":
        return replace(options, late_rows=_LATE_ROWS[cursor.choose(tuple(_LATE_ROWS))])
    ms = _bounded(cursor.string("a duration in quotes, as '30 seconds'"), f"option {name}")
    return (
        replace(options, idle_ms=ms) if name == "IDLE AFTER" else replace(options, ahead_ms=ms)
    )


def _bounded(text: str, what: str) -> int:
    ms = milliseconds(text)
    if ms > LONGEST_MS:
        raise InvalidStatement(
            f"{what} is {format_duration(ms)}",
            f"expected at most {format_duration(LONGEST_MS)}",
        )
    return ms


def watermark(
    clause: Clause | None,
    options: Options,
    columns: Sequence[Column],
    included: Sequence[Included],
    keys: Sequence[str],
) -> Watermark | None:
    """Return the watermark of a source; None if it has none.

    `keys` are the key columns of ENVELOPE UPSERT. Errors: InvalidStatement.
    """
    if clause is None:
        _refuse_options(options)
        return None
    names = [*(column.name for column in columns), *(part.column for part in included)]
    exact = {name.casefold(): name for name in names}
    if clause.column.casefold() not in exact:
        raise InvalidStatement(
            f"column {clause.column} of WATERMARK does not exist",
            f"columns are {', '.join(names)}",
        )
    column, late_rows = exact[clause.column.casefold()], options.late_rows or "place"
    if keys and late_rows == "place":
        _refuse_deletions(column, {*keys, *(part.column for part in included)})
    return Watermark(
        column=column,
        delay_ms=clause.delay_ms,
        late_rows=late_rows,
        idle_ms=IDLE_MS if options.idle_ms is None else options.idle_ms,
        ahead_ms=AHEAD_MS if options.ahead_ms is None else options.ahead_ms,
    )


def _refuse_deletions(column: str, beside: Collection[str]) -> None:
    """Refuse to place late rows of keys that can be deleted: what is `beside` values has that.

    A deletion that has happened leaves nothing that says whether a late row is older.
    """
    if column in beside:
        raise InvalidStatement(
            f"LATE ROWS PLACE in a source of ENVELOPE UPSERT whose event time, column {column},"
            " is not in the value",
            "a message without a value has an event time then, and deletes its key: whether a"
            " late row is older than the deletion is not known once that has happened",
            "declare WITH (LATE ROWS DEAD LETTER) or WITH (LATE ROWS FAIL)",
        )


def _refuse_options(options: Options) -> None:
    for name in options.names:
        raise InvalidStatement(
            f"option {name} is about event time, and the source has no watermark",
            hint="declare one among the columns:"
            " WATERMARK FOR column AS column - INTERVAL '5 seconds'",
        )
