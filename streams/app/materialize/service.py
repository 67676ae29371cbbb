"""The service of materializations as a process: of an environment, or of brokers alone."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from schemas.materializations import SPECS
from streams.app.endpoint import probed
from streams.app.service_config import FENCED, Service
from streams.app.service_process import now_ms
from streams.app.signals import Stop
from streams.errors import SlackwaterError
from streams.http.server import Probes
from streams.ids import Topic
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.topic_settings import topic_choices

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.runtime.task import Materialization
    from connectors.service.service import Service as Materializations
    from connectors.service.supervisor import TaskEndpoint

log = logging.getLogger(__name__)

LOOK_S = 1.0
NOT_READY = "the materializations of the namespace are not taken over yet"


def run(service: Service, stopping: Stop) -> int:
    """Run materializations until told to stop, or taken over; the exit code.

    Until there is the first one, nothing is loaded that they need: most environments have none.
    """
    choices = topic_choices(service.topics)
    running = list["Materializations"]()
    probes = Probes(
        is_alive=lambda: all(one.is_alive for one in running),
        why_not_ready=lambda: "" if all(one.is_ready for one in running) else NOT_READY,
    )
    with probed(service, probes), closing(KafkaBroker(service.kafka, choices)) as broker:
        topic = Topic(f"{service.namespace}.{SPECS}.log")
        while not is_there(broker, topic):
            if stopping.wait(LOOK_S):
                return 0
        return kept(broker, service, choices.data_partitions, stopping, running.append)


def is_there(broker: KafkaBroker, topic: Topic) -> bool:
    """Whether a materialization was ever created."""
    try:
        return broker.topics.describe(topic) is not None
    except SlackwaterError as error:
        log.warning("brokers do not answer", extra={"cause": str(error)})
        return False


def kept(
    broker: KafkaBroker,
    service: Service,
    data_partitions: int,
    stopping: Stop,
    started: "Callable[[Materializations], None]",
) -> int:
    """Run materializations; the exit code. `started` is called with what runs them."""
    from connectors.service.service import Service as Materializations  # noqa: PLC0415
    from streams.replica.crash_injection import Crash  # noqa: PLC0415
    from streams.storage.client.shards import Shards  # noqa: PLC0415
    from streams.storage.small_table import TakenOver  # noqa: PLC0415

    shards = Shards(
        broker.logs,
        broker.chunks,
        broker.topics,
        namespace=service.namespace,
        data_partitions=data_partitions,
        now_ms=now_ms,
        pump=True,
    )
    running = Materializations(
        shards,
        partial(opened, broker, service.namespace, service.master),
        owner=f"{socket.gethostname()}:{os.getpid()}",
        now_ms=now_ms,
        crash=Crash(service.points, Path(service.directory)),
    )
    started(running)
    log.info("materialization service started")
    try:
        running.run(stopping)
    except TakenOver as fenced:
        log.error("another service has taken over", extra={"cause": str(fenced)})  # noqa: TRY400  no defect: where it was noticed tells nothing
        return FENCED
    finally:
        shards.close()
    return 0


@contextmanager
def opened(
    broker: KafkaBroker, namespace: str, master: str, task: "Materialization"
) -> Iterator["TaskEndpoint"]:
    """A driver of the task's connector, with its secrets. Errors: InvalidUsage.

    `master` is Spark's for a backfill that names none.
    """
    from connectors.service.supervisor import TaskEndpoint  # noqa: PLC0415
    from streams.app.connector.lookup import OURS, driver_of  # noqa: PLC0415
    from streams.app.materialize.backfill import jobs_of  # noqa: PLC0415
    from streams.app.materialize.dead_letters import KafkaLetters  # noqa: PLC0415
    from streams.app.materialize.task_file import with_secrets  # noqa: PLC0415

    with (
        driver_of(task.connector) as driver,
        closing(KafkaLetters(broker, namespace, task.task)) as letters,
    ):
        given = with_secrets(task, driver, os.environ, is_ours=task.connector in OURS)
        yield TaskEndpoint(given, driver, letters, jobs_of(given, broker.settings, master))
