"""What one statement may take of the machine, and the errors of one that wants more."""

import json
from dataclasses import dataclass, fields

from streams.errors import InvalidStatement, InvalidUsage

HINT = "read fewer rows or columns, or make a materialized view of it and read that"

WORKING = "working files"
"""What a statement puts on disk while it is computed."""

LEAST_MEMORY = 256 << 20
LEAST_DISK = 1 << 20
LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What one statement may take.

    Units: `memory` bytes of its process, `rows` bytes of rows at a time, `disk` bytes of
    working files and as many of its answer, `seconds` for each request.
    """

    memory: int = 2 << 30
    rows: int = 512 << 20
    disk: int = 4 << 30
    seconds: float = 60.0

    def __post_init__(self) -> None:
        """Errors: InvalidUsage for limits within which no statement could be answered."""
        for name, least, got in (
            ("bytes of memory", LEAST_MEMORY, self.memory),
            ("bytes on disk", LEAST_DISK, self.disk),
            ("seconds", LEAST_SECONDS, self.seconds),
        ):
            if got < least:
                raise InvalidUsage(f"a statement has {least:,} {name} at least, got {got:,}")

    def encoded(self) -> str:
        """For the command line of a worker."""
        return json.dumps([getattr(self, each.name) for each in fields(self)])

    @staticmethod
    def decoded(text: str) -> "Limits":
        """The reverse of `encoded`."""
        return Limits(*json.loads(text))


def too_much(expected: str) -> InvalidStatement:
    """The error of a statement that takes too much memory."""
    return InvalidStatement("the query takes too much memory", expected, HINT)


def too_much_disk(limits: Limits, what: str) -> InvalidStatement:
    """The error of a statement that puts too much on disk."""
    mib = limits.disk >> 20
    return InvalidStatement(
        "the query takes too much disk", f"expected at most {mib} MiB of {what}, got more", HINT
    )
