"""Print the part of a lock that some of its roots need, with their hashes.

    python docker/locked.py requirements.lock slackwater     what runs, without tests and tools
    python docker/locked.py requirements.lock hatchling      what builds the wheel

`uv pip compile` notes below each package who requires it (`# via`): those notes are followed.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

PROJECT = re.compile(r"(\w+) \(pyproject\.toml\)")
ANOTHER = re.compile(r"\(pyproject\.toml:\w+\)")
"""A group of the project's, such as that of the tests: it is not installed with it."""


def entries(lock: str) -> Iterator[tuple[str, str]]:
    """Each package's name, and its lines."""
    for entry in re.split(r"^(?=\S)", lock, flags=re.MULTILINE):
        if name := re.match(r"([\w.-]+)==", entry):
            yield name[1], entry


def requirers(entry: str) -> set[str]:
    """Who requires the package of an entry."""
    _, _, notes = entry.partition("# via")
    lines = (line.strip(" #") for line in notes.splitlines())
    return {PROJECT.sub(r"\1", line) for line in lines if line and not ANOTHER.search(line)}


def needed(packages: Mapping[str, str], roots: set[str]) -> set[str]:
    """The packages that the roots need, with those of the roots that are packages."""
    by = {name: requirers(entry) for name, entry in packages.items()}
    found = roots & packages.keys()
    while more := {name for name in by.keys() - found if by[name] & (found | roots)}:
        found |= more
    return found


def part(lock: str, roots: set[str]) -> str:
    """The lines of the lock that the roots need."""
    packages = dict(entries(lock))
    return "".join(packages[name] for name in sorted(needed(packages, roots)))


if __name__ == "__main__":
    sys.stdout.write(part(Path(sys.argv[1]).read_text(), set(sys.argv[2:])))
