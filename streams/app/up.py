"""`slackwater up`: an environment in the foreground."""

import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from streams.adapter.workers.limits import LEAST_DISK, LEAST_MEMORY
from streams.app import signals
from streams.app.class_archiving import class_archiving
from streams.app.environment import MASTER, Environment, Settings
from streams.app.service_process import LogFormatOption, ended
from streams.compute.parameters import check_names, check_values
from streams.copies.targets import CopyTargets
from streams.errors import Determinate, InvalidStatement, InvalidUsage
from streams.kafka.topic_settings import topic_choices
from streams.log_lines import JSON, LogFormat, configure
from streams.plan.sql.durations import milliseconds

log = logging.getLogger(__name__)

DIRECTORY = Path(".slackwater")


ClientOption = Annotated[
    list[str] | None,
    typer.Option(
        "--client",
        envvar="SLACKWATER_CLIENT",
        help="A librdkafka setting, NAME=VALUE, or @FILE with one a line. May be repeated.",
    ),
]


NAMESPACE = "sw"
"""The default prefix of our topics' names."""


def client_settings(options: list[str]) -> dict[str, str]:
    """`NAME=VALUE` pairs, and those of `@FILE`s, as settings; the last of a name counts.

    A file keeps secrets off the command line, which everybody on the machine can read. What is
    wrong is never shown: it may be a secret.

    Errors: typer.BadParameter.
    """
    pairs: list[str] = []
    for option in options:
        pairs += lines_of(Path(option[1:])) if option.startswith("@") else [option]
    return named(pairs)


def only_with(brokers: str, client: Mapping[str, str], namespace: str) -> None:
    """Refuse what is said of brokers that are not named: the environment's are as it has them.

    Errors: typer.BadParameter.
    """
    if not brokers and (client or namespace != NAMESPACE):
        raise typer.BadParameter(
            "expected --brokers with --client or --namespace: the environment in --directory"
            " has its own"
        )


def lines_of(file: Path) -> list[str]:
    """The lines of a file but the empty ones and comments, without spaces around `=`.

    Errors: typer.BadParameter.
    """
    try:
        lines = [line.strip() for line in file.read_text().splitlines()]
    except (OSError, ValueError) as cause:
        raise typer.BadParameter(f"expected a file of NAME=VALUE lines at {file}") from cause
    settings = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return [f"{name.strip()}{equals}{value.strip()}" for name, equals, value in settings]


def named(pairs: list[str]) -> dict[str, str]:
    """`NAME=VALUE` pairs by name. Errors: typer.BadParameter."""
    split = [pair.partition("=") for pair in pairs]
    for number, (name, equals, _) in enumerate(split, 1):
        if not equals or not name.strip():
            raise typer.BadParameter(
                f"expected NAME=VALUE, got another form at number {number}"
            )
    return {name.strip(): value for name, _, value in split}


def chosen_topics(options: list[str]) -> dict[str, str]:
    """`NAME=VALUE` pairs that choose something of our topics. Errors: typer.BadParameter."""
    pairs = named(options)
    try:
        topic_choices(pairs)
    except InvalidUsage as error:
        raise typer.BadParameter(str(error)) from error
    return pairs


def chosen_parameters(options: list[str]) -> dict[str, int]:
    """`NAME=VALUE` pairs of what replicas go by. Errors: typer.BadParameter."""
    try:
        values = {name: int(value) for name, value in named(options).items()}
    except ValueError as error:
        raise typer.BadParameter("expected NAME=VALUE with a whole number") from error
    try:
        check_names(values)
        check_values(values)
    except InvalidUsage as error:
        raise typer.BadParameter(str(error)) from error
    return values


def duration(text: str) -> int:
    """The milliseconds of a duration. Errors: typer.BadParameter."""
    try:
        return milliseconds(text)
    except InvalidStatement as error:
        raise typer.BadParameter(f"{error.message}: {error.hint}") from error


def deadline(text: str) -> int:
    """The milliseconds of a step's or a statement's deadline. Errors: typer.BadParameter."""
    ms = duration(text)
    if ms < LEAST_DEADLINE_MS:
        raise typer.BadParameter(f"expected at least one second, got {text!r}")
    return ms


LEAST_DEADLINE_MS = 1000

SliceOption = Annotated[
    int, typer.Option(min=1, help="Bytes of stored input that a hydration reads at a time.")
]


IndexMemoryOption = Annotated[
    int, typer.Option(min=0, help="Bytes of memory for all indexes of a replica together.")
]

ResidentOption = Annotated[
    int | None,
    typer.Option(
        "--resident-tasks",
        min=0,
        help=(
            "Tasks of Spark's that stay, for small steps, each with a core of its own; 0: none."
            " Default: 1 on this machine, 0 on a cluster."
        ),
    ),
]

DeadlineOption = Annotated[
    str, typer.Option(help="Deadline of the smallest micro-batch; larger ones get more.")
]

RetainOption = Annotated[
    str, typer.Option(help="How much history to keep, unless an object sets its own.")
]


BrokersOption = Annotated[
    str,
    typer.Option(
        envvar="SLACKWATER_BROKERS",
        help="Kafka brokers, HOST:PORT[,...]. Default: an embedded broker.",
    ),
]

DirectoryOption = Annotated[
    Path, typer.Option(envvar="SLACKWATER_DIRECTORY", help="The environment's directory.")
]

NamespaceOption = Annotated[
    str,
    typer.Option(envvar="SLACKWATER_NAMESPACE", help="Prefix of Slackwater's topic names."),
]

TopicOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        help="A setting of topics that Slackwater creates, NAME=VALUE. May be repeated.",
    ),
]

StatementsOption = Annotated[
    int, typer.Option(min=1, help="How many statements run at a time; others wait.")
]

StatementMemoryOption = Annotated[
    int, typer.Option(min=LEAST_MEMORY, help="Bytes of memory that a statement may use.")
]

StatementDiskOption = Annotated[
    int,
    typer.Option(
        min=LEAST_DISK,
        help="Bytes of disk for a statement's working files, and for its answer.",
    ),
]

AuditOption = Annotated[
    float,
    typer.Option(
        "--audit-every",
        metavar="SECONDS",
        min=0,
        help="Seconds between audits, each of one view at one random time; 0: no audits.",
    ),
]

CopyToOption = Annotated[
    list[str] | None,
    typer.Option(
        "--copy-to",
        envvar="SLACKWATER_COPY_TO",
        metavar="URI",
        help=(
            "COPY may write below this URI, as file:///exports or s3://bucket/exports; it may"
            " have credentials and options of the file system. May be repeated."
        ),
    ),
]

ParameterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter",
        envvar="SLACKWATER_PARAMETER",
        metavar="NAME=VALUE",
        help="A parameter of the replicas, as heartbeat_ms=1000. May be repeated.",
    ),
]

StatementDeadlineOption = Annotated[
    str, typer.Option(help="How long planning a statement may take, and running it.")
]


def up(  # noqa: PLR0913, PLR0917  the options of a command, each by name
    brokers: BrokersOption = "",
    directory: DirectoryOption = DIRECTORY,
    client: ClientOption = None,
    topic: TopicOption = None,
    namespace: NamespaceOption = NAMESPACE,
    master: Annotated[str, typer.Option(help="Spark's master. Default: this machine.")] = "",
    retain: RetainOption = "1 hour",
    slice_bytes: SliceOption = 16 << 20,
    index_memory: IndexMemoryOption = 512 << 20,
    resident_tasks: ResidentOption = None,
    step_deadline: DeadlineOption = "1 minute",
    statements: StatementsOption = 4,
    statement_memory: StatementMemoryOption = 2 << 30,
    statement_disk: StatementDiskOption = 4 << 30,
    statement_deadline: StatementDeadlineOption = "1 minute",
    audit_every: AuditOption = 60.0,
    copy_to: CopyToOption = None,
    log_format: LogFormatOption = "text",
) -> None:
    """Start an environment and run it until Ctrl-C.

    Starts a broker (unless --brokers), a coordinator, a replica, compaction, storage's service
    and that of materializations, and restarts each. COPY may write below `exports`, too.

    Examples:
        slackwater up --brokers kafka.example:9092 --client @client.properties
        slackwater up --brokers kafka.example:9092 --topic data.segment.bytes=16777216
    """
    settings = Settings(
        directory=directory.absolute(),
        brokers=brokers,
        client=client_settings(client or []),
        topics=chosen_topics(topic or []),
        namespace=namespace,
        master=master or MASTER,
        retain_ms=duration(retain),
        slice_bytes=slice_bytes,
        index_memory=index_memory,
        resident_tasks=resident_tasks,
        deadline_ms=deadline(step_deadline),
        statements=statements,
        statement_memory=statement_memory,
        statement_disk=statement_disk,
        statement_ms=deadline(statement_deadline),
        audit_every_s=audit_every,
        copy_to=chosen_targets(copy_to),
        log_format=log_format,
    )
    _run_reporting(settings, teller(log_format))


def chosen_targets(uris: list[str] | None) -> list[str]:
    """Return the URIs below which COPY may write. Errors: typer.BadParameter."""
    try:
        CopyTargets.of(uris or [])
    except InvalidUsage as error:
        raise typer.BadParameter(str(error)) from error
    return uris or []


def teller(log_format: LogFormat) -> Callable[[str], None]:
    """Return what tells people, in Rich's markup, or the log of this process, what happens."""
    if log_format == JSON:
        configure(log_format, "up", sys.stdout)
        return lambda markup: log.info("%s", Text.from_markup(markup).plain)
    console = Console(stderr=True)
    return lambda markup: console.print(Text.from_markup(markup), soft_wrap=True)


def _run_reporting(settings: Settings, tell: Callable[[str], None]) -> None:
    """Run the environment, and report how it ends. Errors: typer.Exit if it fails."""
    try:
        _run(settings, tell)
    except signals.Stopped:
        tell("[dim]stopped[/]")
    except (InvalidUsage, Determinate) as error:
        raise ended(error, settings.log_format) from error


def _run(settings: Settings, tell: Callable[[str], None]) -> NoReturn:
    """The environment, until stopped. Errors: Stopped, InvalidUsage, Determinate."""

    def say(text: str) -> None:
        tell(f"[dim]{escape(text)}[/]")

    with signals.noted() as stopping, Environment(settings, say, stopping) as environment:
        tell(f"Kafka        [green]{escape(environment.kafka.bootstrap)}[/]")
        tell(f"SQL          [green]{environment.client.url}/sql[/]")
        tell(f"logs         {escape(str(settings.directory / 'logs'))}")
        environment.await_replica()
        shell = escape(f"slackwater sql --directory {settings.directory.absolute()}")
        tell(f"ready: try [bold]{shell}[/] in another terminal; Ctrl-C ends")
        with class_archiving(settings.directory / "logs" / "class-archive.log"):
            while True:
                environment.check()
                stopping.wait(1)
