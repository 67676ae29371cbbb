"""The command line. Exit codes: 0 done, 1 failed or wrong, 2 usage, 3 no environment."""

import importlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from streams.app import services
from streams.app.arrow_without_pandas import without_pandas
from streams.app.service_process import Supervised, configured, serve, until_signalled
from streams.app.signals import asked_for
from streams.app.sql import sql
from streams.app.up import up

app = typer.Typer(
    name="slackwater",
    help="Exact, always-fresh SQL views over Kafka, on Spark.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command()(up)
app.command()(sql)
app.command()(services.coordinator)
app.command()(services.replica)
app.command()(services.compaction)

# The demo and the benchmarks load the engine, which takes seconds, and looking into shards
# and storage load DuckDB: only where they are wanted, or where all commands are listed.
wanted = asked_for(sys.argv[1:])
LEAN = {"coordinator", "compaction", "connector", "materialize", "materializations", "storage"}
if wanted in LEAN:
    without_pandas()
SERVICES = {"up", "sql", "coordinator", "replica", "compaction", "materializations"}
if wanted not in {*SERVICES, "storage", "shard", "topic", "connector", "materialize"}:
    from streams.app.dlq import command as dlq

    app.add_typer(dlq.app, name="dlq")
if wanted not in {*SERVICES, "dlq", "storage", "shard", "topic", "connector"}:
    from streams.app.materialize import command as materialize

    app.add_typer(materialize.app, name="materialize")
if wanted not in {*SERVICES, "dlq", "storage", "shard", "topic", "materialize"}:
    from streams.app.connector import command as connector

    app.add_typer(connector.app, name="connector")
if wanted not in {*SERVICES, "dlq", "connector", "materialize"}:
    from streams.app.storage import storage

    app.command()(storage)
if wanted not in {*SERVICES, "dlq", "connector", "materialize", "storage"}:
    if wanted != "topic":
        from streams.app.shard import command as shard

        app.add_typer(shard.app, name="shard")
    if wanted != "shard":
        from streams.app.topic import command as topic

        app.add_typer(topic.app, name="topic")
    if wanted not in {"shard", "topic"}:
        from streams.app.compact_command import compact
        from streams.bench import command as bench
        from streams.demo import command as demo
        from streams.torture import command as torture

        app.command()(compact)
        app.command()(demo.demo)
        app.add_typer(bench.app, name="bench")
        app.add_typer(torture.app, name="torture")

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
    stopping = until_signalled(supervised=supervised)
    serve(importlib.import_module("streams.app.materialize.service").run, service, stopping)
