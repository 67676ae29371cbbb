"""The options that every subcommand has: which shards are meant, and who reads the answer.

The fields of `Where` are their one definition: a command takes it as its first parameter, and
`placed` gives the command line the options in its stead.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Concatenate, ParamSpec

import typer

from streams.app.environment_access import reach
from streams.app.up import DIRECTORY, NAMESPACE, ClientOption, client_settings
from streams.errors import InvalidUsage
from streams.kafka.settings import ClientSettings

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Where:
    """A namespace, and the form of the answer. It may hold secrets: no repr."""

    directory: Annotated[Path, typer.Option(help="The environment's directory.")] = DIRECTORY
    brokers: Annotated[
        str,
        typer.Option(help="Kafka brokers, HOST:PORT[,...], instead of an environment's."),
    ] = ""
    namespace: Annotated[
        str,
        typer.Option(help="Prefix of the topic names. Default: the environment's, or sw."),
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


def placed(command: Callable[Concatenate[Where, P], None]) -> Callable[P, None]:
    """The command with the options of `Where` instead of its first parameter."""
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    shared = list(inspect.signature(Where, eval_str=True).parameters.values())

    @wraps(command)
    def with_options(*arguments: P.args, **options: P.kwargs) -> None:
        where = Where(**{parameter.name: options.pop(parameter.name) for parameter in shared})  # type: ignore[arg-type]  # as the signature has them
        command(where, *arguments, **options)

    parameters = [*own, *shared]
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    with_options.__annotations__ = {
        parameter.name: parameter.annotation for parameter in parameters
    }
    return with_options
