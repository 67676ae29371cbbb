"""`slackwater coordinator`, `replica` and `compaction`: each service by itself.

`slackwater up` runs all of them; these commands are for machines and containers of their own.
Services meet in Kafka alone: each needs the brokers and the namespace, and none the others'
addresses.
"""

import importlib
import os
import sys
from typing import Annotated, NoReturn

import typer

from streams.app.client_options import TopicOption, chosen_topics
from streams.app.common_options import with_options
from streams.app.maintenance_options import (
    AuditOption,
    CopyToOption,
    DeadlineOption,
    IndexMemoryOption,
    ParameterOption,
    RetainOption,
    SliceOption,
    StatementDeadlineOption,
    StatementDiskOption,
    StatementMemoryOption,
    StatementsOption,
    chosen_parameters,
    chosen_targets,
    deadline,
    duration,
)
from streams.app.service_config import CORES, Service
from streams.app.service_options import Exposure, Place
from streams.app.service_process import serve, until_signalled
from streams.app.spark_options import OnSpark
from streams.ids import DEFAULT_CLUSTER

ClusterOption = Annotated[
    str,
    typer.Option(
        envvar="SLACKWATER_CLUSTER",
        help="The cluster whose objects it maintains, as CREATE CLUSTER has named it.",
    ),
]


@with_options(Exposure)
@with_options(Place)
def coordinator(  # noqa: PLR0913  the options of a command, each by name
    place: Place,
    exposure: Exposure,
    *,
    topic: TopicOption = None,
    buckets: Annotated[
        int, typer.Option(min=1, help="Parts into which replicas divide their work.")
    ] = CORES,
    retain: RetainOption = "1 hour",
    statements: StatementsOption = 4,
    statement_memory: StatementMemoryOption = 2 << 30,
    statement_disk: StatementDiskOption = 4 << 30,
    statement_deadline: StatementDeadlineOption = "1 minute",
    audit_every: AuditOption = 60.0,
    copy_to: CopyToOption = None,
    parameter: ParameterOption = None,
) -> None:
    """Execute SQL, own the catalog and answer reads, until SIGTERM or SIGINT.

    Of two coordinators in a namespace the newer one continues and the older one exits. Without
    --listen it has a free port of 127.0.0.1, which its log says; asked to end, it finishes
    statements in progress for five seconds.

    Exit codes: 0 stopped, 1 failed, 2 usage, 3 taken over.

    Examples:
        slackwater coordinator --brokers kafka.example:9092 --namespace shop
        slackwater coordinator --brokers kafka.example:9092 --listen 0.0.0.0:8470
            --tls-certificate cert.pem --tls-key key.pem --password-file /run/secrets/slackwater
        slackwater sql --url https://coordinator.example:8470 --tls-authority ca.pem
            --password-file /run/secrets/slackwater
    """
    service = place.service(
        exposure,
        topics=chosen_topics(topic or []),
        buckets=buckets,
        retain_ms=duration(retain),
        statements=statements,
        statement_memory=statement_memory,
        statement_disk=statement_disk,
        statement_ms=deadline(statement_deadline),
        audit_every_s=audit_every,
        copy_to=chosen_targets(copy_to),
        parameters=chosen_parameters(parameter or []),
    )
    launch("coordinator", service, place)


@with_options(OnSpark)
@with_options(Exposure)
@with_options(Place)
def replica(  # noqa: PLR0913  the options of a command, each by name
    place: Place,
    exposure: Exposure,
    spark: OnSpark,
    *,
    name: Annotated[
        str,
        typer.Option(
            envvar="SLACKWATER_REPLICA", help="The replica's name, which no other one has."
        ),
    ] = "r1",
    cluster: ClusterOption = DEFAULT_CLUSTER,
    slice_bytes: SliceOption = 16 << 20,
    index_memory: IndexMemoryOption = 512 << 20,
    step_deadline: DeadlineOption = "1 minute",
    copy_to: CopyToOption = None,
) -> None:
    """Maintain views on Spark, until SIGTERM or SIGINT.

    Any number of replicas of a cluster may run, under different names: they compute the same.
    The directory is a cache, which no other process uses. Asked to end, it finishes the steps
    in progress for ten seconds.

    Exit codes: 0 stopped, 1 failed, 2 usage.

    Examples:
        slackwater replica --brokers kafka.example:9092 --namespace shop
        slackwater replica --brokers kafka.example:9092 --name r2 --directory /var/lib/r2
        slackwater replica --brokers kafka.example:9092 --cluster reports --name reports_r1
        slackwater replica --brokers kafka.example:9092 --master spark://spark:7077 \
            --store s3://bucket/slackwater --conf spark.executor.memory=4g
    """
    service = place.service(
        exposure,
        replica=name,
        instance=cluster.casefold(),
        slice_bytes=slice_bytes,
        index_memory=index_memory,
        deadline_ms=deadline(step_deadline),
        copy_to=chosen_targets(copy_to),
        **spark.options(),
    )
    if spark.master.startswith("local"):  # else workers run the PATH's python3
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    launch("replica", service, place)


@with_options(Exposure)
@with_options(Place)
def compaction(
    place: Place,
    exposure: Exposure,
    *,
    every: Annotated[
        str, typer.Option(help="The time between two rounds, at least 1 second.")
    ] = "30 seconds",
) -> None:
    """Merge batches, drop history and reclaim space periodically, until SIGTERM or SIGINT.

    Exit codes: 0 stopped, 1 failed, 2 usage.

    Examples:
        slackwater compaction --brokers kafka.example:9092 --namespace shop
        slackwater compaction --brokers kafka.example:9092 --listen 127.0.0.1:8472
    """
    service = place.service(exposure, compact_every_s=duration(every) / 1000)
    launch("compaction", service, place)


def launch(module: str, service: Service, place: Place) -> NoReturn:
    """Run a service; its module is loaded only here: the shell would wait seconds for Spark."""
    stopping = until_signalled(
        supervised=place.supervised, log_format=service.log_format, service=module
    )
    serve(importlib.import_module(f"streams.app.{module}").run, service, stopping)
