"""`slackwater materialize`: follow collections into an endpoint. Needs nothing but brokers."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from streams.app.common_options import Where, placed, with_options
from streams.app.environment_access import expect_answer, reachable
from streams.app.error_output import NO_ENVIRONMENT, failed
from streams.app.printer import WIDE
from streams.app.service_config import Service
from streams.app.service_options import Exposure
from streams.app.service_process import LogFormatOption, ended, now_ms
from streams.app.signals import Stop, noted, unfinished
from streams.errors import Determinate, InvalidUsage, SlackwaterError
from streams.kafka.client.broker import KafkaBroker
from streams.log_lines import JSON, configure
from streams.storage.client.shards import Shards

if TYPE_CHECKING:
    from connectors.driver import Driver
    from connectors.runtime.runner import Status
    from connectors.runtime.task import Materialization

app = typer.Typer(
    name="materialize",
    help=(
        "Keep collections in a database, exactly once, all of them at one time. Needs only the"
        " brokers: neither coordinator nor replica.\n\n"
        "Exit codes: 0 done, 1 failed, 2 usage, 3 no environment or no broker."
    ),
    no_args_is_help=True,
)

File = Annotated[
    Path,
    typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="The task, as YAML."),
]


@dataclass(frozen=True, slots=True)
class BrokerShards:
    """Brokers, and a client of their shards."""

    broker: KafkaBroker
    shards: Shards
    namespace: str


@app.callback()
def materialize() -> None:
    """Keep collections in a database."""


@app.command()
@with_options(Exposure)
@placed
def run(  # noqa: PLR0913  the options of a command, each by name
    where: Where,
    exposure: Exposure,
    file: File,
    *,
    until_caught_up: Annotated[
        bool,
        typer.Option(
            "--until-caught-up",
            help="Exit once the tables hold everything that the collections hold now.",
        ),
    ] = False,
    backfill: Annotated[
        Literal["spark"] | None,
        typer.Option(help="Write the initial contents in a Spark job, then follow changes."),
    ] = None,
    master: Annotated[
        str,
        typer.Option(help="Spark's master. Default: the file's, or Spark's own configuration."),
    ] = "",
    ranges: Annotated[
        int | None,
        typer.Option(help="Key ranges of the backfill. Default: the file's; 8, or its shards."),
    ] = None,
    log_format: LogFormatOption = "text",
) -> None:
    """Follow the collections of a task into its endpoint, until Ctrl-C.

    Run it again after whatever has happened: it goes on where the endpoint says it is.

    Examples:
        slackwater materialize run shop.yaml
        slackwater materialize run shop.yaml --until-caught-up --json
        slackwater materialize run shop.yaml --listen 127.0.0.1:9464
        slackwater materialize run shop.yaml --backfill spark --master 'local[4,4]' --ranges 16
    """
    if backfill is None and (master or ranges is not None):
        raise typer.BadParameter("--master and --ranges need --backfill spark: add it")
    if log_format == JSON:
        configure(log_format, "materialize", sys.stderr)  # reports are on standard output
    spark = {"by": backfill, "master": master or None, "ranges": ranges} if backfill else {}
    with (
        noted() as stopping,
        begun(where, file, backfill=spark) as (place, task),
        measured(task, exposure) as measure,
    ):
        status = followed(place, task, where, stopping, until_caught_up, measure)
    if until_caught_up and status.state != "done":
        raise unfinished(stopping.number)


@app.command()
@with_options(Exposure)
@placed
def serve(
    where: Where,
    exposure: Exposure,
    *,
    master: Annotated[
        str,
        typer.Option(
            help="Spark's master for BACKFILL BY SPARK. Default: by Spark's own configuration."
        ),
    ] = "",
    log_format: LogFormatOption = "text",
) -> None:
    """Run what CREATE MATERIALIZATION has defined, until Ctrl-C.

    An environment runs this service itself; this command is for another machine. Of two
    services in a namespace the newer one continues and the older one exits, with 3.

    Examples:
        slackwater materialize serve --brokers kafka.example:9092 --namespace shop
    """
    from streams.app.materialize.service import run as serve_until  # noqa: PLC0415

    configure(log_format, "materializations", sys.stdout)
    with noted() as stopping:
        try:
            kafka, namespace = where.resolve()
            reachable(kafka)
        except SlackwaterError as error:
            raise ended(error, log_format, NO_ENVIRONMENT, as_json=where.as_json) from error
        service = Service(
            bootstrap=kafka.bootstrap,
            client=dict(kafka.extra),
            directory=str(where.directory),
            namespace=namespace,
            master=master,
        )
        service = exposure.applied(service)
        try:
            code = serve_until(service, stopping)
        except SlackwaterError as error:
            raise ended(error, log_format, as_json=where.as_json) from error
    raise typer.Exit(code)


@app.command()
@placed
def drop(where: Where, file: File) -> None:
    """Give up what a task holds of its collections, and its log: it is to run no more.

    Its tables stay as they are, and so does what the endpoint notes of the task.

    Examples:
        slackwater materialize drop shop.yaml
    """
    from connectors.runtime.follower import CollectionFollower  # noqa: PLC0415  it loads DuckDB
    from connectors.runtime.recovery import RecoveryLog  # noqa: PLC0415

    with begun(where, file) as (place, task):
        collections = CollectionFollower(place.shards, task.task, task.collections).drop()
        RecoveryLog(place.shards, task.task).drop()
    if where.as_json:
        typer.echo(
            json.dumps({"type": "dropped", "task": task.task, "collections": collections})
        )
        return
    typer.echo(
        f"{task.task}: holds nothing more of {', '.join(collections) or 'any collection'}"
    )


@contextmanager
def begun(
    where: Where, file: Path, *, backfill: Mapping[str, object] | None = None
) -> Iterator[tuple[BrokerShards, "Materialization"]]:
    """The brokers and the task; what goes wrong becomes an answer and an exit code.

    What `backfill` says goes before what the file says.
    """
    from streams.app.materialize.catalog_lookup import named  # noqa: PLC0415  and the SQL parser
    from streams.app.materialize.task_file import read  # noqa: PLC0415  it loads DuckDB

    with ExitStack() as stack:
        try:
            task = read(file, backfill or {})
        except InvalidUsage as error:
            raise failed(error, as_json=where.as_json) from error
        try:
            place = stack.enter_context(placed_at(where))
        except (InvalidUsage, Determinate) as error:
            raise failed(error, NO_ENVIRONMENT, as_json=where.as_json) from error
        try:
            broker = place.broker
            yield place, named(task, broker.logs, broker.topics, place.namespace)
        except SlackwaterError as error:
            raise failed(error, as_json=where.as_json) from error


@contextmanager
def measured(
    task: "Materialization", exposure: Exposure
) -> "Iterator[Callable[[Status], None]]":
    """Answer HTTP, if it is asked for; yield what takes reports. Errors: InvalidUsage."""
    service = exposure.applied(Service(bootstrap="", directory=""))
    if service.listening is None:
        yield lambda _: None
        return
    from streams.app.endpoint import probed  # noqa: PLC0415
    from streams.app.materialize.latest_report import LatestReport  # noqa: PLC0415
    from streams.http.server import Probes  # noqa: PLC0415

    latest = LatestReport(task.task, task.connector)
    probes = Probes(why_not_ready=latest.why_not_ready, metrics=latest.text)
    with probed(service, probes):
        yield latest.report


def followed(
    place: BrokerShards,
    task: "Materialization",
    where: Where,
    stopping: Stop,
    until_caught_up: bool,  # noqa: FBT001  as the option
    measure: "Callable[[Status], None]" = lambda _: None,
) -> "Status":
    """Run the task, after its backfill. Errors: InvalidUsage and whatever ends it."""
    from connectors.runtime.runner import Runner  # noqa: PLC0415
    from streams.app.connector.lookup import OURS, driver_of  # noqa: PLC0415
    from streams.app.materialize import task_file as files  # noqa: PLC0415
    from streams.app.materialize.dead_letters import KafkaLetters  # noqa: PLC0415
    from streams.app.materialize.status_output import shown  # noqa: PLC0415

    console = Console() if sys.stdout.isatty() else Console(width=WIDE)
    broker = place.broker
    with (
        driver_of(task.connector) as driver,
        shown(console, is_json=where.as_json) as screen,
        closing(KafkaLetters(broker, place.shards.namespace, task.task)) as letters,
    ):
        is_ours = task.connector in OURS
        task = files.with_secrets(task, driver, os.environ, is_ours=is_ours)

        def report(status: "Status") -> None:
            screen.show(status)
            measure(status)

        before = filled(place, task, driver, stopping, report)

        def report_on(status: "Status") -> None:
            report(status if before is None else after_fill(before, status))

        runner = Runner(
            task,
            driver,
            place.shards,
            now_ms=now_ms,
            stopping=stopping,
            report=report_on,
            letters=letters,
        )
        return runner.run(until_caught_up=until_caught_up)


def filled(
    place: BrokerShards,
    task: "Materialization",
    driver: "Driver",
    stopping: Stop,
    report: "Callable[[Status], None]",
) -> "Status | None":
    """Run the backfill, if the task has one; return its status. Errors: as `Backfill.run`."""
    if task.backfill is None:
        return None
    from connectors.backfill.backfill import Backfill, ranges_of  # noqa: PLC0415
    from streams.app.materialize.backfill import jobs_of  # noqa: PLC0415

    jobs = jobs_of(task, place.broker.settings, "")
    assert jobs is not None, "the task has a backfill"
    return Backfill(
        task,
        driver,
        place.shards,
        ranges=ranges_of(task),
        job=jobs(stopping),
        stopping=stopping,
        report=report,
    ).run()


def after_fill(before: "Status", status: "Status") -> "Status":
    """The status of a follow, whose counts continue those of the backfill before it."""
    return replace(
        status,
        rows=before.rows + status.rows,
        commits=before.commits + status.commits,
        errors=before.errors + status.errors,
    )


@contextmanager
def placed_at(where: Where) -> Iterator[BrokerShards]:
    """The brokers that the options name. Errors: InvalidUsage, Determinate."""
    settings, namespace = where.resolve()
    broker = KafkaBroker(settings)
    try:
        expect_answer(broker.topics, settings)
        shards = Shards(
            broker.logs,
            broker.chunks,
            broker.topics,
            namespace=namespace,
            now_ms=now_ms,
            pump=True,
        )
        try:
            yield BrokerShards(broker, shards, namespace)
        finally:
            shards.close()
    finally:
        broker.close()
