"""Scripts as tests: a directive, its input, `----`, and what comes of it.

    # why this case matters
    directive key=value flag
    input lines
    ----
    expected lines

A blank line ends the expected text; where that text has blank lines itself, `----` is doubled
before and after it. Values with spaces are quoted. A failure shows a diff; `REWRITE=1` writes
down what came instead, for the reviewer to read in the diff of the commit.
"""

import difflib
import os
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SEPARATOR = "----"


@dataclass(frozen=True, slots=True)
class Case:
    """One directive of a script, as the handler sees it."""

    directive: str
    arguments: dict[str, str]
    input: str
    line: int

    def __getitem__(self, key: str) -> str:
        return self.arguments[key]

    def get(self, key: str, default: str = "") -> str:
        return self.arguments.get(key, default)

    def number(self, key: str, default: int = 0) -> int:
        return int(self.arguments.get(key, default))

    def lines(self) -> list[list[str]]:
        """The input, line by line, each cut into words."""
        return [shlex.split(line) for line in self.input.splitlines() if line.strip()]


@dataclass(slots=True)
class Block:
    """A stretch of the script: the comments before a case, and the case."""

    before: list[str] = field(default_factory=list)
    head: list[str] = field(default_factory=list)
    line: int = 0

    def case(self) -> Case:
        words = shlex.split(self.head[0])
        arguments = dict(word.partition("=")[::2] for word in words[1:])
        return Case(words[0], arguments, "\n".join(self.head[1:]), self.line)

    def render(self, text: str) -> list[str]:
        lines = text.splitlines()
        mark = [SEPARATOR, SEPARATOR] if "" in lines else [SEPARATOR]
        end = mark if len(mark) > 1 else []
        return [*self.before, *self.head, *mark, *lines, *end, ""]


def scripts(folder: str) -> list[Path]:
    """The scripts of a topic."""
    paths = sorted((Path(__file__).parent.parent / "datadriven" / folder).glob("*.txt"))
    assert paths, f"no scripts in {folder}"
    return paths


def run(script: Path, handle: Callable[[Case], str]) -> None:
    """Run a script; the handler keeps what it needs from case to case."""
    blocks, rest = parse(script.read_text().splitlines())
    rendered: list[str] = []
    for block in blocks:
        rendered += block.render(handle(block.case()).rstrip())
    actual = "\n".join([*rendered, *rest]).rstrip() + "\n"
    if os.environ.get("REWRITE"):
        script.write_text(actual)
        return
    expected = script.read_text().rstrip() + "\n"
    if actual != expected:
        lines = difflib.unified_diff(
            expected.splitlines(), actual.splitlines(), "expected", "actual", lineterm="", n=6
        )
        pytest.fail(f"{script.name}\n" + "\n".join(lines), pytrace=False)


def parse(lines: list[str]) -> tuple[list[Block], list[str]]:
    """The blocks of a script, and the comments after the last."""
    blocks: list[Block] = []
    numbered = enumerate(lines, start=1)
    before: list[str] = []
    for number, line in numbered:
        if not line.strip() or line.startswith("#"):
            before.append(line)
            continue
        block = Block(before=before, line=number, head=[line])
        before = []
        for _, head in numbered:
            if head == SEPARATOR:
                break
            block.head.append(head)
        else:
            pytest.fail(f"line {number}: no {SEPARATOR} after the directive", pytrace=False)
        for _ in expected_of(numbered):
            pass  # the whole text is compared in the end
        blocks.append(block)
    return blocks, before


def expected_of(numbered: Iterator[tuple[int, str]]) -> Iterator[str]:
    """The expected lines that follow a separator; takes the closing ones too."""
    first = next(numbered, (0, ""))[1]
    if first != SEPARATOR:
        if first:
            yield first
            for _, line in numbered:
                if not line:
                    return
                yield line
        return
    previous = None
    for _, line in numbered:
        if line == SEPARATOR and previous == SEPARATOR:
            next(numbered, None)  # the blank line that ends every case
            return
        if previous is not None:
            yield previous
        previous = line
