"""The coordinator as a process: statements over HTTP, until stopped or followed.

It listens before it takes over from its predecessor: one that cannot (its port is in use, its
certificate is none) must not end one that works.
"""

import logging
import os
import shutil
import threading
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from streams.adapter.audits import Audits
from streams.adapter.coordinator import Coordinator
from streams.adapter.coordinator_settings import Cluster, CoordinatorSettings
from streams.adapter.server import DRAIN_S, Server
from streams.adapter.system_topics import SystemTopics
from streams.adapter.workers.limits import Limits
from streams.adapter.workers.pool import Workers
from streams.app.endpoint import with_shared
from streams.app.materialize.task_validation import check
from streams.app.service_config import FENCED, Service
from streams.app.service_process import new_id, now_ms
from streams.app.signals import Stop
from streams.compute.parameters import DEFAULTS
from streams.copies.targets import CopyTargets
from streams.http.listening import Listening
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.raw import RawReader
from streams.kafka.client.transactions import Transactions
from streams.kafka.topic_settings import topic_choices
from streams.periodic import periodically
from streams.replica.crash_injection import Crash

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.5
_OBSERVE_EVERY_S = 5.0  # as often as replicas report


def run(service: Service, stopping: Stop) -> int:
    """Coordinate until stopped; the exit code."""
    server = Server(service.listening or Listening())
    server.endpoint.probes = with_shared(server.endpoint.probes)
    threading.Thread(target=server.endpoint.serve_forever, name="http", daemon=True).start()
    choices = topic_choices(service.topics)
    broker = KafkaBroker(service.kafka, choices)
    settings = CoordinatorSettings(
        namespace=service.namespace,
        buckets=service.buckets,
        retain_ms=service.retain_ms,
        data_partitions=choices.data_partitions,
        copy_to=CopyTargets.of(service.copy_to),
        parameters=DEFAULTS.updated(service.parameters),
    )
    cluster = Cluster(broker.logs, broker.chunks, broker.topics)
    directory = Path(service.directory)
    directory.mkdir(parents=True, exist_ok=True)
    crash = Crash(service.points, directory, os.getpgrp())
    files = _emptied(directory / "coordinator-workers")
    forks = Path(service.fork_server) if service.fork_server else None
    workers = Workers(limits_of(service), service.statements, files, service.log_format, forks)
    workers.start()
    coordinator = Coordinator(
        settings,
        cluster,
        now_ms=now_ms,
        new_id=new_id,
        workers=workers,
        crash=crash,
        check=check,
    )
    coordinator.start()
    server.answering = coordinator
    log.info("coordinator serves", extra={"port": server.endpoint.server_port})
    with auditing(coordinator.audits, service.audit_every_s), observing(coordinator, service):
        while not stopping.wait(_LOOK_EVERY_S) and coordinator.is_alive:
            pass
    if not server.drain(DRAIN_S if coordinator.is_alive else 0):
        log.warning("statements in progress were cut off")
    workers.close()
    failure = coordinator.failure
    if failure is not None:
        log.error("coordinator exits: %s", failure)
        return FENCED
    if not coordinator.is_alive:
        return 1
    coordinator.stop()
    broker.close()
    return 0


def auditing(audits: Audits, every_s: float) -> AbstractContextManager[None]:
    """While a block runs, audit a view each so many seconds; none with 0."""
    if not every_s:
        return nullcontext()
    return periodically(
        audits.audit_any, every_s, name="audits", warning="no audit", join_s=_LOOK_EVERY_S
    )


def observing(coordinator: Coordinator, service: Service) -> AbstractContextManager[None]:
    """While a block runs, write the topics of system relations that sources read."""
    session = f"{service.namespace}.system"
    system = SystemTopics(
        service.namespace,
        lambda: coordinator.catalog.state,
        coordinator.system_state,
        lambda: (Transactions(service.kafka, session), RawReader(service.kafka)),
    )
    return periodically(
        system.write,
        _OBSERVE_EVERY_S,
        name="system topics",
        warning="system relations cannot be written",
        join_s=_LOOK_EVERY_S,
    )


def limits_of(service: Service) -> Limits:
    """The limits of a statement. Errors: InvalidUsage."""
    memory = service.statement_memory
    return Limits(memory, memory // 4, service.statement_disk, service.statement_ms / 1000)


def _emptied(directory: Path) -> Path:
    """The directory, without what a coordinator that was killed has left there."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    return directory
