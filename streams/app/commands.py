"""The command line. Exit codes: 0 done, 1 failed or wrong, 2 usage, 3 no environment."""

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from streams.app.service_process import Supervised, configured, serve, until_signalled
from streams.app.signals import asked_for
from streams.arrow_without_pandas import with_pandas, without_pandas

COMMANDS = {
    "up": "streams.app.up:up",
    "sql": "streams.app.sql:sql",
    "coordinator": "streams.app.services:coordinator",
    "replica": "streams.app.services:replica",
    "compaction": "streams.app.services:compaction",
    "storage": "streams.app.storage:storage",
    "materialize": "streams.app.materialize.command:app",
    "connector": "streams.app.connector.command:app",
    "dlq": "streams.app.dlq.command:app",
    "topic": "streams.app.topic.command:app",
    "shard": "streams.app.shard.command:app",
    "top": "streams.app.top.command:top",
    "audit": "streams.app.audit:audit",
    "doctor": "streams.app.doctor.command:doctor",
    "compact": "streams.app.compact_command:compact",
    "demo": "streams.demo.command:demo",
    "bench": "streams.bench.command:app",
    "torture": "streams.torture.command:app",
}
"""Where each command is, in the order of the help."""

WITHOUT_PANDAS = {
    "coordinator", "compaction", "connector", "materialize", "materializations", "storage",
    "topic",
}  # fmt: skip

app = typer.Typer(
    name="slackwater",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


@app.callback()
def slackwater() -> None:
    """Exact, always-fresh SQL views over Kafka, on Spark."""


def register(names: Iterable[str]) -> None:
    """Load commands and add them to `app`."""
    for name in names:
        module, _, attribute = COMMANDS[name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)


# Commands load Spark, the engine or DuckDB, which takes up to seconds: only the one that is
# asked for is loaded, or all where they are listed.
wanted = asked_for(sys.argv[1:])
if wanted in WITHOUT_PANDAS:
    without_pandas()
elif wanted == "replica":
    with_pandas()  # a fork server has hidden it
if wanted != "materializations":
    register([wanted] if wanted in COMMANDS else COMMANDS)

Config = Annotated[
    Path,
    typer.Option(
        "--config", exists=True, dir_okay=False, help="The service's configuration, as JSON."
    ),
]


@app.command(hidden=True)
def materializations(config: Config, *, supervised: Supervised = False) -> None:
    """Run the materializations of an environment, until SIGTERM or SIGINT."""
    service = configured(config)
    stopping = until_signalled(
        supervised=supervised, log_format=service.log_format, service="materializations"
    )
    serve(importlib.import_module("streams.app.materialize.service").run, service, stopping)
