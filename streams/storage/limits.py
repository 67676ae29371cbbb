"""Limits on the size of client commands.

`schemas/CLIENTS.md` has the table; a test compares the two.
"""

from streams.errors import InvalidUsage

LARGEST_ROWS = 256 << 20
"""Bytes of one collection's updates in a command, and of one chunk, when unpacked."""

LARGEST_COUNTED = 1 << 30
"""Bytes of all chunks of a command whose multiplicities are checked, when unpacked."""

MOST_SHARES = MOST_CHUNKS = 4096
"""Collections of an update, and chunks written beforehand: of an update, and of a stage."""

LONGEST_STAGE = 100
"""Characters of a stage's name."""

MOST_PIECES = 16_384
"""Chunks of a cut."""

MOST_DIFF = 1 << 53
"""Largest absolute value of a diff: 512 such updates add up without an overflow."""

LARGEST_DESCRIPTION = 256 << 10
"""Bytes of a description, which is part of the group's state."""

MOST_COLUMNS = 1_600
"""Columns of a collection."""

LONGEST_NAME = 200
"""Characters of a collection's id, and of a group's name: topics are named after it."""


class TooLarge(InvalidUsage):
    """A command, or its response, exceeds a limit."""

    def __init__(self, what: str, most: int, actual: int) -> None:
        super().__init__(what, most, actual)
        self.what, self.most, self.actual = what, most, actual

    def __str__(self) -> str:
        return f"{self.what}: expected at most {self.most}, actual {self.actual}"


def check_size(what: str, most: int, actual: int) -> None:
    """Check a size against its limit. Errors: TooLarge."""
    if actual > most:
        raise TooLarge(what, most, actual)
