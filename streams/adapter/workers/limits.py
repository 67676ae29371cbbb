"""Resource limits of one statement, and the errors for exceeding them."""

import json
from dataclasses import dataclass, fields

from streams.errors import InvalidStatement, InvalidUsage

HINT = "read fewer rows or columns, or make a materialized view of it and read that"

WORKING = "working files"
"""Bytes on disk during the execution of a statement."""

LEAST_MEMORY = 256 << 20
LEAST_DISK = 1 << 20
LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one statement.

    Units: `memory` bytes of its process, `rows` bytes of rows at a time, `disk` bytes of
    working files and as many of its answer, `seconds` for each request.
    """

    memory: int = 2 << 30
    rows: int = 512 << 20
    disk: int = 4 << 30
    seconds: float = 60.0

    def __post_init__(self) -> None:
        """Errors: InvalidUsage for limits within which no statement could be answered."""
        for name, least, limit in (
            ("bytes of memory", LEAST_MEMORY, self.memory),
            ("bytes on disk", LEAST_DISK, self.disk),
            ("seconds", LEAST_SECONDS, self.seconds),
        ):
            if limit < least:
                raise InvalidUsage(
                    f"{name}: expected {least:,} or more for a statement, actual {limit:,}"
                )

    def encoded(self) -> str:
        """Encode for the command line of a worker."""
        return json.dumps([getattr(self, field.name) for field in fields(self)])

    @staticmethod
    def decoded(text: str) -> "Limits":
        """The reverse of `encoded`."""
        return Limits(*json.loads(text))


def too_much(expected: str) -> InvalidStatement:
    """Return the error of a statement that takes too much memory."""
    return InvalidStatement("the query takes too much memory", expected, HINT)


def too_much_disk(limits: Limits, what: str) -> InvalidStatement:
    """Return the error of a statement that takes too much disk."""
    mib = limits.disk >> 20
    return InvalidStatement(
        "the query takes too much disk",
        f"expected at most {mib} MiB of {what}, actual more",
        HINT,
    )
