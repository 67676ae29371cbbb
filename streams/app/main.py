"""The command line. Exit codes: 0 done, 1 failed or wrong, 2 usage, 3 no environment."""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from streams.app import service
from streams.app.sql import sql
from streams.app.up import up


def asked_for(arguments: Sequence[str]) -> str:
    """The command that is asked for, if any."""
    return next((each for each in arguments if not each.startswith("-")), "")


app = typer.Typer(
    name="slackwater",
    help="Exact, always-fresh SQL views over Kafka, on Spark.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command()(up)
app.command()(sql)

# The demo and the benchmarks load the engine, which takes seconds, and looking into shards
# and storage load DuckDB: only where they are wanted, or where all commands are listed.
wanted = asked_for(sys.argv[1:])
if wanted not in {"up", "sql", "coordinator", "replica", "compaction"}:
    from streams.app.storage import storage

    app.command()(storage)
if wanted not in {"up", "sql", "coordinator", "replica", "compaction", "storage"}:
    from streams.app.shard import command as shard

    app.add_typer(shard.app, name="shard")
    if wanted != "shard":
        from streams.app.bench import command as bench
        from streams.app.compact import compact
        from streams.app.demo import command as demo
        from streams.app.torture import command as torture

        app.command()(compact)
        app.command()(demo.demo)
        app.add_typer(bench.app, name="bench")
        app.add_typer(torture.app, name="torture")

Config = Annotated[Path, typer.Option("--config", exists=True, dir_okay=False)]


@app.command(hidden=True)
def coordinator(config: Config) -> None:
    """Run a coordinator as its supervisor says."""
    raise typer.Exit(_run("coordinator", config))


@app.command(hidden=True)
def replica(config: Config) -> None:
    """Run a replica as its supervisor says."""
    raise typer.Exit(_run("replica", config))


@app.command(hidden=True)
def compaction(config: Config) -> None:
    """Compact now and then, as its supervisor says."""
    raise typer.Exit(_run("compaction", config))


def _run(name: str, config: Path) -> int:
    """Run a service; loaded only here, for the shell would wait seconds for Spark."""
    module = importlib.import_module(f"streams.app.{name}")
    code: int = module.run(service.read_service(config))
    return code


if __name__ == "__main__":
    app()
