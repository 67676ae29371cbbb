"""`slackwater audit`: views compared with their queries, at random times of their history."""

import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from streams.app import signals
from streams.app.client import Client
from streams.app.client_options import DIRECTORY, DirectoryOption
from streams.app.common_options import with_options
from streams.app.coordinator_access import Access
from streams.app.environment_access import find
from streams.app.error_output import FAILED, NO_ENVIRONMENT, failed
from streams.errors import InvalidStatement, InvalidUsage, SlackwaterError
from streams.plan.type_names import quoted

VIEW = "materialized view"


@dataclass(slots=True)
class ViewTotals:
    """The verdicts on a view. `refused` is why the last audit could not be done."""

    view: str
    audits: int = 0
    observations: int = 0
    missing: int = 0
    excess: int = 0
    refused: str = ""
    wrong_at: int | None = None

    @property
    def wrong(self) -> int:
        """The rows that differed."""
        return self.missing + self.excess

    def add(self, at: int, rows: int, missing: int, excess: int) -> None:
        """Take one verdict."""
        self.audits += 1
        self.observations += rows + excess
        self.missing += missing
        self.excess += excess
        if missing + excess and self.wrong_at is None:
            self.wrong_at = at


@with_options(Access)
def audit(  # noqa: PLR0913  the options of a command, each by name
    access: Access,
    views: Annotated[
        list[str] | None, typer.Argument(help="Views to audit. Default: all.")
    ] = None,
    *,
    rate: Annotated[
        float, typer.Option(min=0, help="Most audits a second; 0: as many as it can do.")
    ] = 1.0,
    seconds: Annotated[float, typer.Option(min=0, help="End after so many seconds.")] = 10.0,
    observations: Annotated[
        int, typer.Option(min=0, help="End once so many rows were compared; 0: go on.")
    ] = 0,
    directory: DirectoryOption = DIRECTORY,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the figures as JSON, for programs.")
    ] = False,
) -> None:
    """Compare views with their queries over their inputs, at random times of their history.

    Each audit reads the inputs of one view at one time, computes its query from nothing, and
    compares each row with what the view holds at that time. The coordinator writes each
    verdict to the topic NAMESPACE.audits and counts it in /metrics; it also audits by itself,
    one view a minute (--audit-every). A view that cannot be audited is named with the reason.

    Exit codes: 0 no row differed, 1 one did, or nothing could be compared, 2 usage, 3 no
    environment answers.

    Examples:
        slackwater audit
        slackwater audit revenue --seconds 60 --rate 0
        slackwater audit --observations 1000000 --seconds 3600 --rate 0 --json
    """
    try:
        client = access.client() if access.url else find(directory.absolute())[0]
    except InvalidUsage as error:
        raise failed(error, NO_ENVIRONMENT, as_json=as_json) from error
    try:
        names = views or [str(x["name"]) for x in client.objects() if x["kind"] == VIEW]
        totals = {name: ViewTotals(name) for name in names}
        limit = Limit(rate, seconds, observations)
        _watched(client, totals, limit, is_shown=sys.stderr.isatty() and not as_json)
    except SlackwaterError as error:
        raise failed(error, as_json=as_json) from error
    conclude(list(totals.values()), as_json=as_json)
    compared = sum(total.audits for total in totals.values())
    is_right = not any(total.wrong for total in totals.values())
    raise typer.Exit(0 if is_right and (compared or not totals) else FAILED)


@dataclass(frozen=True, slots=True)
class Limit:
    """How fast audits go, and when they end. Units: audits a second, seconds, rows."""

    rate: float
    seconds: float
    observations: int

    def paced(self, stopping: signals.Stop) -> Iterator[None]:
        """Yield before each audit until the time is over."""
        began = time.monotonic()
        number = 0
        while time.monotonic() - began < self.seconds:
            yield
            number += 1
            due = began + (number / self.rate if self.rate else 0)
            if stopping.wait(max(0, min(due, began + self.seconds) - time.monotonic())):
                return


def _watched(
    client: Client, totals: dict[str, ViewTotals], limit: Limit, *, is_shown: bool
) -> None:
    """Audit, with a bar where people look."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not is_shown,
    )
    with signals.noted() as stopping, bar:
        task = bar.add_task("auditing", total=limit.observations or limit.seconds)
        began = time.monotonic()
        for _ in limit.paced(stopping):
            audit_one(client, totals)
            done = sum(total.observations for total in totals.values())
            wrong = sum(total.wrong for total in totals.values())
            bar.update(
                task,
                description=f"{done:,} rows compared, {wrong:,} wrong",
                completed=done if limit.observations else time.monotonic() - began,
            )
            if limit.observations and done >= limit.observations:
                return


def audit_one(client: Client, totals: dict[str, ViewTotals]) -> None:
    """Audit one of the views, chosen at random. Errors: Determinate, Indeterminate."""
    if not totals:
        return
    total = random.choice(list(totals.values()))  # noqa: S311  no secret
    try:
        (result,) = client.run(f"AUDIT {quoted(total.view)} TIMES 1")
    except InvalidStatement as error:
        total.refused = "; ".join(part for part in (error.message, error.detail) if part)
        return
    for row in result.dicts():
        at, rows, missing, excess = (
            int(str(row[name])) for name in ("time", "rows", "missing", "excess")
        )
        total.add(at, rows, missing, excess)


def conclude(totals: list[ViewTotals], *, as_json: bool) -> None:
    """Print what was found: a table, or JSON."""
    if as_json:
        sums = {
            name: sum(getattr(total, name) for total in totals)
            for name in ("audits", "observations", "wrong")
        }
        print(json.dumps({**sums, "views": [asdict(total) for total in totals]}, indent=2))  # noqa: T201  for programs
        return
    table = Table("view", "audits", "rows compared", "missing", "excess", "remark")
    for total in totals:
        remark = total.refused
        if total.wrong_at is not None:
            remark = f"wrong at {total.wrong_at}"
        counts = (total.audits, total.observations, total.missing, total.excess)
        table.add_row(escape(total.view), *(f"{count:,}" for count in counts), escape(remark))
    Console().print(table)
