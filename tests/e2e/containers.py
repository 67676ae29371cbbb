"""The containers of an environment: brokers, the five services, a PostgreSQL.

They meet in a network of their own, by name. What a test reaches from outside is published at a
port of 127.0.0.1 that is chosen before the start, so that it stays the same when a container is
killed and started again.
"""

import os
import secrets
import shutil
import ssl
from collections.abc import Iterator, Mapping, Sequence
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
from tests.e2e import brokers
from tests.e2e.parts import Part, eventually
from tests.e2e.plan import Plan
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
STATE = "/var/lib/slackwater/state"
LIBRARY = "clock.so"
PERSON = "person.pem"
"""A certificate of clients of the services, where a plan makes one."""


def image(name: str) -> str:
    """The image that the environment of `make e2e` names for a part."""
    return os.environ[f"E2E_{name.upper()}_IMAGE"]


@dataclass
class Environment:
    """All parts, by name."""

    directory: Path
    plan: Plan
    namespace: str = "bank"
    parts: dict[str, Part] = field(default_factory=dict)
    replaced: list[Part] = field(default_factory=list)
    """Those of which others have the name now."""

    @property
    def brokers(self) -> list[Part]:
        """Those that hold the topics."""
        return [self.parts[name] for name in self.plan.brokers]

    @property
    def kafka(self) -> dict[str, Any]:
        """The settings by which this machine's clients reach the brokers."""
        addresses = ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers)
        return {"bootstrap.servers": addresses, **self.plan.client(self.directory)}

    @cached_property
    def client(self) -> Client:
        """Of the coordinator."""
        context = trusting(self.directory)
        if (self.directory / PERSON).exists():
            context.load_cert_chain(self.directory / PERSON)
        return Client(self.url, context=context, password=PASSWORD)

    @property
    def url(self) -> str:
        """The coordinator's."""
        return f"https://127.0.0.1:{self.parts['coordinator'].port}"

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

    def tell(self, name: str, number: int) -> None:
        """Write a file that parts read anew all the time."""
        file = self.directory / name
        file.write_text(f"{number}\n")
        file.chmod(0o644)

    def set_clock(self, name: str, ahead_s: int) -> None:
        """Have the clock of a part be so far ahead. The parts have clocks of their own."""
        self.tell(f"clock-{name}", ahead_s)

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
        for number, part in enumerate(self.replaced):
            (directory / f"{part.name}.before.{number}.log").write_text(part.log)


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


def trusting(directory: Path) -> ssl.SSLContext:
    """Who trusts the authority of the secrets."""
    return ssl.create_default_context(cafile=directory / "authority.pem")


def service_variables(plan: Plan, namespace: str) -> dict[str, str]:
    """What every service is told."""
    return {
        "SLACKWATER_BROKERS": brokers.bootstrap([plan.via] if plan.via else plan.brokers),
        "SLACKWATER_NAMESPACE": namespace,
        "SLACKWATER_LISTEN": "0.0.0.0:8470",
        "SLACKWATER_TLS_CERTIFICATE": f"{SECRETS}/server.pem",
        "SLACKWATER_TLS_KEY": f"{SECRETS}/server.pem",
        "SLACKWATER_PASSWORD_FILE": f"{SECRETS}/password",
        **plan.variables,
    }


class Builder:
    """Makes the parts of an environment, one by one; they are removed with the stack."""

    def __init__(self, environment: Environment, stack: ExitStack) -> None:
        self.environment, self._stack = environment, stack
        network = stack.enter_context(Network(docker_network_kw={"labels": LABEL}))
        self._network = network
        self._cable = network._network  # the library gives no other way to it

    @cached_property
    def state(self) -> str:
        """A volume with a working directory, which outlives containers."""
        volumes = DockerClient().client.volumes
        volume = volumes.create(f"slackwater-e2e-{secrets.token_hex(4)}", labels=LABEL)
        self._stack.callback(volume.remove, force=True)
        return str(volume.name)

    def part(
        self,
        name: str,
        image_: str,
        variables: Mapping[str, str],
        command: Sequence[str] = (),
        published: Mapping[int, int] | None = None,
        mounted: Mapping[str, str] | None = None,
        **more: object,
    ) -> Part:
        """Start a container: `published` is by the port inside, `mounted` by the one here."""
        volumes = self._volumes(name)  # removed after the container: asked for before
        volumes += [(source, place, "ro") for source, place in (mounted or {}).items()]
        container = (
            DockerContainer(image_)
            .with_network(self._network)
            .with_network_aliases(name)
            .with_envs(**variables, **self.environment.clock_variables(name))
            .with_kwargs(labels=LABEL, init=True, hostname=name, **more)
        )
        for source, place, mode in volumes:
            container = container.with_volume_mapping(source, place, mode)
        if command:
            container = container.with_command(list(command))
        ports, bound = dict(published or {}), cast("dict[str, Any]", container.ports)
        for inside, outside in ports.items():
            bound[f"{inside}/tcp"] = ("127.0.0.1", outside)
        self._stack.enter_context(container)
        part = Part(name, container, self._cable, next(iter(ports.values()), 0))
        self.environment.parts[name] = part
        return part

    def _volumes(self, name: str) -> list[tuple[str, str, Any]]:
        secret = (str(self.environment.directory), SECRETS, "ro")
        has_state = name in self.environment.plan.with_state
        return [secret, *([(self.state, STATE, "rw")] if has_state else [])]

    def service(self, name: str, image_: str, port: int = 0) -> Part:
        """One of ours."""
        plan = self.environment.plan
        published = {8470: port or free_port()} if name == "coordinator" else {}
        variables = service_variables(plan, self.environment.namespace)
        return self.part(
            name, image(image_), variables, [*SERVICES[name], *plan.arguments], published
        )

    def replace(self, name: str, image_: str) -> None:
        """A service ends in order, and one of another image takes its place, data and port."""
        old = self.environment.parts[name]
        code = old.stop()
        assert code == 0, f"{name} ended with {code}:\n{old.log}"
        self.environment.replaced.append(old)
        new = self.service(name, image_, old.port)
        eventually(f"the new {name} is healthy", lambda: new.health == "healthy")

    def start(self) -> None:
        """All parts; they are healthy."""
        plan, built = self.environment.plan, self.environment
        self.start_postgres()
        self.start_brokers()
        plan.opened(built)
        plan.more(self)
        for name in SERVICES:
            self.service(name, plan.image)
        eventually("all services are healthy", built.is_healthy)

    def start_brokers(self) -> None:
        """Those of the plan; they answer."""
        plan, built = self.environment.plan, self.environment
        for number in range(len(plan.brokers)):
            port = free_port()
            variables = brokers.variables(plan.brokers, number, port, plan.via)
            self.part(
                plan.brokers[number],
                image("kafka"),
                {**variables, **plan.broker},
                published={brokers.OUTSIDE: port},
            )
        started = "Kafka Server started"
        eventually(
            "the brokers start", lambda: all(started in broker.log for broker in built.brokers)
        )

    def start_postgres(self) -> None:
        """A database for materializations."""
        database = {
            "POSTGRES_USER": "bank",
            "POSTGRES_DB": "bank",
            "POSTGRES_PASSWORD": PASSWORD,
        }
        self.part("postgres", image("postgres"), database, published={5432: free_port()})


def remove_leftovers() -> None:
    """Containers, networks and volumes of a run that was killed."""
    client = DockerClient().client
    chosen = {"filters": {"label": [f"{name}={value}" for name, value in LABEL.items()]}}
    for container in client.containers.list(all=True, **chosen):
        container.remove(force=True, v=True)
    for network in client.networks.list(**chosen):
        network.remove()
    for volume in client.volumes.list(**chosen):
        volume.remove(force=True)


@contextmanager
def environment(
    directory: Path, plan: Plan, logs: Path
) -> Iterator[tuple[Environment, Builder]]:
    """Brokers, PostgreSQL and all services, healthy; at last their logs are kept."""
    testcontainers_config.ryuk_disabled = True  # an image of its own; see remove_leftovers
    testcontainers_config.tc_host_override = "127.0.0.1"
    remove_leftovers()
    make_secrets(directory, plan)
    built = Environment(directory, plan)
    with ExitStack() as stack:
        builder = Builder(built, stack)
        try:
            builder.start()
            yield built, builder
        finally:
            built.save_logs(logs)
