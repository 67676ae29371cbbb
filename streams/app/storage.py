"""`slackwater storage`: answers the command topics, inside an environment or on its own."""

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from streams.app.client_options import (
    DIRECTORY,
    NAMESPACE,
    ClientOption,
    DirectoryOption,
    NamespaceOption,
    TopicOption,
    chosen_topics,
    client_settings,
    only_with,
)
from streams.app.common_options import with_options
from streams.app.endpoint import probed
from streams.app.environment_access import reach, reachable
from streams.app.error_output import NO_ENVIRONMENT
from streams.app.service_config import FENCED, Service
from streams.app.service_options import Exposure
from streams.app.service_process import (
    LogFormatOption,
    Supervised,
    configured,
    ended,
    now_ms,
    serve,
    until_signalled,
)
from streams.app.signals import Stop
from streams.app.storage_metrics import of_storage
from streams.errors import SlackwaterError
from streams.http.metrics import exposition
from streams.http.server import Probes
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.positions import KafkaMarks
from streams.kafka.client.raw import RawReader
from streams.kafka.client.transactions import Fenced, Transactions
from streams.kafka.settings import ClientSettings
from streams.kafka.topic_settings import topic_choices
from streams.replica.crash_injection import Crash
from streams.storage.client.shards import Shards
from streams.storage.commands.service import CommandService
from streams.storage.commands.session import CommandTopics, ServiceDependencies
from streams.storage.commands.worker_pool import ThreadPerCrowd

log = logging.getLogger(__name__)


@with_options(Exposure)
def storage(  # noqa: PLR0913  the options of a command, each by name
    exposure: Exposure,
    *,
    directory: DirectoryOption = DIRECTORY,
    brokers: Annotated[
        str,
        typer.Option(
            envvar="SLACKWATER_BROKERS",
            help="Kafka brokers, HOST:PORT[,...], if there is no environment.",
        ),
    ] = "",
    client: ClientOption = None,
    topic: TopicOption = None,
    namespace: NamespaceOption = NAMESPACE,
    config: Annotated[
        Path | None, typer.Option(hidden=True, exists=True, dir_okay=False)
    ] = None,
    log_format: LogFormatOption = "text",
    supervised: Supervised = False,
) -> None:
    """Answer commands from NAMESPACE.storage.commands until Ctrl-C.

    An environment runs this service itself; this command is for brokers without one. Of two
    services in a namespace the newer one continues and the older one exits. How to write a
    client is in schemas/CLIENTS.md.

    Exit codes: 0 stopped, 1 failed, 2 usage, 3 no environment or broker, or taken over.

    Examples:
        slackwater storage --brokers kafka.example:9092 --namespace shop
        slackwater storage --brokers kafka.example:9092 --topic commands.retention.ms=86400000
    """
    settings = None if config is None else configured(config)
    chosen = log_format if settings is None else settings.log_format
    stopping = until_signalled(supervised=supervised, log_format=chosen, service="storage")
    if settings is not None:
        serve(run, settings, stopping)
    try:
        service = _alone(directory, brokers, client_settings(client or []), namespace)
    except SlackwaterError as error:
        raise ended(error, log_format, NO_ENVIRONMENT) from error
    service = exposure.applied(replace(service, topics=chosen_topics(topic or [])))
    try:
        code = run(service, stopping)
    except SlackwaterError as error:
        raise ended(error, log_format) from error
    raise typer.Exit(code)


def _alone(directory: Path, brokers: str, client: Mapping[str, str], namespace: str) -> Service:
    """The configuration of a service on its own: of these brokers, or of an environment's.

    Errors: InvalidUsage, Determinate when there is none, or no broker answers.
    """
    only_with(brokers, client, namespace)
    if brokers:
        kafka = ClientSettings(brokers, tuple(sorted(client.items())))
    else:
        kafka, namespace = reach(directory.absolute())
    reachable(kafka)
    return Service(
        bootstrap=kafka.bootstrap,
        client=dict(kafka.extra),
        directory=str(directory),
        namespace=namespace,
    )


def run(service: Service, stopping: Stop) -> int:
    """Answer until stopped, or until another service has taken over; the exit code."""
    names = CommandTopics(service.namespace)
    choices = topic_choices(service.topics)
    with ExitStack() as stack:
        broker = KafkaBroker(service.kafka, choices)
        stack.callback(broker.close)
        shards = Shards(
            broker.logs,
            broker.chunks,
            broker.topics,
            namespace=service.namespace,
            data_partitions=choices.data_partitions,
            now_ms=now_ms,
            pump=True,
        )
        stack.callback(shards.close)
        records = RawReader(service.kafka)
        stack.callback(records.close)
        writer = Transactions(service.kafka, names.transactional_id)
        stack.callback(writer.close)
        marks = KafkaMarks(service.kafka, names.transactional_id)
        stack.callback(marks.close)
        wiring = ServiceDependencies(
            names=names,
            shards=shards,
            topics=broker.topics,
            logs=broker.logs,
            follow=broker.committed,
            records=records,
            writer=writer,
            marks=marks,
            reached=Crash(service.points, Path(service.directory)),
            workers=ThreadPerCrowd,
        )
        commands = CommandService(wiring)
        probes = Probes(
            is_alive=lambda: shards.defect is None,
            why_not_ready=lambda: "" if commands.is_ready else "commands cannot be read yet",
            metrics=lambda: exposition(of_storage(commands.measures())),
        )
        stack.enter_context(probed(service, probes))
        try:
            commands.run(stopping)
        except Fenced as fenced:
            log.error("another service has taken over", extra={"cause": str(fenced)})  # noqa: TRY400  no defect: where it was noticed tells nothing
            return FENCED
        return 0
