"""Text of others on a terminal: control characters are shown, not obeyed."""

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_IN_CELLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    r"""Return a text for one line: ESC is `\x1b`, a newline `\x0a`."""
    return _CONTROL.sub(_escaped, text)


def printable_lines(text: str) -> str:
    """Return a text for a cell of a table, or a message, which may have several lines."""
    return _IN_CELLS.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return f"\\x{ord(match[0]):02x}"
