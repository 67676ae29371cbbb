"""An actor's journal: the writes it attempted, the answers it received, and the rows it read.

An entry is written before or after the event that it records, never during it, so the entries
of a killed actor are correct, though maybe incomplete. A row is (writer, number): no two writes
insert the same one.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

Row = tuple[str, int]
Update = tuple[Row, int, int]
Count = tuple[Row, int]


@dataclass(frozen=True, slots=True)
class Share:
    """The effect of one write on one collection: its updates, in [lower, upper).

    The first update inserts the write's *witness*, a row that is never retracted: whether it is
    there says whether the write counted.
    """

    collection: str
    capability: str
    lower: int
    upper: int
    updates: tuple[Update, ...]

    @property
    def witness(self) -> Row:
        """The row that tells."""
        return self.updates[0][0]


@dataclass(frozen=True, slots=True)
class Wrote:
    """A write is about to be sent; all its shares count or none does."""

    id: str
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The writer's answer. A write without an answer is in doubt."""

    id: str
    counted: bool


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The contents of a collection at a time, of numbers below `below` alone if it is given."""

    reader: str
    collection: str
    as_of: int
    below: int | None
    contents: tuple[Count, ...]
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class Followed:
    """The changes of a collection in [lower, upper), selected as in `ReadResult`."""

    reader: str
    collection: str
    lower: int
    upper: int
    below: int | None
    updates: tuple[Update, ...]


@dataclass(frozen=True, slots=True)
class Wrong:
    """Something that may not be, whatever else happened."""

    who: str
    what: str


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth counting."""

    who: str
    what: str
    times: int = 1


Entry = Wrote | Answer | ReadResult | Followed | Wrong | Event
KINDS: dict[str, type[Entry]] = {
    kind.__name__: kind for kind in (Wrote, Answer, ReadResult, Followed, Wrong, Event)
}


class Journal(Protocol):
    """The journal of an actor."""

    def note(self, entry: Entry) -> None:
        """Keep the entry; it outlives the process that noted it."""


class MemoryJournal:
    """Entries in a list."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def note(self, entry: Entry) -> None:
        """Keep the entry."""
        self.entries.append(entry)


class FileJournal:
    """Entries as lines of a file; lines written to the kernel survive `kill -9`."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def note(self, entry: Entry) -> None:
        """Write one line at once."""
        self._file.write(line(entry).encode() + b"\n")

    def close(self) -> None:
        """Note nothing any more."""
        self._file.close()


def line(entry: Entry) -> str:
    """An entry as JSON."""
    return json.dumps([type(entry).__name__, asdict(entry)], separators=(",", ":"))


def read_journal(path: Path) -> list[Entry]:
    """The entries of a file, but for a last line that was cut off."""
    lines = path.read_text().split("\n")
    return [parse(line) for line in lines[:-1]]


def parse(text: str) -> Entry:
    """The entry in a line."""
    name, fields = json.loads(text)
    if name == "Wrote":
        shares = tuple(_share(share) for share in fields["shares"])
        return Wrote(fields["id"], shares)
    if name == "ReadResult":
        fields["contents"] = tuple(((w, n), c) for (w, n), c in fields["contents"])
    if name == "Followed":
        fields["updates"] = _updates(fields["updates"])
    return KINDS[name](**fields)


Raw = Sequence[tuple[tuple[str, int], int, int]]


def _updates(raw: Raw) -> tuple[Update, ...]:
    return tuple(((writer, number), time, diff) for (writer, number), time, diff in raw)


def _share(fields: dict[str, object]) -> Share:
    updates = _updates(fields.pop("updates"))  # type: ignore[arg-type]  # as `line` wrote it
    return Share(**fields, updates=updates)  # type: ignore[arg-type]  # as above
