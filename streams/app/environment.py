"""An environment: a broker, a coordinator, one replica, compaction and storage, as one.

Its directory holds everything that is not in Kafka: the embedded broker's data, the replica's
state (a cache), the processes' output, and `environment.json`, which says how to reach it.
The same directory gives the same environment again.
"""

import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

from streams.app.client import Answer, Client
from streams.app.processes import Child
from streams.app.service import FENCED, Service
from streams.errors import Determinate, InvalidUsage, SlackwaterError
from streams.kafka.broker import KafkaBroker
from streams.kafka.embedded import EmbeddedBroker
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import Topics
from streams.storage.shards import Shards

_READY_TIMEOUT_S = 180.0
_LOOK_EVERY_S = 0.1
_CHECK_EVERY_MS = 1_000
_FILE = "environment.json"

CORES = min(os.cpu_count() or 2, 8)
MASTER = f"local[{CORES},4]"  # four attempts a task: without them one lost worker ends a lane

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the user chose. Without `brokers` the environment has a broker of its own."""

    directory: Path
    brokers: str = ""
    client: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets
    topics: Mapping[str, str] = field(default_factory=dict)
    namespace: str = "sw"
    master: str = MASTER
    buckets: int = CORES
    driver_memory: str = "1g"
    slice_bytes: int = 16 << 20
    deadline_ms: int = 60_000
    timings: bool = False
    retain_ms: int = 3_600_000
    compact_every_s: float = 30.0
    points: Mapping[str, int] = field(default_factory=dict)


class Environment:
    """A running environment; a context manager. Only one process may run a directory."""

    def __init__(self, settings: Settings, say: Say = lambda _: None) -> None:
        self.settings = settings
        self._say = say
        self._stack = ExitStack()
        self.broker: EmbeddedBroker | None = None
        self.children: dict[str, Child] = {}
        self.client = Client("")
        self._kafka: ClientSettings | None = None

    @property
    def kafka(self) -> ClientSettings:
        """The connection to Kafka. The environment has been started."""
        assert self._kafka is not None, "the environment was not started"
        return self._kafka

    @property
    def replica_state(self) -> Path:
        """Where the replica keeps its state and its timings."""
        return self.settings.directory / "replica"

    def start(self) -> Self:
        """Start everything; returns when statements are answered.

        Errors: InvalidUsage when another process runs the directory; Determinate when the
        broker cannot be had or a service does not come up: the message says where to look.
        """
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self) -> None:
        directory = self.settings.directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # it may hold secrets
        self._stack.enter_context(_exclusive(directory))
        self._kafka = self._cluster(directory / "kafka")
        self._say("starting the coordinator and the replica")
        port = _port(directory)
        self.client = Client(f"http://127.0.0.1:{port}")
        for name in ("coordinator", "replica", "compaction", "storage"):
            self._start_service(name, port)
        _write_file(directory, self.kafka, self.settings.namespace, port)
        self._await(self.client.is_healthy, "coordinator")

    def _cluster(self, directory: Path) -> ClientSettings:
        """The user's cluster, or a broker of our own."""
        if self.settings.brokers:
            extra = tuple(sorted(self.settings.client.items()))
            return reachable(ClientSettings(self.settings.brokers, extra))
        self._say("starting Kafka")
        self.broker = EmbeddedBroker(directory)
        self._stack.callback(self.broker.stop)
        return ClientSettings(self.broker.start())

    def _start_service(self, name: str, port: int) -> None:
        directory, settings = self.settings.directory, self.settings
        service = Service(
            bootstrap=self.kafka.bootstrap,
            directory=str(self.replica_state),
            namespace=settings.namespace,
            buckets=settings.buckets,
            port=port,
            master=settings.master,
            driver_memory=settings.driver_memory,
            slice_bytes=settings.slice_bytes,
            deadline_ms=settings.deadline_ms,
            timings=settings.timings,
            retain_ms=settings.retain_ms,
            compact_every_s=settings.compact_every_s,
            client=settings.client,
            topics=settings.topics,
            points=settings.points,
        )
        config = directory / f"{name}.json"
        service.write(config)
        program = (sys.executable, "-m", "streams.app.main")
        child = Child(
            name,
            (*program, name, "--config", str(config), "--supervised"),
            directory / "logs" / f"{name}.log",
            # Spark's workers must be this Python, with these packages
            {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
            frozenset({FENCED}) if name in {"coordinator", "storage"} else frozenset(),
            self._are_brokers_away,
        )
        self.children[name] = child
        self._stack.callback(child.stop)
        child.start()

    def _are_brokers_away(self) -> bool:
        """Whether no broker answers now: then no service can be blamed for its end."""
        try:
            reachable(self.kafka)
        except SlackwaterError:
            return True
        return False

    def _await(self, ready: Callable[[], bool], name: str) -> None:
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                where = self.children[name].log_file
                raise Determinate(f"{name} does not come up: see {where}")
            time.sleep(_LOOK_EVERY_S)

    def sql(self, text: str) -> list[Answer]:
        """Run statements. Errors: as `check`; InvalidStatement, Determinate, Indeterminate."""
        self.check()
        return self.client.run(text)

    def kill(self, name: str) -> None:
        """`kill -9` one of `coordinator`, `replica`, `compaction`, `storage`, or `all`.

        They come back.
        """
        for each in self.children.values():
            if name in {each.name, "all"}:
                each.kill()

    def check(self) -> None:
        """Raise when the environment cannot go on.

        Errors: InvalidUsage when another one has taken over this namespace; Determinate when a
        service was given up, with the reason.
        """
        for child in self.children.values():
            if child.reason:
                raise Determinate(child.reason)
        coordinator = self.children.get("coordinator")
        if coordinator is not None and coordinator.is_over:
            where = f"namespace {self.settings.namespace} on {self.kafka.bootstrap}"
            raise InvalidUsage(f"another environment has taken over {where}")

    def wait(self, shards: Shards, done: Callable[[], bool], timeout_s: float) -> bool:
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


def expect_answer(topics: Topics, bootstrap: str) -> None:
    """Errors: Determinate, which says where, when no broker answers."""
    try:
        topics.names()
    except Determinate as cause:
        raise Determinate(f"no broker answers at {bootstrap}: {cause}") from cause


def reachable(settings: ClientSettings) -> ClientSettings:
    """The settings, with which a broker has answered: else each service would fail on its own.

    Errors: InvalidUsage when they are refused, Determinate when nobody answers.
    """
    broker = KafkaBroker(settings)
    try:
        expect_answer(broker.topics, settings.bootstrap)
    finally:
        broker.close()
    return settings


def find(directory: Path) -> tuple[Client, ClientSettings, str]:
    """The client, the Kafka settings and the namespace of a running environment.

    Errors: InvalidUsage when no environment runs in the directory.
    """
    kafka, namespace = reach(directory)
    client = Client(json.loads((directory / _FILE).read_text())["url"])
    if not client.is_healthy():
        raise InvalidUsage(
            f"the environment in {directory} does not answer at {client.url}: is"
            " 'slackwater up' still running?"
        )
    return client, kafka, namespace


def reach(directory: Path) -> tuple[ClientSettings, str]:
    """The Kafka settings and the namespace of an environment, whether or not it runs.

    Errors: InvalidUsage when there is none in the directory.
    """
    file = directory / _FILE
    if not file.exists():
        raise InvalidUsage(
            f"no environment in {directory}: start one with 'slackwater up --directory"
            f" {directory}'"
        )
    value = json.loads(file.read_text())
    settings = tuple(sorted(value["client"].items()))
    return ClientSettings(value["bootstrap"], settings), value["namespace"]


def _write_file(directory: Path, kafka: ClientSettings, namespace: str, port: int) -> None:
    value = {
        "url": f"http://127.0.0.1:{port}",
        "bootstrap": kafka.bootstrap,
        "client": dict(kafka.extra),
        "namespace": namespace,
    }
    file = directory / _FILE
    file.touch(mode=0o600)  # client settings may hold secrets
    file.chmod(0o600)  # also when it was there before
    file.write_text(json.dumps(value, indent=2) + "\n")


def _port(directory: Path) -> int:
    """The coordinator's port: the one it had before, if it is free."""
    before = 0
    file = directory / _FILE
    if file.exists():
        before = int(json.loads(file.read_text())["url"].rsplit(":", 1)[1])
    for wanted in (before, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", wanted))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise Determinate("no free port on 127.0.0.1")


def _exclusive(directory: Path) -> IO[str]:
    """The directory's lock, held while the file is open."""
    lock = (directory / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as cause:
        lock.close()
        raise InvalidUsage(f"another environment runs in {directory}") from cause
    return lock
