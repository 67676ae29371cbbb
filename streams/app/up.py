"""`slackwater up`: an environment in the foreground."""

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from streams.app.environment import MASTER, Environment, Settings
from streams.errors import Determinate, InvalidUsage

DIRECTORY = Path(".slackwater")


def client_settings(pairs: list[str]) -> dict[str, str]:
    """`NAME=VALUE` pairs as settings. Errors: typer.BadParameter."""
    for pair in pairs:
        if "=" not in pair:
            raise typer.BadParameter(f"expected NAME=VALUE, got {pair.split('=')[0]}")
    return dict(pair.split("=", 1) for pair in pairs)


def up(
    brokers: Annotated[
        str, typer.Option(help="Kafka to use, as HOST:PORT[,...]. Default: an embedded one.")
    ] = "",
    directory: Annotated[
        Path, typer.Option(help="Where the environment keeps its files.")
    ] = DIRECTORY,
    client: Annotated[
        list[str] | None,
        typer.Option("--client", help="A librdkafka setting, NAME=VALUE. May be repeated."),
    ] = None,
    namespace: Annotated[str, typer.Option(help="What our topics' names begin with.")] = "sw",
    master: Annotated[str, typer.Option(help="Spark's master. Default: this machine.")] = "",
) -> None:
    """Start an environment and stay with it until Ctrl-C.

    Broker (unless --brokers), coordinator and one replica; whichever dies is started again.

    Examples:
        slackwater up
        slackwater up --brokers kafka.example:9092 --client security.protocol=SSL
    """
    console = Console(stderr=True)
    settings = Settings(
        directory=directory.absolute(),
        brokers=brokers,
        client=client_settings(client or []),
        namespace=namespace,
        master=master or MASTER,
    )
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    environment = Environment(settings, say=lambda text: console.print(f"[dim]{text}[/]"))
    try:
        with environment:
            console.print(f"Kafka        [green]{environment.kafka.bootstrap}[/]")
            console.print(f"SQL          [green]{environment.client.url}/sql[/]")
            console.print(f"logs         {settings.directory / 'logs'}")
            shell = f"slackwater sql --directory {settings.directory.absolute()}"
            text = f"ready: try [bold]{shell}[/] in another terminal; Ctrl-C ends"
            console.print(text, soft_wrap=True)
            _stay(environment, stopping)
    except KeyboardInterrupt:
        console.print("[dim]stopped[/]")
    except (InvalidUsage, Determinate) as error:
        console.print(f"[red]error:[/] {error}", highlight=False)
        raise typer.Exit(1) from error


def _stay(environment: Environment, stopping: threading.Event) -> None:
    """Return when told to stop. Errors: InvalidUsage when another environment took over."""
    while not stopping.wait(1):
        if environment.successor:
            raise InvalidUsage(environment.successor)
