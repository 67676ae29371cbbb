"""`slackwater torture`: many faults in a short time, with every answer checked."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from streams.app.environment import Environment
from streams.app.error_output import FAILED, failed
from streams.app.signals import Stop, Stopped, noted, unfinished
from streams.errors import SlackwaterError
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.embedded import EmbeddedBroker
from streams.kafka.settings import ClientSettings
from streams.temporary import temporary_directory
from streams.torture.compute.run import Torture
from streams.torture.connectors.databases import NAMES, installed, places
from streams.torture.connectors.run import Broker, Run
from streams.torture.hostile.attack_rounds import Assault
from streams.torture.hostile.scene import scene, settings
from streams.torture.hostile.surfaces import SURFACES
from streams.torture.journal import Entry
from streams.torture.oracle import Verdict
from streams.torture.report import Report
from streams.torture.simulation import Simulation
from streams.torture.soak import Soak, new_seed
from streams.torture.zygote import Zygote

SECONDS = 60.0

app = typer.Typer(
    help="Soak tests: kills, outages, races, hostile input. Every answer is checked.",
    no_args_is_help=True,
)

Seconds = Annotated[float, typer.Option(help="How long to run, on a real broker.", min=5)]
Seed = Annotated[
    int | None, typer.Option(help="The seed of a run to repeat. Default: a new one.", min=0)
]
Json = Annotated[Path | None, typer.Option("--json", help="Write the outcome to this file.")]
Memory = Annotated[
    bool,
    typer.Option("--memory", help="Simulate in this process; the seed determines everything."),
]
Steps = Annotated[int, typer.Option(help="How many steps to simulate.", min=1)]
Rounds = Annotated[int, typer.Option(help="Stop after this many rounds.", min=1)]
Keep = Annotated[Path | None, typer.Option(help="Keep the environment's files and logs here.")]
Only = Annotated[
    list[str] | None,
    typer.Option(help=f"One of {', '.join(SURFACES)}; may be repeated. Default: all of them."),
]
Evidence = Annotated[
    Path, typer.Option(help="Where to write the evidence, if an answer was wrong.")
]

_console = Console(stderr=True)


@app.callback()
def torture() -> None:
    """Soak tests: kills, outages, races, hostile input. Every answer is checked."""


@app.command()
def storage(
    *,
    seconds: Seconds = SECONDS,
    seed: Seed = None,
    json: Json = None,
    memory: Memory = False,
    steps: Steps = 2_000,
    evidence: Evidence = Path("torture-evidence.jsonl"),
) -> None:
    """Writers, readers, compactors; kills, outages, late and doubled writes, skewed clocks.

    Every write is remembered with what its writer was told, and every read is compared with
    that: snapshots at any time that is held, and listens resumed anywhere. Runs on an embedded
    broker of its own, in processes that are killed, or with --memory as a simulation that a
    seed reproduces step by step.

    Exit codes: 0 nothing was wrong, 1 something was, or the broker does not start, 2 usage.

    Examples:
        slackwater torture storage --seconds 300
        slackwater torture storage --memory --steps 5000 --seed 7
    """
    chosen = new_seed() if seed is None else seed
    typer.echo(f"seed {chosen}")
    began = time.monotonic()
    try:
        with quiet(), ending_early() as stopping:
            if memory:
                verdict, entries = simulated(chosen, steps, stopping)
            else:
                verdict, entries = soaked(chosen, seconds, stopping)
    except SlackwaterError as error:
        raise failed(error) from error
    how = f"--memory --steps {steps}" if memory else f"--seconds {seconds:g}"
    again = f"slackwater torture storage {how} --seed {chosen}"
    report = Report(chosen, again, time.monotonic() - began, verdict, stopping.number)
    told(report, json)
    if verdict.wrong:
        report.write_evidence(evidence, entries)
        _console.print(f"the evidence is in {evidence}", highlight=False)
        raise typer.Exit(FAILED)


@app.command("input")
def input_(  # noqa: PLR0913  the options of a command, each by name
    *,
    seconds: Seconds = SECONDS,
    rounds: Rounds = 1_000_000,
    seed: Seed = None,
    json: Json = None,
    evidence: Evidence = Path("torture-evidence.jsonl"),
    keep: Keep = None,
    only: Only = None,
) -> None:
    """Random and mutated input from outside, in rounds; honest clients must not notice.

    Commands, chunks, records of logs, Rollups, raw messages, SQL, HTTP and Avro bytes go to a
    running environment. After each round every process has to live, and honest clients have to
    get right answers in time, from a collection and from a view.

    Exit codes: 0 nothing was wrong, 1 something was, or nothing could be started, 2 usage.

    Examples:
        slackwater torture input --seconds 60
        slackwater torture input --seconds 3600 --rounds 1000 --seed 7 --keep evidence
        slackwater torture input --only chunk --only rows
    """
    chosen = new_seed() if seed is None else seed
    typer.echo(f"seed {chosen}")
    began = time.monotonic()
    try:
        with quiet(), ending_early() as stopping:
            length = (seconds, rounds)
            assault, verdict = assaulted(chosen, length, keep, surfaces(only), stopping)
    except SlackwaterError as error:
        raise failed(error) from error
    again = f"slackwater torture input --seconds {seconds:g} --seed {chosen}"
    report = Report(chosen, again, time.monotonic() - began, verdict, stopping.number)
    told(report, json)
    if verdict.wrong:
        evidence.write_text("".join(f"{line}\n" for line in assault.evidence))
        _console.print(f"the last inputs are in {evidence}", highlight=False)
        raise typer.Exit(FAILED)


@app.command()
def connectors(
    *,
    seconds: Seconds = SECONDS,
    seed: Seed = None,
    json: Json = None,
    database: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(NAMES)}; may be repeated. Default: all."),
    ] = None,
) -> None:
    """Faults at the messages between a materialization and its connector, one after another.

    Either side dies, stalls, says something twice, or stands still until another one has taken
    over, at the n-th message of each kind: with tables, with tables of every change, while a
    task is split into key ranges, while ranges are merged, and with dead letters. After each
    commit every row is compared with the collection at the time that the table says it has.
    Runs on an embedded broker of its own, into SQLite, PostgreSQL (the wheel, if it is
    installed) and DuckDB in turn; some connectors are processes that are killed.

    Exit codes: 0 nothing was wrong, 1 something was, or the broker does not start, 2 usage.

    Examples:
        slackwater torture connectors --seconds 600
        slackwater torture connectors --seed 7 --json outcome.json
        slackwater torture connectors --database postgres
    """
    names = known(database)
    into = "".join(f" --database {name}" for name in names)
    command = f"connectors --seconds {seconds:g}{into}"
    tortured(command, seed, json, partial(struck, seconds, names))


@app.command()
def compute(
    *,
    seconds: Seconds = SECONDS,
    seed: Seed = None,
    json: Json = None,
    keep: Keep = None,
) -> None:
    """A controller and two replicas of one instance: killed, stopped, resumed, replaced.

    Views and indexes come and go, orders are written, peeks are asked by index and of shards,
    copies too, views are subscribed to, and some are canceled. Every peek has to be answered
    once, as DuckDB answers it over the orders at its time; every view has to equal its query at
    every time; every subscriber gets each change once, at its time; and what controllers and
    replicas say to each other has to keep the rules of the protocol. Runs on an embedded broker
    of its own, with replicas on Spark; the time counts from when both serve.

    Exit codes: 0 nothing was wrong, 1 something was, or the broker does not start, 2 usage.

    Examples:
        slackwater torture compute --seconds 600
        slackwater torture compute --seed 7 --json outcome.json --keep evidence
    """
    command = f"compute --seconds {seconds:g}"
    tortured(command, seed, json, partial(maintained, seconds, keep))


def tortured(
    command: str, seed: int | None, json: Path | None, run: Callable[[int, Stop], Verdict]
) -> None:
    """Run with a seed, and report; `command` repeats it, but for the seed.

    Errors: typer.Exit when something was wrong, or the run could not be made.
    """
    chosen = new_seed() if seed is None else seed
    typer.echo(f"seed {chosen}")
    began = time.monotonic()
    try:
        with quiet(), ending_early() as stopping:
            verdict = run(chosen, stopping)
    except SlackwaterError as error:
        raise failed(error) from error
    again = f"slackwater torture {command} --seed {chosen}"
    told(Report(chosen, again, time.monotonic() - began, verdict, stopping.number), json)
    if verdict.wrong:
        raise typer.Exit(FAILED)


@contextmanager
def quiet() -> Iterator[None]:
    """Without our log lines: failures here are injected."""
    loggers = [logging.getLogger(name) for name in ("streams", "connectors")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def ending_early() -> Iterator[Stop]:
    """A run that is asked to stop ends early, with its findings.

    One that has not begun ends the command. Errors: SystemExit.
    """
    with noted() as stopping:
        try:
            yield stopping
        except Stopped:
            raise unfinished(stopping.number) from None


def told(report: Report, json: Path | None) -> None:
    """The outcome, for people, and for programs if there is a file for it."""
    report.show(Console())
    if json is not None:
        report.write(json)


@contextmanager
def bar(what: str, total: float) -> Iterator[tuple[Progress, TaskID]]:
    """A progress bar on standard error."""
    columns = (TextColumn(what), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=_console, transient=True) as progress:
        yield progress, progress.add_task(what, total=total)


def shown(progress: Progress, task: TaskID, passed: float) -> None:
    """Move the bar: so many seconds have passed."""
    progress.update(task, completed=passed)


def simulated(seed: int, steps: int, stopping: Stop) -> tuple[Verdict, Sequence[Entry]]:
    """A run in memory."""
    run = Simulation(seed)
    with bar("simulating", steps) as (progress, task):
        for _ in range(steps):
            if stopping.is_set():
                break
            run.step()
            progress.advance(task)
    return run.verdict(), run.journal.entries


def soaked(seed: int, seconds: float, stopping: Stop) -> tuple[Verdict, Sequence[Entry]]:
    """A run on a broker of its own. Errors: Determinate when it does not start."""
    with temporary_directory("slackwater-torture-") as scratch:
        place = Path(scratch)
        with (
            Zygote(place / "workers.log") as zygote,
            EmbeddedBroker(place / "broker") as broker,
            bar("torturing", seconds) as (progress, task),
        ):
            tell = partial(shown, progress, task)
            run = Soak(broker, zygote, place, seed, tell, stopping)
            return run.run(seconds), run.evidence


def known(names: Sequence[str] | None) -> tuple[str, ...]:
    """The databases to write; by default all that are here. Errors: typer.BadParameter."""
    unknown = sorted(set(names or ()) - set(NAMES))
    if unknown:
        raise typer.BadParameter(
            f"expected some of {', '.join(NAMES)}, actual {', '.join(unknown)}"
        )
    return tuple(dict.fromkeys(names or installed()))


def struck(seconds: float, names: tuple[str, ...], seed: int, stopping: Stop) -> Verdict:
    """Faults of connectors. Errors: Determinate when a server does not start."""
    with temporary_directory("slackwater-torture-") as scratch:
        place = Path(scratch)
        with (
            EmbeddedBroker(place / "broker") as embedded,
            closing(KafkaBroker(ClientSettings(embedded.bootstrap))) as broker,
            places(names, place) as numbered_places,
            bar("torturing", seconds) as (progress, task),
        ):
            collections = Broker(broker.logs, broker.chunks, broker.topics)
            tell = partial(shown, progress, task)
            return Run(collections, numbered_places, seed, tell, stopping).run(seconds)


def maintained(seconds: float, keep: Path | None, seed: int, stopping: Stop) -> Verdict:
    """A run of controllers and replicas. Errors: Determinate when the broker does not start."""
    with ExitStack() as stack:
        scratch = keep or stack.enter_context(temporary_directory("slackwater-torture-"))
        place = Path(scratch).absolute()
        broker = stack.enter_context(EmbeddedBroker(place / "broker"))
        progress, task = stack.enter_context(bar("torturing", seconds))
        tell = partial(shown, progress, task)
        return Torture(broker.bootstrap, place, seed, tell, stopping).run(seconds)


def assaulted(
    seed: int,
    length: tuple[float, int],
    keep: Path | None,
    only: Sequence[str],
    stopping: Stop,
) -> tuple[Assault, Verdict]:
    """A run of so many seconds or rounds, against an environment of its own.

    Errors: Determinate when it does not start; Stopped when it is asked to stop before it has.
    """
    seconds, rounds = length
    with ExitStack() as stack:
        scratch = keep or stack.enter_context(temporary_directory("slackwater-input-"))
        settled = settings(Path(scratch).absolute())
        environment = stack.enter_context(Environment(settled, stopping=stopping))
        progress, task = stack.enter_context(bar("attacking", seconds))
        tell = partial(shown, progress, task)
        parties = stack.enter_context(scene(environment, str(seed)))
        run = Assault(parties, seed, tell, only, stopping)
        return run, run.run(seconds, rounds)


def surfaces(only: Sequence[str] | None) -> Sequence[str]:
    """The surfaces that are attacked. Errors: typer.BadParameter."""
    unknown = sorted(set(only or ()) - set(SURFACES))
    if unknown:
        raise typer.BadParameter(
            f"expected some of {', '.join(SURFACES)}, actual {unknown[0]!r}"
        )
    return tuple(only or SURFACES)
