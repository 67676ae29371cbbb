"""The replica as a process: dataflows on Spark, until stopped."""

import os
import threading
from pathlib import Path

from streams.app import replica_metrics
from streams.app.endpoint import probed
from streams.app.service_config import Service
from streams.app.signals import Stop
from streams.compute.controller import command_topic, response_topic
from streams.copies.targets import CopyTargets
from streams.http.metrics import exposition
from streams.http.server import Probes
from streams.replica.config import Budgets, ReplicaConfig
from streams.replica.main import Replica
from streams.replica.spark.session import SparkSettings
from streams.replica.state_files import RunStore, opened


def run(service: Service, stopping: Stop) -> int:
    """Serve as a replica until stopped; the exit code."""
    replica = Replica(config_of(service))

    def stop_when_told() -> None:
        stopping.wait()
        if not replica.has_begun:
            os._exit(0)  # Spark is still starting, which cannot be cut short; it goes with us
        replica.stop()

    threading.Thread(target=stop_when_told, name="stop", daemon=True).start()
    probes = Probes(
        why_not_ready=lambda: replica.waits_for,
        metrics=lambda: exposition(replica_metrics.of_replica(replica.measures())),
    )
    with probed(service, probes):
        replica.run()
    return 0


def config_of(service: Service) -> ReplicaConfig:
    """The configuration of a service's replica."""
    return ReplicaConfig(
        name=service.replica,
        kafka=service.kafka,
        commands=command_topic(service.namespace, service.instance),
        responses=response_topic(service.namespace, service.instance),
        state=Path(service.directory),
        spark=SparkSettings(
            master=service.master,
            resident_tasks=service.resident_tasks,
            driver_memory=service.driver_memory,
            log_format=service.log_format,
            extra=service.spark_settings,
        ),
        budgets=Budgets(slice_bytes=service.slice_bytes, index_bytes=service.index_memory),
        deadline_s=service.deadline_ms / 1000,
        timings=service.timings,
        points=service.points,
        copy_to=CopyTargets.of(service.copy_to),
        store=_store(service),
    )


def _store(service: Service) -> RunStore | None:
    """Where state is, if not in the directory. Errors: InvalidUsage."""
    if not service.store:
        return None
    opened(service.store)  # to refuse it before Spark is started
    return RunStore(
        uri=service.store,
        folder=f"{service.namespace}/{service.instance}/{service.replica}",
        cache=service.cache,
        cache_bytes=service.cache_bytes,
    )
