"""Options that say where Kafka and an environment are have one variable, in every command."""

from collections.abc import Iterator
from typing import Any

import pytest
from typer.core import TyperGroup

from tests.unit.test_docs import root

VARIABLES = {
    "--brokers": "SLACKWATER_BROKERS",
    "--client": "SLACKWATER_CLIENT",
    "--directory": "SLACKWATER_DIRECTORY",
    "--namespace": "SLACKWATER_NAMESPACE",
    "--password-file": "SLACKWATER_PASSWORD_FILE",
    "--tls-authority": "SLACKWATER_TLS_AUTHORITY",
    "--url": "SLACKWATER_URL",
}
DEMO = "demo"
"""It makes an environment of its own, and no variable leads it to another one."""


def options(command: Any, *names: str) -> Iterator[tuple[str, Any]]:
    """Each option of each command with the command's name."""
    if isinstance(command, TyperGroup):
        for name, subcommand in command.commands.items():
            yield from options(subcommand, *names, name)
        return
    for parameter in command.params:
        yield " ".join(names), parameter


PLACES = [
    pytest.param(name, parameter, id=f"{name} {option}")
    for name, parameter in options(root())
    for option in parameter.opts
    if option in VARIABLES and name != DEMO
]


@pytest.mark.parametrize(("command", "parameter"), PLACES)
def test_it_reads_its_variable(command: str, parameter: Any) -> None:
    (option,) = set(parameter.opts) & VARIABLES.keys()
    assert parameter.envvar == VARIABLES[option], f"slackwater {command} {option}"


def test_commands_are_compared() -> None:
    compared = {parameter.id for parameter in PLACES}
    assert compared >= {
        "storage --client",
        "doctor --client",
        "materialize serve --client",
        "up --directory",
        "sql --directory",
    }
