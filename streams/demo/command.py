"""`slackwater demo`: the main job on real data, watched live and checked at the end."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from streams.app import signals
from streams.app.error_output import failed
from streams.demo.report import DemoOptions, Report
from streams.demo.run import run
from streams.errors import InvalidUsage, SlackwaterError
from streams.temporary import temporary_directory

DAY_S = 86_400.0


def demo(  # noqa: PLR0913, PLR0917  one argument an option
    events: Annotated[
        int, typer.Option(help="How many messages to replay.", min=5_000)
    ] = 200_000,
    speed: Annotated[
        float, typer.Option(help="Seconds of 2013 per second; 0 is as fast as possible.", min=0)
    ] = DAY_S,
    times: Annotated[int, typer.Option(help="Times to check each view at.", min=2)] = 25,
    headless: Annotated[bool, typer.Option("--headless", help="Do not draw the page.")] = False,  # noqa: FBT002  a flag
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to this file.")
    ] = None,
    postgres: Annotated[  # noqa: FBT002  a flag
        bool,
        typer.Option(
            "--postgres", help="Keep the views in a PostgreSQL too, and check every commit."
        ),
    ] = False,
    brokers: Annotated[str, typer.Option(help="Use this Kafka, not an embedded one.")] = "",
    directory: Annotated[
        Path | None, typer.Option(help="Keep all files here. Default: a temporary directory.")
    ] = None,
) -> None:
    """Replay the 2013 New York flights, maintain seven views over them, and check every one.

    Exit codes: 0 if every view was exact at every time that was checked, 1 if not, 2 if it
    cannot start here, for example because an earlier demo has left its topics.

    Examples:
        slackwater demo
        slackwater demo --speed 0 --events 1800000
        slackwater demo --headless --json figures.json
        slackwater demo --postgres
    """
    console = Console()
    with _directory(directory) as place:
        choices = DemoOptions(
            directory=place,
            brokers=brokers,
            events=events,
            speed=speed,
            times=times,
            page=not headless and console.is_terminal,
            postgres=postgres,
        )
        report = _played(choices, console)
    if json_file is not None:
        json_file.write_text(json.dumps(report.figures(), indent=2) + "\n")
    _conclude(report, console)
    raise typer.Exit(0 if report.is_exact else 1)


def _played(choices: DemoOptions, console: Console) -> Report:
    with signals.noted() as stopping:
        try:
            return run(choices, console, stopping)
        except signals.Stopped:
            console.print("[dim]stopped[/]")
            raise typer.Exit(128 + stopping.number) from None
        except SlackwaterError as error:
            raise failed(error, 2 if isinstance(error, InvalidUsage) else 1) from error


def _conclude(report: Report, console: Console) -> None:
    checked = len(report.verdicts)
    right = sum(1 for verdict in report.verdicts if not verdict.wrong)
    console.print(
        f"{report.events:,} messages in {report.seconds:.1f} s"
        f" ({report.events_per_second:,.0f}/s), fresh in {report.freshness_p50_ms:.0f} ms"
        f" (p90 {report.freshness_p90_ms:.0f} ms)"
    )
    if report.kept is not None:
        console.print(
            f"{report.kept.commits:,} commits in PostgreSQL, {report.kept.rows:,} rows written,"
            f" {report.kept.lag_p50_ms:,.0f} ms after what they hold"
            f" (p90 {report.kept.lag_p90_ms:,.0f} ms)"
        )
    colour = "green" if report.is_exact else "red"
    console.print(f"[bold {colour}]exact: {right} of {checked}[/]")
    for problem in report.problems:
        console.print(Text(problem, "red"), highlight=False)


@contextmanager
def _directory(chosen: Path | None) -> Iterator[Path]:
    if chosen is not None:
        yield chosen.absolute()
        return
    with temporary_directory("slackwater-") as scratch:
        yield Path(scratch)
