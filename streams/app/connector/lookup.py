"""Finds a connector: a built-in one by name, another one by a command or an address."""

import importlib
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

from connectors.connector import Connector
from connectors.driver import Driver
from connectors.runtime.task import BUILT_IN
from connectors.transport.local import Local
from connectors.transport.stdio import Command
from streams.errors import InvalidUsage

GRPC = "grpc:"


OURS = BUILT_IN


def named(name: str, environment: Mapping[str, str] = os.environ) -> Connector:
    """Import and return a built-in connector by its name. Errors: InvalidUsage."""
    if name not in OURS:
        raise InvalidUsage(f"no connector {name!r}: expected one of {', '.join(OURS)}")
    connector: Connector = importlib.import_module(f"connectors.{name}").connector(environment)
    return connector


@contextmanager
def driver_of(choice: str, environment: Mapping[str, str] = os.environ) -> Iterator[Driver]:
    """Open the driver of a built-in connector, of `grpc:HOST:PORT`, or of a command.

    A built-in connector looks up its secrets in `environment`; a command runs with it.

    Errors: InvalidUsage if `choice` is none of the three.
    """
    if choice in OURS:
        yield Driver(Local(named(choice, environment)))
        return
    if choice.startswith(GRPC):
        from connectors.transport.rpc import Rpc  # noqa: PLC0415  only where it is wanted

        with closing(Rpc(choice.removeprefix(GRPC))) as rpc:
            yield Driver(rpc)
        return
    words = shlex.split(choice)
    if not words or "/" not in words[0]:
        raise InvalidUsage(
            f"no connector {choice!r}: expected {', '.join(OURS)}, grpc:HOST:PORT, or a"
            " command whose program has a directory, as ./connector"
        )
    yield Driver(Command(words, environment))
