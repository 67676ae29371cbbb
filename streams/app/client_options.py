"""Options that name brokers, topics and an environment's directory, for all commands."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from streams.errors import InvalidUsage
from streams.kafka.topic_settings import topic_choices

DIRECTORY = Path(".slackwater")

NAMESPACE = "sw"
"""The default prefix of our topics' names."""

ClientOption = Annotated[
    list[str] | None,
    typer.Option(
        "--client",
        envvar="SLACKWATER_CLIENT",
        help="A librdkafka setting, NAME=VALUE, or @FILE with one a line. May be repeated.",
    ),
]

BrokersOption = Annotated[
    str,
    typer.Option(
        envvar="SLACKWATER_BROKERS",
        help="Kafka brokers, HOST:PORT[,...]. Default: an embedded broker.",
    ),
]

DirectoryOption = Annotated[
    Path, typer.Option(envvar="SLACKWATER_DIRECTORY", help="The environment's directory.")
]

NamespaceOption = Annotated[
    str,
    typer.Option(envvar="SLACKWATER_NAMESPACE", help="Prefix of Slackwater's topic names."),
]

TopicOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        help="A setting of topics that Slackwater creates, NAME=VALUE. May be repeated.",
    ),
]


def client_settings(options: list[str]) -> dict[str, str]:
    """`NAME=VALUE` pairs, and those of `@FILE`s, as settings; the last of a name counts.

    A file keeps secrets off the command line, which everybody on the machine can read. What is
    wrong is never shown: it may be a secret.

    Errors: typer.BadParameter.
    """
    pairs: list[str] = []
    for option in options:
        pairs += lines_of(Path(option[1:])) if option.startswith("@") else [option]
    return named(pairs)


def only_with(brokers: str, client: Mapping[str, str], namespace: str) -> None:
    """Refuse what is said of brokers that are not named: the environment's are as it has them.

    Errors: typer.BadParameter.
    """
    if not brokers and (client or namespace != NAMESPACE):
        raise typer.BadParameter(
            "expected --brokers with --client or --namespace: the environment in --directory"
            " has its own"
        )


def lines_of(file: Path) -> list[str]:
    """The lines of a file but the empty ones and comments, without spaces around `=`.

    Errors: typer.BadParameter.
    """
    try:
        lines = [line.strip() for line in file.read_text().splitlines()]
    except (OSError, ValueError) as cause:
        raise typer.BadParameter(f"expected a file of NAME=VALUE lines at {file}") from cause
    settings = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return [f"{name.strip()}{equals}{value.strip()}" for name, equals, value in settings]


def named(pairs: list[str]) -> dict[str, str]:
    """`NAME=VALUE` pairs by name. Errors: typer.BadParameter."""
    split = [pair.partition("=") for pair in pairs]
    for number, (name, equals, _) in enumerate(split, 1):
        if not equals or not name.strip():
            raise typer.BadParameter(
                f"expected NAME=VALUE, actual another form at number {number}"
            )
    return {name.strip(): value for name, _, value in split}


def chosen_topics(options: list[str]) -> dict[str, str]:
    """`NAME=VALUE` pairs that choose something of our topics. Errors: typer.BadParameter."""
    pairs = named(options)
    try:
        topic_choices(pairs)
    except InvalidUsage as error:
        raise typer.BadParameter(str(error)) from error
    return pairs
