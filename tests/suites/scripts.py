"""The statements of a script, in the order in which they are carried out."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = (".slt", ".test", ".sql")
_BEGINS = re.compile(r"^(statement|query)\b(.*)")
_END = re.compile(r"(\s|;|--[^\n]*(?=\n|\Z))*\Z")
_QUERY = re.compile(
    r"\s*(--[^\n]*\n\s*)*[(\s]*(SELECT|WITH|FROM|VALUES|TABLE|PIVOT|UNPIVOT)\b", re.IGNORECASE
)


@dataclass(frozen=True)
class Statement:
    """SQL without its semicolon, and the line, from 1 on, at which it begins."""

    file: str
    line: int
    text: str

    @property
    def is_query(self) -> bool:
        """Whether it reads and does no more."""
        return _QUERY.match(self.text) is not None


def statements(path: Path, root: Path) -> Iterator[Statement]:
    """What a script says, but for what it says must fail.

    Errors: OSError for a file that is not there, an included one too.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    read = _records if ".slt" in path.name or path.suffix == ".test" else _separated
    name = str(path.relative_to(root)) if path.is_relative_to(root) else path.name
    for line, statement in read(text):
        if isinstance(statement, Path):
            yield from statements((path.parent / statement).resolve(), root)
        elif text := _END.sub("", statement).strip():
            yield Statement(name, line, text)


def _records(text: str) -> Iterator[tuple[int, str | Path]]:
    """The records of sqllogictest: a head, SQL up to `----` or an empty line, an answer."""
    lines = text.splitlines()
    place = 0
    while place < len(lines):
        head = lines[place]
        place += 1
        if head.startswith("include ") and "*" not in head:
            yield place, Path(head.removeprefix("include ").strip())
        match = _BEGINS.match(head)
        if match is None:
            continue
        begin = place
        while place < len(lines) and lines[place].strip() and lines[place] != "----":
            place += 1
        if "error" not in match[2].split():
            yield begin + 1, "\n".join(lines[begin:place])
        while place < len(lines) and lines[place].strip():
            place += 1


def _separated(text: str) -> Iterator[tuple[int, str | Path]]:
    """Statements that end with a semicolon at the end of a line."""
    waiting: list[str] = []
    first = 1
    for number, line in enumerate(text.splitlines(), start=1):
        if not waiting and (not line.strip() or line.startswith(("--", "\\"))):
            continue
        if not waiting:
            first = number
        waiting.append(line)
        if line.split("--")[0].rstrip().endswith(";"):
            yield first, "\n".join(waiting)
            waiting = []
    if waiting:
        yield first, "\n".join(waiting)
