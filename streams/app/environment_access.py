"""Access to an environment: its file, brokers and port, and the lock of its directory."""

import fcntl
import json
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from streams.app.client import Client
from streams.errors import Determinate, InvalidUsage, SlackwaterError
from streams.files import write_whole
from streams.kafka.client import inspection
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import Topics

_FILE = "environment.json"


@dataclass(frozen=True, slots=True)
class _Access:
    """The contents of an environment's file."""

    url: str
    bootstrap: str
    client: dict[str, str]
    namespace: str


def expect_answer(topics: Topics, settings: ClientSettings) -> None:
    """Errors: Determinate, which says where and why, when no broker answers."""
    try:
        topics.names()
    except Determinate as cause:
        reason = why_not(settings) or cause
        raise Determinate(f"no broker answers at {settings.bootstrap}: {reason}") from cause


def why_not(settings: ClientSettings) -> str:
    """Why no broker answers, as a password that is refused; empty if one does by now."""
    try:
        inspection.cluster(settings)
    except SlackwaterError as reason:
        return str(reason)
    return ""


def reachable(settings: ClientSettings) -> ClientSettings:
    """The settings, with which a broker has answered: else each service would fail on its own.

    Errors: InvalidUsage when they are refused, Determinate when no broker answers.
    """
    broker = KafkaBroker(settings)
    try:
        expect_answer(broker.topics, settings)
    finally:
        broker.close()
    return settings


def find(directory: Path) -> tuple[Client, ClientSettings, str]:
    """The client, the Kafka settings and the namespace of a running environment.

    Errors: InvalidUsage when no environment runs in the directory.
    """
    kafka, namespace = reach(directory)
    client = Client(_read(directory / _FILE).url)
    if not client.is_ready():
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
    access = _read(file)
    settings = tuple(sorted(access.client.items()))
    return ClientSettings(access.bootstrap, settings), access.namespace


def url_of(directory: Path) -> str:
    """The URL of an environment's coordinator, whether or not it runs; empty if there is none.

    Errors: InvalidUsage.
    """
    file = directory / _FILE
    return _read(file).url if file.exists() else ""


def write_file(directory: Path, kafka: ClientSettings, namespace: str, port: int) -> None:
    """Write down how to reach the environment of the directory."""
    access = _Access(f"http://127.0.0.1:{port}", kafka.bootstrap, dict(kafka.extra), namespace)
    # client settings may hold secrets
    write_whole(directory / _FILE, json.dumps(asdict(access), indent=2) + "\n", mode=0o600)


def port_of(directory: Path) -> int:
    """The coordinator's port: the one it had before, if it is free."""
    for wanted in (_port_before(directory / _FILE), 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", wanted))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise Determinate("no free port on 127.0.0.1")


def _port_before(file: Path) -> int:
    """The port that the file names, else 0: a file that was damaged is rewritten."""
    try:
        return int(_read(file).url.rsplit(":", 1)[1])
    except (InvalidUsage, ValueError, IndexError):
        return 0


def _read(file: Path) -> _Access:
    """Read the file that `write_file` wrote.

    Errors: InvalidUsage, which shows no value: client settings may hold secrets.
    """
    try:
        return _Access(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError) as cause:
        kind = type(cause).__name__
        raise InvalidUsage(f"{_expected(file)}, which cannot be read: {kind}") from cause


def _expected(file: Path) -> str:
    return (
        "expected url, bootstrap, client and namespace of an environment as JSON in"
        f" {file} ('slackwater up' rewrites it)"
    )


def exclusive(directory: Path) -> IO[str]:
    """The directory's lock, held while the file is open."""
    lock = (directory / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as cause:
        lock.close()
        raise InvalidUsage(f"another environment runs in {directory}") from cause
    return lock
