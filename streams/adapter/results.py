"""The results of a statement, piece by piece, and their encoding as NDJSON.

On the wire an answer is NDJSON, one object a line, each with a `type`:

    {"type": "columns", "columns": [{"name": ..., "type": ...}]}
    {"type": "rows", "rows": [[...], ...]}
    {"type": "progress", "frontier": 1700000000000}
    {"type": "notice", "message": ...}
    {"type": "complete", "tag": "SELECT 3", "facts": {...}}
    {"type": "error", "error": {"message": ..., "detail": ..., "hint": ...}}
    {"type": "end"}

A statement ends with `complete` or `error`; after an error only the end follows. Every answer
has an end: one without it was cut off and is incomplete. A progress guarantees that all rows
with times before the frontier have been sent (null: there are no more rows).

Rows are arrays in the order of the columns. Integers and finite floats are JSON numbers,
booleans and nested values are JSON, everything else, and what JSON cannot say, is text.
"""

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar, assert_never

from streams.errors import InvalidStatement, SlackwaterError
from streams.plan.physical import Column
from streams.progress import Antichain, frontier


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of the rows that follow."""

    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows, each as the text of a JSON array."""

    rows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """All rows with times before the frontier have been sent."""

    frontier: Antichain


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice to the user that is not a failure."""

    message: str


@dataclass(frozen=True, slots=True)
class Complete:
    """The statement is done. `facts` are for programs: an id, the time of a read."""

    tag: str
    facts: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failed:
    """The statement failed; nothing but the end follows."""

    message: str
    detail: str = ""
    hint: str = ""


END = '{"type": "end"}'

_Returned = TypeVar("_Returned")
"""The last line of every complete answer."""

Result = Columns | Rows | Progress | Notice | Complete | Failed


def failed(error: SlackwaterError) -> Failed:
    """Return the answer for an error."""
    if isinstance(error, InvalidStatement):
        return Failed(error.message, error.detail, error.hint)
    return Failed(str(error))


def line(result: Result) -> str:
    """Encode the result as one line of NDJSON."""
    if isinstance(result, Rows):
        return f'{{"type": "rows", "rows": [{", ".join(result.rows)}]}}'
    return json.dumps(_fields(result), ensure_ascii=False)


def _fields(result: Columns | Progress | Notice | Complete | Failed) -> dict[str, object]:
    match result:
        case Columns(columns):
            shown = [{"name": column.name, "type": column.type} for column in columns]
            return {"type": "columns", "columns": shown}
        case Progress(frontier):
            time = None if frontier.is_empty else frontier.time
            return {"type": "progress", "frontier": time}
        case Notice(message):
            return {"type": "notice", "message": message}
        case Complete(tag, facts):
            return {"type": "complete", "tag": tag, "facts": dict(facts)}
        case Failed(message, detail, hint):
            error = {"message": message, "detail": detail, "hint": hint}
            return {"type": "error", "error": error}
        case _:
            assert_never(result)


def beating(work: Generator[None, None, _Returned]) -> Generator[Result, None, _Returned]:
    """Beats for the user while work goes on; what the work returns."""
    try:
        while True:
            next(work)
            yield Progress(frontier(0))
    except StopIteration as done:
        returned: _Returned = done.value
        return returned
    finally:
        work.close()
