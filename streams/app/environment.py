"""An environment: a broker, and the services that work on it, as one.

Its directory holds everything that is not in Kafka: the embedded broker's data, the replica's
state (a cache), the processes' output, and `environment.json`, which says how to reach it.
The same directory gives the same environment again.
"""

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from streams.app.broker_supervisor import BrokerKeeper
from streams.app.client import Client, ClusterStatus, StatementResult
from streams.app.environment_access import exclusive, port_of, reachable, write_file
from streams.app.fork_server import fork_server
from streams.app.processes import Child
from streams.app.replica_fleet import FIRST, ReplicaFleet, ReplicaPlace
from streams.app.restart_policy import SPARK_STABLE_S, STABLE_S, End
from streams.app.service_config import CORES, FENCED, MASTER, RESIDENT_TASKS, Service
from streams.app.signals import Stop
from streams.errors import Determinate, InvalidUsage, SlackwaterError
from streams.kafka.embedded import EmbeddedBroker
from streams.kafka.settings import ClientSettings
from streams.log_lines import LogFormat
from streams.trace.arrange.disk_reserve import is_full, says_full

if TYPE_CHECKING:  # it loads DuckDB and Arrow, and the command line would wait for them
    from streams.storage.client.shards import Shards

log = logging.getLogger(__name__)

_READY_TIMEOUT_S = 180.0
_LOOK_EVERY_S = 0.1
_CHECK_EVERY_MS = 1_000

SERVICES = ("coordinator", "replica", "compaction", "storage", "materializations")
OWNERS = frozenset({"coordinator", "storage", "materializations"})
"""Services of which a namespace has one: a newer one fences the older one."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The user's options. Without `brokers` the environment has a broker of its own."""

    directory: Path
    brokers: str = ""
    client: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets
    topics: Mapping[str, str] = field(default_factory=dict)
    namespace: str = "sw"
    master: str = MASTER
    buckets: int = CORES
    resident_tasks: int = RESIDENT_TASKS
    driver_memory: str = "1g"
    slice_bytes: int = 16 << 20
    index_memory: int = 512 << 20
    deadline_ms: int = 60_000
    timings: bool = False
    log_format: LogFormat = "text"
    retain_ms: int = 3_600_000
    statements: int = 4
    statement_memory: int = 2 << 30
    statement_disk: int = 4 << 30
    statement_ms: int = 60_000
    compact_every_s: float = 30.0
    audit_every_s: float = 60.0
    copy_to: list[str] = field(default_factory=list, repr=False)  # may hold secrets
    store: str = field(default="", repr=False)  # may hold secrets
    cache: str = ""
    cache_bytes: int = 16 << 30
    spark_settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    points: Mapping[str, int] = field(default_factory=dict)


class Environment:
    """A running environment; a context manager. Only one process may run a directory."""

    def __init__(
        self, settings: Settings, say: Say = lambda _: None, stopping: Stop | None = None
    ) -> None:
        self.settings = settings
        self._say = say
        self._stopping = stopping or Stop()
        self._stack = ExitStack()
        self._keeper: BrokerKeeper | None = None
        self.children: dict[str, Child] = {}
        self.client = Client("")
        self.notices: list[str] = []
        """Notices about conditions that do not stop the environment; each is given once."""
        self._kafka: ClientSettings | None = None
        self._fork_server: Path | None = None
        self.fleet = ReplicaFleet(self._clusters, self._replica)

    @property
    def kafka(self) -> ClientSettings:
        """The connection to Kafka. The environment has been started."""
        assert self._kafka is not None, "the environment was not started"
        return self._kafka

    @property
    def replica_state(self) -> Path:
        """The first replica's directory for state and timings."""
        return self.settings.directory / "replica"

    @property
    def exports(self) -> Path:
        """The directory below which COPY may write."""
        return self.settings.directory / "exports"

    def start(self) -> Self:
        """Start everything; returns when statements are answered.

        Errors: Stopped when it was asked to stop; InvalidUsage when another process runs the
        directory; Determinate when the broker cannot be had or a service does not come up: the
        message says where to look.
        """
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self) -> None:
        directory = self.settings.directory
        self._stopping.check()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # it may hold secrets
        self._stack.enter_context(exclusive(directory))
        self.exports.mkdir(exist_ok=True)
        log_file = directory / "logs" / "fork-server.log"
        self._fork_server = self._stack.enter_context(fork_server(log_file))
        self._kafka = self._cluster(directory / "kafka")
        self._say("starting the coordinator and the replica")
        port = port_of(directory)
        self.client = Client(f"http://127.0.0.1:{port}")
        for name in SERVICES:
            self._start_service(name, port)
        write_file(directory, self.kafka, self.settings.namespace, port)
        self._await(self.client.is_ready, "coordinator")
        self.fleet.start()
        self._stack.callback(self.fleet.stop)

    def _cluster(self, directory: Path) -> ClientSettings:
        """The user's cluster, or a broker of our own."""
        if self.settings.brokers:
            extra = tuple(sorted(self.settings.client.items()))
            return reachable(ClientSettings(self.settings.brokers, extra))
        self._say("starting Kafka")
        self._keeper = BrokerKeeper(EmbeddedBroker(directory), self.lack_of_room)
        self._stack.callback(self._keeper.stop)
        return ClientSettings(self._keeper.start())

    def _start_service(self, name: str, port: int) -> None:
        listen = f"127.0.0.1:{port}" if name == "coordinator" else ""
        child = self._child(name, name, replace(self._service(), listen=listen))
        self.children[name] = child
        self._stack.callback(child.stop)
        child.start()

    def _clusters(self) -> list[ClusterStatus]:
        return self.client.clusters()

    def _replica(self, place: ReplicaPlace) -> Child:
        """A replica of the fleet, not started."""
        master = place.master or self.settings.master
        service = replace(
            self._service(),
            directory=str(self.settings.directory / place.service),
            instance=place.cluster,
            replica=place.name,
            master=master,
            resident_tasks=self.settings.resident_tasks,
        )
        return self._child(place.service, "replica", service)

    def _service(self) -> Service:
        """The configuration of a service, and of the first replica."""
        settings = self.settings
        return Service(
            bootstrap=self.kafka.bootstrap,
            directory=str(self.replica_state),
            replica=FIRST.name,
            namespace=settings.namespace,
            buckets=settings.buckets,
            master=settings.master,
            resident_tasks=settings.resident_tasks,
            driver_memory=settings.driver_memory,
            slice_bytes=settings.slice_bytes,
            index_memory=settings.index_memory,
            deadline_ms=settings.deadline_ms,
            timings=settings.timings,
            log_format=settings.log_format,
            retain_ms=settings.retain_ms,
            statements=settings.statements,
            statement_memory=settings.statement_memory,
            statement_disk=settings.statement_disk,
            statement_ms=settings.statement_ms,
            compact_every_s=settings.compact_every_s,
            audit_every_s=settings.audit_every_s,
            copy_to=[self.exports.absolute().as_uri(), *settings.copy_to],
            store=settings.store,
            cache=settings.cache,
            cache_bytes=settings.cache_bytes,
            spark_settings=settings.spark_settings,
            client=settings.client,
            topics=settings.topics,
            points=settings.points,
            fork_server=str(self._fork_server or ""),
        )

    def _child(self, name: str, command: str, service: Service) -> Child:
        """A supervised process of a command, not started."""
        directory = self.settings.directory
        config = directory / f"{name}.json"
        service.write(config)
        program = (sys.executable, "-m", "streams.app.main")
        # workers of this machine must be this Python, with these packages
        is_here = service.master.startswith("local")
        python = "" if is_here else os.environ.get("PYSPARK_PYTHON", "")
        return Child(
            name,
            (*program, command, "--config", str(config), "--supervised"),
            directory / "logs" / f"{name}.log",
            {
                "PYSPARK_PYTHON": python or sys.executable,
                "PYSPARK_DRIVER_PYTHON": sys.executable,
            },
            frozenset({FENCED}) if name in OWNERS else frozenset(),
            self._excuse,
            SPARK_STABLE_S if command == "replica" else STABLE_S,
            fork_server=self._fork_server,
        )

    def _excuse(self, end: End) -> str:
        """The external cause of a service's end; empty if there is none."""
        return self.lack_of_room(end) or self._lack_of_brokers()

    def lack_of_room(self, end: End) -> str:
        """An external cause for any process: a full disk; empty if there is room."""
        directory = self.settings.directory
        if not (says_full(end.error) or is_full(directory)):
            return ""
        return f"no room: make some on the disk of {directory}, or where its log says"

    def _lack_of_brokers(self) -> str:
        try:
            reachable(self.kafka)
        except SlackwaterError:
            return "no broker answers"
        return ""

    def _await(self, ready: Callable[[], bool], name: str) -> None:
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                where = self.children[name].log_file
                raise Determinate(f"{name} did not start: see {where}")
            time.sleep(_LOOK_EVERY_S)

    def await_replica(self) -> None:
        """Wait until a replica serves, and with it views. Errors: as `check`."""
        if self._serves():
            return
        self._say("statements are answered; the replica is starting, and views wait for it")
        while not self._serves():
            self.check()
            self._stopping.wait(_LOOK_EVERY_S)

    def _serves(self) -> bool:
        try:
            return bool(self.client.replicas())
        except Determinate:
            return False

    def sql(self, text: str) -> list[StatementResult]:
        """Run statements. Errors: as `check`; InvalidStatement, Determinate, Indeterminate."""
        self.check()
        return self.client.run(text)

    def kill(self, name: str) -> None:
        """`kill -9` one of the services, or `all`.

        They come back.
        """
        for child in (*self.children.values(), *self.fleet.children.values()):
            if name in {child.name, "all"}:
                child.kill()

    def check(self) -> None:
        """Raise when the environment cannot go on; say what the user has to know.

        Errors: Stopped when it was asked to stop; InvalidUsage when another one has taken over
        this namespace; Determinate when a service or the embedded broker was given up, with
        the reason.
        """
        self._stopping.check()
        if self._keeper is not None and self._keeper.reason:
            raise Determinate(self._keeper.reason)
        for child in self.children.values():
            if child.reason:
                raise Determinate(child.reason)
        coordinator = self.children.get("coordinator")
        if coordinator is not None and coordinator.is_over:
            raise InvalidUsage(f"another environment has taken over {self._where}")
        self._tell()

    def _tell(self) -> None:
        """Say what does not end the environment."""
        for replica in self.fleet.children.values():
            if replica.reason:
                self._notice(f"{replica.reason}; the other replicas go on")
        storage = self.children.get("storage")
        if storage is not None and storage.is_over:
            self._notice(
                f"another service answers the commands of {self._where} now, and this one does"
                " not (SQL goes on): if that was not meant, end the other 'slackwater storage'"
                " and start this environment again; until one of them runs, commands wait in"
                " their topic"
            )
        materializations = self.children.get("materializations")
        if materializations is not None and materializations.is_over:
            self._notice(
                f"another service runs the materializations of {self._where} now: if that was"
                " not meant, end the other 'slackwater materialize serve' and start this"
                " environment again"
            )

    @property
    def _where(self) -> str:
        bootstrap = "" if self._kafka is None else f" on {self._kafka.bootstrap}"
        return f"namespace {self.settings.namespace}{bootstrap}"

    def _notice(self, text: str) -> None:
        if text in self.notices:
            return
        self.notices.append(text)
        self._say(text)
        log.warning("%s", text)

    def wait(self, shards: "Shards", done: Callable[[], bool], timeout_s: float) -> bool:
        """Whether something about shards came true in time. Errors: as `check`."""
        deadline = time.monotonic() + timeout_s
        while not shards.wait(done, _CHECK_EVERY_MS):
            self.check()
            if time.monotonic() > deadline:
                return False
        return True

    def stop(self) -> None:
        """End everything this environment started."""
        self._stack.close()
        self.children.clear()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
