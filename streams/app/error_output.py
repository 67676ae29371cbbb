"""Prints the error of a failed command, and chooses its exit code.

People read an error on standard error, in one shape; programs (`--json`) read one object of
type "error" where they read the results.
"""

import typer
from rich.console import Console

from streams.app.printer import Printer
from streams.errors import InvalidStatement, InvalidUsage, SlackwaterError

FAILED, NO_ENVIRONMENT = 1, 3
"""Exit codes: the command was tried and failed; no environment answers."""


class Refused(InvalidUsage):
    """The error of a failed request: what was expected, what came, and what to do."""

    def __init__(self, message: str, detail: str = "", hint: str = "") -> None:
        super().__init__(message, detail, hint)
        self.message, self.detail, self.hint = message, detail, hint

    def __str__(self) -> str:
        return "\n".join(part for part in (self.message, self.detail, self.hint) if part)


def explain(error: SlackwaterError, *, as_json: bool = False) -> None:
    """Show the error; its text is never read as markup."""
    printer = Printer(Console(stderr=not as_json), as_json=as_json)
    if isinstance(error, Refused | InvalidStatement):
        printer.fail(error.message, error.detail, error.hint)
    else:
        printer.fail(str(error))


def failed(error: SlackwaterError, code: int = FAILED, *, as_json: bool = False) -> typer.Exit:
    """Show the error; returns the exit to raise."""
    explain(error, as_json=as_json)
    return typer.Exit(code)
