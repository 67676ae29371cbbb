"""The containers of an environment: a broker, the five services, a PostgreSQL.

They meet in a network of their own, by name. What a test reaches from outside is published at a
port of 127.0.0.1 that is chosen before the start, so that it stays the same when a container is
killed and started again.
"""

import os
import shutil
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import trustme
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.docker_client import DockerClient
from testcontainers.core.network import Network

from streams.app.client import Client
from tests.integration.adapter.test_services import free_port

SERVICES: Mapping[str, Sequence[str]] = {
    "coordinator": ["coordinator"],
    "replica": ["replica", "--name", "r1"],
    "compaction": ["compaction", "--every", "5 seconds"],
    "storage": ["storage"],
    "materialize": ["materialize", "serve"],
}
"""The commands of the services, by their names in the network."""

LABEL = {"slackwater.e2e": "1"}
PASSWORD = "correct horse battery"
SECRETS = "/run/slackwater"
LIBRARY = "clock.so"
PATIENCE_S = 300.0


def image(name: str) -> str:
    """The image that the environment of `make e2e` names for a part."""
    return os.environ[f"E2E_{name.upper()}_IMAGE"]


def eventually(what: str, done: Callable[[], bool], patience_s: float = PATIENCE_S) -> float:
    """Wait until it is so; the seconds that it took. Errors: AssertionError."""
    began = time.monotonic()
    while not done():
        gone = time.monotonic() - began
        assert gone < patience_s, f"not in {patience_s:.0f} s: {what}"
        time.sleep(0.2)
    return time.monotonic() - began


@dataclass
class Part:
    """One container, and what may happen to it."""

    name: str
    container: Any
    network: Any
    port: int = 0
    """Where it is reached from outside; 0 if nowhere."""

    @property
    def _docker(self) -> Any:
        return self.container.get_wrapped_container()

    @property
    def health(self) -> str:
        """What HEALTHCHECK said last; of an image without one whether it runs."""
        self._docker.reload()
        state = self._docker.attrs["State"]
        return str(state.get("Health", {}).get("Status", state["Status"]))

    def kill(self) -> None:
        """`kill -9` of its first process, and of all others with it."""
        self._docker.kill("KILL")

    def stop(self) -> int:
        """SIGTERM, and a minute to end; the exit code."""
        self._docker.stop(timeout=60)
        return int(self._docker.wait()["StatusCode"])

    def ahead_s(self) -> float:
        """How far its clock is ahead of this machine's."""
        _, said = self._docker.exec_run(["date", "+%s"])
        return float(said) - time.time()

    def start(self) -> None:
        """The same container once more, with what it has written."""
        self._docker.start()

    def pause(self) -> None:
        """No process of it runs on, and none ends."""
        self._docker.pause()

    def resume(self) -> None:
        """After `pause`."""
        self._docker.unpause()

    def cut(self) -> None:
        """Its network cable is pulled."""
        self.network.disconnect(self._docker, force=True)

    def heal(self) -> None:
        """After `cut`."""
        self.network.connect(self._docker, aliases=[self.name])

    @property
    def log(self) -> str:
        """All that it has said since it was made."""
        return str(self._docker.logs().decode(errors="replace"))


def nothing(*_: object) -> None:
    """Where a plan has nothing to do."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What an environment has beyond the usual."""

    with_clocks: bool = False
    """Each part has a clock of its own."""
    broker: Mapping[str, str] = field(default_factory=dict)
    """More variables of the broker."""
    client: Callable[[Path], Mapping[str, str]] = lambda _: {}
    """Settings of clients on this machine, by the directory of the secrets."""
    arguments: Sequence[str] = ()
    """More arguments of each service."""
    prepared: Callable[[trustme.CA, Path], None] = nothing
    """Called to make more secrets."""
    opened: Callable[["Environment"], None] = nothing
    """Called when the broker answers, before the services begin."""


@dataclass
class Environment:
    """All parts, by name."""

    directory: Path
    plan: Plan
    namespace: str = "bank"
    parts: dict[str, Part] = field(default_factory=dict)

    @property
    def kafka(self) -> dict[str, Any]:
        """The settings by which this machine's clients reach the broker."""
        address = f"127.0.0.1:{self.parts['kafka'].port}"
        return {"bootstrap.servers": address, **self.plan.client(self.directory)}

    @cached_property
    def client(self) -> Client:
        """Of the coordinator."""
        context = ssl.create_default_context(cafile=self.directory / "authority.pem")
        url = f"https://127.0.0.1:{self.parts['coordinator'].port}"
        return Client(url, context=context, password=PASSWORD)

    @property
    def postgres(self) -> Mapping[str, Any]:
        """How this machine connects to PostgreSQL."""
        port = self.parts["postgres"].port
        return {
            "host": "127.0.0.1",
            "port": port,
            "user": "bank",
            "dbname": "bank",
            "password": PASSWORD,
        }

    def set_clock(self, name: str, ahead_s: int) -> None:
        """Have the clock of a part be so far ahead. The parts have clocks of their own."""
        file = self.directory / f"clock-{name}"
        file.write_text(f"{ahead_s}\n")
        file.chmod(0o644)

    def clock_variables(self, name: str) -> dict[str, str]:
        """By these a part has a clock of its own, which is read anew every second."""
        if not self.plan.with_clocks or name == "postgres":
            return {}
        self.set_clock(name, 0)
        return {
            "LD_PRELOAD": f"{SECRETS}/{LIBRARY}",
            "E2E_CLOCK": f"{SECRETS}/clock-{name}",
        }

    def is_healthy(self) -> bool:
        """Whether every part that says so is healthy."""
        return all(part.health in {"healthy", "running"} for part in self.parts.values())

    def save_logs(self, directory: Path) -> None:
        """Each part's, for whoever looks for the reason."""
        directory.mkdir(parents=True, exist_ok=True)
        for part in self.parts.values():
            (directory / f"{part.name}.log").write_text(part.log)


def make_secrets(directory: Path, plan: Plan) -> None:
    """An authority, a certificate of the services, a password: readable by the image's user."""
    authority = trustme.CA()
    plan.prepared(authority, directory)
    if plan.with_clocks:
        shutil.copy(os.environ["E2E_CLOCK"], directory / LIBRARY)
    authority.cert_pem.write_to_path(str(directory / "authority.pem"))
    server = authority.issue_cert("127.0.0.1", *SERVICES)
    server.private_key_and_cert_chain_pem.write_to_path(str(directory / "server.pem"))
    (directory / "password").write_text(PASSWORD)
    directory.chmod(0o755)
    for file in directory.iterdir():
        file.chmod(0o644)


def broker_variables(port: int) -> dict[str, str]:
    """A broker that is its own controller, reached from inside and from outside."""
    return {
        "CLUSTER_ID": "c2xhY2t3YXRlci1lMmUtMQ",
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "INTERNAL",
        "KAFKA_LISTENERS": "INTERNAL://:19092,HOST://:9092,CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"INTERNAL://kafka:19092,HOST://127.0.0.1:{port}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": (
            "INTERNAL:PLAINTEXT,HOST:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFKA_BROKER_SESSION_TIMEOUT_MS": "2000",  # or a killed one may not register for 9 s
        "KAFKA_BROKER_HEARTBEAT_INTERVAL_MS": "500",
    }


def service_variables(namespace: str) -> dict[str, str]:
    """What every service is told."""
    return {
        "SLACKWATER_BROKERS": "kafka:19092",
        "SLACKWATER_NAMESPACE": namespace,
        "SLACKWATER_LISTEN": "0.0.0.0:8470",
        "SLACKWATER_TLS_CERTIFICATE": f"{SECRETS}/server.pem",
        "SLACKWATER_TLS_KEY": f"{SECRETS}/server.pem",
        "SLACKWATER_PASSWORD_FILE": f"{SECRETS}/password",
    }


class Builder:
    """Makes the parts of an environment, one by one; they are removed with the stack."""

    def __init__(self, environment: Environment, stack: ExitStack) -> None:
        self.environment, self._stack = environment, stack
        network = stack.enter_context(Network(docker_network_kw={"labels": LABEL}))
        self._network = network
        self.cable = network._network  # the library gives no other way to it

    def part(
        self,
        name: str,
        image_: str,
        variables: Mapping[str, str],
        command: Sequence[str] = (),
        published: Mapping[int, int] | None = None,
    ) -> Part:
        """Start a container: `published` is by the port inside."""
        container = (
            DockerContainer(image_)
            .with_network(self._network)
            .with_network_aliases(name)
            .with_envs(**variables, **self.environment.clock_variables(name))
            .with_kwargs(labels=LABEL, init=True, hostname=name)
            .with_volume_mapping(str(self.environment.directory), SECRETS, "ro")
        )
        if command:
            container = container.with_command(list(command))
        ports, bound = dict(published or {}), cast("dict[str, Any]", container.ports)
        for inside, outside in ports.items():
            bound[f"{inside}/tcp"] = ("127.0.0.1", outside)
        self._stack.enter_context(container)
        part = Part(name, container, self.cable, next(iter(ports.values()), 0))
        self.environment.parts[name] = part
        return part

    def service(self, name: str, extra: Mapping[str, str] | None = None) -> Part:
        """One of ours."""
        published = {8470: free_port()} if name == "coordinator" else {}
        variables = service_variables(self.environment.namespace) | dict(extra or {})
        command = [*SERVICES[name], *self.environment.plan.arguments]
        return self.part(name, image("slackwater"), variables, command, published)


def remove_leftovers() -> None:
    """Containers and networks of a run that was killed."""
    client = DockerClient().client
    chosen = {"filters": {"label": [f"{name}={value}" for name, value in LABEL.items()]}}
    for container in client.containers.list(all=True, **chosen):
        container.remove(force=True, v=True)
    for network in client.networks.list(**chosen):
        network.remove()


@contextmanager
def environment(directory: Path, plan: Plan) -> Iterator[Environment]:
    """A broker, PostgreSQL and all services, healthy."""
    testcontainers_config.ryuk_disabled = True  # an image of its own; see remove_leftovers
    testcontainers_config.tc_host_override = "127.0.0.1"
    remove_leftovers()
    make_secrets(directory, plan)
    made = Environment(directory, plan)
    with ExitStack() as stack:
        builder, port = Builder(made, stack), free_port()
        variables = {**broker_variables(port), **plan.broker}
        builder.part("kafka", image("kafka"), variables, published={9092: port})
        database = {
            "POSTGRES_USER": "bank",
            "POSTGRES_DB": "bank",
            "POSTGRES_PASSWORD": PASSWORD,
        }
        builder.part("postgres", image("postgres"), database, published={5432: free_port()})
        eventually("a broker starts", lambda: "Kafka Server started" in made.parts["kafka"].log)
        plan.opened(made)
        for name in SERVICES:
            builder.service(name)
        eventually("all services are healthy", made.is_healthy)
        yield made
