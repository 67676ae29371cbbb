"""`slackwater up`: an environment in the foreground."""

import logging
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from streams.app import signals
from streams.app.class_archiving import class_archiving
from streams.app.client_options import (
    DIRECTORY,
    NAMESPACE,
    BrokersOption,
    ClientOption,
    DirectoryOption,
    NamespaceOption,
    TopicOption,
    chosen_topics,
    client_settings,
)
from streams.app.common_options import with_options
from streams.app.environment import Environment, Settings
from streams.app.maintenance_options import (
    AuditOption,
    CopyToOption,
    DeadlineOption,
    IndexMemoryOption,
    RetainOption,
    SliceOption,
    StatementDeadlineOption,
    StatementDiskOption,
    StatementMemoryOption,
    StatementsOption,
    chosen_targets,
    deadline,
    duration,
)
from streams.app.service_config import MASTER
from streams.app.service_process import LogFormatOption, ended
from streams.app.spark_options import OnSpark
from streams.errors import Determinate, InvalidUsage
from streams.log_lines import JSON, LogFormat, configure

log = logging.getLogger(__name__)


@with_options(OnSpark)
def up(  # noqa: PLR0913, PLR0917  the options of a command, each by name
    spark: OnSpark,
    brokers: BrokersOption = "",
    directory: DirectoryOption = DIRECTORY,
    client: ClientOption = None,
    topic: TopicOption = None,
    namespace: NamespaceOption = NAMESPACE,
    retain: RetainOption = "1 hour",
    slice_bytes: SliceOption = 16 << 20,
    index_memory: IndexMemoryOption = 512 << 20,
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
        slackwater up --master spark://spark:7077 --store s3://bucket/slackwater
    """
    settings = Settings(
        directory=directory.absolute(),
        brokers=brokers,
        client=client_settings(client or []),
        topics=chosen_topics(topic or []),
        namespace=namespace,
        retain_ms=duration(retain),
        slice_bytes=slice_bytes,
        index_memory=index_memory,
        deadline_ms=deadline(step_deadline),
        statements=statements,
        statement_memory=statement_memory,
        statement_disk=statement_disk,
        statement_ms=deadline(statement_deadline),
        audit_every_s=audit_every,
        copy_to=chosen_targets(copy_to),
        log_format=log_format,
    )
    _run_reporting(_on(spark, settings), teller(log_format))


def _on(spark: OnSpark, settings: Settings) -> Settings:
    """The settings, with where Spark and state are. Errors: typer.BadParameter."""
    spark.check()
    return replace(
        settings,
        master=spark.master or MASTER,
        driver_memory=spark.driver_memory,
        resident_tasks=spark.resident_tasks,
        store=spark.store,
        cache=spark.cache,
        cache_bytes=spark.cache_bytes,
        spark_settings=spark.spark_settings,
    )


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
