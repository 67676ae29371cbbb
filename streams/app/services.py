"""The two services of an environment, each in a process of its own.

Each is told everything by one JSON file (`streams.app.service`).
"""

import logging
import signal
import sys
import threading
import time
import uuid
from pathlib import Path

from streams.adapter.coordinator import Cluster, Coordinator, CoordinatorSettings
from streams.adapter.server import serve
from streams.app.processes import end_with_input
from streams.app.service import Service
from streams.compute.controller import command_topic, response_topic
from streams.kafka.broker import KafkaBroker
from streams.replica.config import ReplicaConfig
from streams.replica.main import Replica
from streams.replica.spark import SparkSettings

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.5
FENCED = 3
"""Exit code of a coordinator that another one has taken over from."""


def now_ms() -> int:
    """The wall clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """A name nobody else has."""
    return uuid.uuid4().hex


def run_coordinator(service: Service) -> int:
    """Coordinate until told to stop; the exit code."""
    stopping = _until_told()
    broker = KafkaBroker(service.kafka)
    settings = CoordinatorSettings(
        namespace=service.namespace,
        instance=service.instance,
        buckets=service.buckets,
        retain_ms=service.retain_ms,
    )
    cluster = Cluster(broker.logs, broker.chunks, broker.topics)
    coordinator = Coordinator(settings, cluster, now_ms=now_ms, new_id=new_id)
    coordinator.start()
    server = serve(coordinator, service.port)
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    log.info("coordinator serves", extra={"port": server.server_port})
    while not stopping.wait(_LOOK_EVERY_S) and coordinator.is_alive:
        pass
    server.shutdown()
    failure = coordinator.failure
    if failure is not None:
        log.error("coordinator must end: %s", failure)
        return FENCED
    if not coordinator.is_alive:
        return 1
    coordinator.stop()
    broker.close()
    return 0


def run_replica(service: Service) -> int:
    """Serve as a replica until told to stop; the exit code."""
    stopping = _until_told()
    replica = Replica(
        ReplicaConfig(
            name=service.replica,
            kafka=service.kafka,
            commands=command_topic(service.namespace, service.instance),
            responses=response_topic(service.namespace, service.instance),
            state=Path(service.directory),
            spark=SparkSettings(master=service.master, driver_memory=service.driver_memory),
            timings=service.timings,
            points=service.points,
        )
    )

    def stop_when_told() -> None:
        stopping.wait()
        replica.stop()

    threading.Thread(target=stop_when_told, name="stop", daemon=True).start()
    replica.run()
    return 0


def configure_logging() -> None:
    """Lines for people on standard output, with the fields of `extra` at the end."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_Fields("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("py4j").setLevel(logging.WARNING)


class _Fields(logging.Formatter):
    """Appends what a record carries beyond the usual."""

    _usual = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        fields = {k: v for k, v in vars(record).items() if k not in self._usual}
        text = super().format(record)
        return text + "".join(f" {key}={value}" for key, value in fields.items())


def _until_told() -> threading.Event:
    """Set when the process is asked to end. Its end also follows the parent's."""
    configure_logging()
    end_with_input()
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    return stopping
