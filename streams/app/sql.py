"""`slackwater sql`: a shell against a running environment."""

import contextlib
import readline
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from streams.app.client import Client
from streams.app.client_options import DIRECTORY, DirectoryOption
from streams.app.common_options import with_options
from streams.app.coordinator_access import Access
from streams.app.environment_access import find
from streams.app.error_output import FAILED, NO_ENVIRONMENT, failed
from streams.app.printer import Printer, console_for
from streams.app.progress_bar import watch
from streams.errors import Determinate, Indeterminate, InvalidUsage

LEAVE = {"exit", "quit", "\\q"}
WATCHED = {"CREATE SOURCE", "CREATE MATERIALIZED VIEW", "CREATE REBASE"}
"""The kinds of objects that hydrate after creation."""

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object per line, for programs.")
]


@with_options(Access)
def sql(
    access: Access,
    file: Annotated[
        Path | None, typer.Argument(help="Statements to run.", exists=True, dir_okay=False)
    ] = None,
    command: Annotated[
        list[str] | None,
        typer.Option("-c", "--command", help="Statements to run; may be given several times."),
    ] = None,
    directory: DirectoryOption = DIRECTORY,
    *,
    as_json: AsJson = False,
) -> None:
    """Run SQL from -c, a file or standard input, or start a shell.

    Exit codes: 0 done, 1 a statement failed, 2 usage, 3 no environment answers.

    Examples:
        slackwater sql
        slackwater sql definitions.sql
        slackwater sql -c "SELECT * FROM revenue AS OF 1785000000000"
        slackwater sql -c "SHOW SOURCES" -c "SHOW SINKS"
        slackwater sql --json -c "SUBSCRIBE revenue"
        slackwater sql -c "COPY revenue TO 'file:///srv/shop/.slackwater/exports/revenue'"
        slackwater sql --url https://coordinator.example:8470 --tls-authority ca.pem
            --password-file /run/secrets/slackwater
    """
    if file is not None and command:
        raise typer.BadParameter("expected a file or -c, actual both")
    try:
        client = access.client() if access.url else find(directory.absolute())[0]
    except InvalidUsage as error:
        raise failed(error, NO_ENVIRONMENT) from error
    printer = Printer(console_for(sys.stdout.isatty()), as_json=as_json)
    text = file.read_text() if file is not None else None
    if command:
        text = "\n;\n".join(command)  # one may end with a comment
    if text is None and not sys.stdin.isatty():
        text = sys.stdin.read()
    if text is not None:
        done = not text.strip() or run(client, text, printer)  # nothing to do is done
        raise typer.Exit(0 if done else FAILED)
    shown = sys.stdout.isatty() and not as_json
    console = Console() if shown else None
    _shell(client.in_session(), printer, directory.absolute() / "history", console)


def run(client: Client, text: str, printer: Printer, bar: Console | None = None) -> bool:
    """Run the text and show what comes; whether all of it succeeded.

    Sources and views that the text creates are watched on `bar` until they are hydrated.
    Ctrl-C ends it, and is no failure: it is how a subscription ends.
    """
    succeeded, created = True, list[str]()
    try:
        for message in client.stream(text):
            succeeded = printer.show(message) and succeeded
            match message:
                case {"type": "complete", "tag": str(tag), "facts": {"id": str(id_)}}:
                    created += [id_] if tag in WATCHED else []
                case _:
                    pass
    except KeyboardInterrupt:
        printer.flush()
    except (Determinate, Indeterminate) as error:
        printer.fail(str(error))
        return False
    if bar is not None:
        for id_ in created:
            watch(client, bar, id_)
    return succeeded


def _shell(client: Client, printer: Printer, history: Path, bar: Console | None) -> None:
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    try:
        for text in statements(input):
            run(client, text, printer, bar)
    finally:
        with contextlib.suppress(OSError):
            readline.write_history_file(history)


def statements(ask: Callable[[str], str]) -> Iterator[str]:
    """Statements that the user types, up to each semicolon at the end of a line."""
    lines: list[str] = []
    while True:
        try:
            line = ask("        ... " if lines else "slackwater> ")
        except EOFError:
            return
        except KeyboardInterrupt:
            lines = []
            continue
        if not lines and line.strip() in LEAVE:
            return
        if lines or line.strip():
            lines.append(line)
        if line.rstrip().endswith(";"):
            yield "\n".join(lines)
            lines = []
