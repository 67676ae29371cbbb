"""Options that many commands have: which shards are meant, who reads the answer.

The fields of a dataclass are their one definition: a command takes it as its first parameter,
and `with_options` gives the command line the options in its stead.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Concatenate, ParamSpec, TypeVar

import typer

from streams.app.client_options import (
    DIRECTORY,
    NAMESPACE,
    ClientOption,
    DirectoryOption,
    client_settings,
)
from streams.app.environment_access import reach
from streams.errors import InvalidUsage
from streams.kafka.settings import ClientSettings

Shared = TypeVar("Shared")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Where:
    """A namespace, and the form of the answer. It may hold secrets: no repr."""

    directory: DirectoryOption = DIRECTORY
    brokers: Annotated[
        str,
        typer.Option(
            envvar="SLACKWATER_BROKERS",
            help="Kafka brokers, HOST:PORT[,...], instead of an environment's.",
        ),
    ] = ""
    namespace: Annotated[
        str,
        typer.Option(
            envvar="SLACKWATER_NAMESPACE",
            help="Prefix of the topic names. Default: the environment's, or sw.",
        ),
    ] = ""
    client: ClientOption = None
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line, for programs.")
    ] = False

    def resolve(self) -> tuple[ClientSettings, str]:
        """The brokers' address and settings, and the namespace.

        Errors: InvalidUsage when the directory has no environment; typer.BadParameter.
        """
        chosen = client_settings(self.client or [])
        bootstrap, extra, name = self.brokers, dict[str, str](), NAMESPACE
        if not bootstrap:
            kafka, name = reach(self.directory.absolute())
            bootstrap, extra = kafka.bootstrap, dict(kafka.extra)
        try:
            settings = ClientSettings(bootstrap, tuple(sorted({**extra, **chosen}.items())))
        except InvalidUsage as error:
            raise typer.BadParameter(str(error)) from error
        return settings, self.namespace or name


def with_options(
    shared: type[Shared],
) -> Callable[[Callable[Concatenate[Shared, P], None]], Callable[P, None]]:
    """Have a command's first parameter made of the options that a dataclass defines."""
    options_of = list(inspect.signature(shared, eval_str=True).parameters.values())

    def decorate(command: Callable[Concatenate[Shared, P], None]) -> Callable[P, None]:
        _, *own = inspect.signature(command, eval_str=True).parameters.values()

        @wraps(command)
        def with_shared(*arguments: P.args, **options: P.kwargs) -> None:
            values = {parameter.name: options.pop(parameter.name) for parameter in options_of}
            command(shared(**values), *arguments, **options)

        parameters = [*own, *options_of]
        with_shared.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
        with_shared.__annotations__ = {
            parameter.name: parameter.annotation for parameter in parameters
        }
        return with_shared

    return decorate


placed = with_options(Where)
"""Have a command's first parameter made of the options of `Where`."""
