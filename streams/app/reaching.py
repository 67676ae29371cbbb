"""How an environment is reached: its file, its brokers, its port; and its directory's lock."""

import fcntl
import json
import socket
from pathlib import Path
from typing import IO

from streams.app.client import Client
from streams.errors import Determinate, InvalidUsage
from streams.kafka.broker import KafkaBroker
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import Topics

_FILE = "environment.json"


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


def write_file(directory: Path, kafka: ClientSettings, namespace: str, port: int) -> None:
    """Write down how to reach the environment of the directory."""
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


def port_of(directory: Path) -> int:
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


def exclusive(directory: Path) -> IO[str]:
    """The directory's lock, held while the file is open."""
    lock = (directory / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as cause:
        lock.close()
        raise InvalidUsage(f"another environment runs in {directory}") from cause
    return lock
