"""`slackwater top`: what runs, how far it is behind, and what is wrong, live."""

import contextlib
import json
import sys
import time
from typing import Annotated, cast

import typer
from rich.console import Console
from rich.live import Live

from streams.app.client import Client
from streams.app.client_options import DIRECTORY, DirectoryOption
from streams.app.common_options import with_options
from streams.app.coordinator_access import Access
from streams.app.environment_access import find
from streams.app.error_output import FAILED, NO_ENVIRONMENT, failed
from streams.app.printer import console_for
from streams.app.top.screen import page
from streams.app.top.snapshot import EnvironmentStatus, Snapshot, snapshot
from streams.errors import InvalidUsage, SlackwaterError


@with_options(Access)
def top(
    access: Access,
    directory: DirectoryOption = DIRECTORY,
    *,
    every: Annotated[
        float, typer.Option(min=0.1, help="Seconds from one look to the next.")
    ] = 1.0,
    once: Annotated[
        bool, typer.Option("--once", help="Look once and end; so it does without a terminal.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a look, for programs.")
    ] = False,
) -> None:
    """Show the objects, replicas and materializations of an environment, live.

    What is wrong comes first, then what is under way, then what is furthest behind. `lag` is
    the clock less upper; `speed` is how fast upper advances: 1.0x keeps up, more catches up, 0
    stands. Ctrl-C ends it.

    Exit codes: 0 done; with --once 1 if anything has failed or is stalled, or no replica
    serves; 2 usage; 3 no environment answers.

    Examples:
        slackwater top
        slackwater top --once || echo "something is wrong"
        slackwater top --json --every 5 | jq -c '.objects[] | [.name, .lag_ms]'
    """
    try:
        client = access.client() if access.url else find(directory.absolute())[0]
    except InvalidUsage as error:
        raise failed(error, NO_ENVIRONMENT, as_json=as_json) from error
    looks = Looks(client)
    try:
        looks.take()
    except SlackwaterError as error:
        raise failed(error, NO_ENVIRONMENT, as_json=as_json) from error
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        _show(looks, every, once=once, as_json=as_json)
    is_wrong = bool(looks.seen.wrong) or not looks.seen.replicas
    raise typer.Exit(FAILED if once and is_wrong else 0)


class Looks:
    """The looks at one coordinator: the last snapshot, and why a later look failed."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.trouble = ""
        self._before: tuple[EnvironmentStatus | None, int] = (None, 0)
        self.seen = Snapshot(0, 0, (), (), ())

    def take(self) -> None:
        """Look. Errors: Determinate when no coordinator answers."""
        status = cast(EnvironmentStatus, self.client.status())
        at_ms = time.time_ns() // 1_000_000
        try:
            self.seen = snapshot(status, at_ms, *self._before)
        except KeyError as cause:
            raise InvalidUsage(
                f"the coordinator at {self.client.url} is of another version: its status has no"
                f" {cause}"
            ) from cause
        self._before = status, at_ms
        self.trouble = ""

    def again(self) -> None:
        """Look; what was seen stays, with the reason, when no coordinator answers."""
        try:
            self.take()
        except SlackwaterError as error:
            self.trouble = str(error)


def _show(looks: Looks, every: float, *, once: bool, as_json: bool) -> None:
    """Show each look until Ctrl-C, or one."""
    is_terminal = sys.stdout.isatty()
    if as_json:
        _print_lines(looks, every, once=once)
    elif once or not is_terminal:
        console_for(is_terminal).print(page(looks.seen, looks.client.url))
    else:
        _live(looks, every, Console())


def _print_lines(looks: Looks, every: float, *, once: bool) -> None:
    while True:
        line = {**looks.seen.as_json(), "trouble": looks.trouble or None}
        print(json.dumps(line, ensure_ascii=False), flush=True)  # noqa: T201  the output
        if once:
            return
        time.sleep(every)
        looks.again()


def _live(looks: Looks, every: float, console: Console) -> None:
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            shown = page(looks.seen, looks.client.url, console.height, looks.trouble)
            live.update(shown, refresh=True)
            time.sleep(every)
            looks.again()
