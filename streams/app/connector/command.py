"""`slackwater connector`: spec, validate, apply and serve. Needs neither Kafka nor Spark."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from connectors import tasks
from connectors.config import resolved
from connectors.transport import stdio
from schemas.materialize_pb2 import ApplyRequest, Constraint, SpecRequest, ValidateResponse
from streams.app.connector.lookup import OURS, driver_of, named
from streams.app.error_output import failed
from streams.errors import Determinate, InvalidUsage, SlackwaterError

app = typer.Typer(
    name="connector",
    help=(
        "Call a connector of the materialization protocol, or serve a built-in one.\n\n"
        "Exit codes: 0 done, 1 failed, 2 usage."
    ),
    no_args_is_help=True,
)

Choice = Annotated[
    str,
    typer.Argument(
        metavar="CONNECTOR",
        help=f"{', '.join(OURS)}, grpc:HOST:PORT, or a command, as ./connector.",
    ),
]
TaskFile = Annotated[
    Path,
    typer.Argument(metavar="TASK", exists=True, dir_okay=False, help="The task, as JSON."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the protocol's answer, as JSON.")]


@contextmanager
def told(*, as_json: bool = False) -> Iterator[None]:
    """A failure ends the command with its text."""
    try:
        yield
    except SlackwaterError as error:
        raise failed(error, as_json=as_json) from error


@app.command()
def spec(connector: Choice, *, json_: Json = False) -> None:
    """Show which configurations a connector takes."""
    with told(as_json=json_), driver_of(connector) as driver:
        response = driver.spec(SpecRequest())
    if json_:
        show(response)
        return
    typer.echo(f"documentation: {response.documentation_url}")
    offered = [name for name, on in MessageToDict(response.extensions).items() if on]
    typer.echo(f"extensions: {', '.join(offered) or 'none'}")
    typer.echo("\n".join(described("endpoint", response.endpoint_spec_schema_json)))
    typer.echo("\n".join(described("resource", response.resource_spec_schema_json)))


def described(what: str, schema: str) -> Iterator[str]:
    """A line for each property of a configuration."""
    value = json.loads(schema)
    required, properties = value.get("required"), value.get("properties")
    yield f"{what} configuration:"
    for name, member in properties.items() if isinstance(properties, dict) else ():
        property_ = member if isinstance(member, dict) else {}
        marks = [
            *(["required"] if isinstance(required, list) and name in required else []),
            *(["secret"] if property_.get("secret") else []),
        ]
        kind = " ".join([str(property_.get("type", "any")), *marks])
        yield f"  {name} ({kind}): {property_.get('description', '')}".rstrip(": ")


@app.command()
def validate(connector: Choice, task: TaskFile, *, json_: Json = False) -> None:
    """Ask a connector what each field of a task may be; changes nothing."""
    with told(as_json=json_), driver_of(connector) as driver:
        response = driver.validate(read(task, connector).request())
    if json_:
        show(response)
        return
    for binding in response.bindings:
        typer.echo("\n".join(constrained(binding)))


def read(file: Path, connector: str) -> tasks.Task:
    """The task in a file; a connector that is not ours is given what references refer to.

    Errors: InvalidUsage.
    """
    try:
        task = tasks.parse(file.read_text())
    except UnicodeDecodeError as error:
        raise InvalidUsage(f"{file}: expected JSON: {error}") from error
    if connector in OURS:
        return task
    return task.model_copy(update={"config": resolved(os.environ, task.config)})


def constrained(binding: ValidateResponse.Binding) -> Iterator[str]:
    """A line for each field of a binding."""
    mode = " (delta updates)" if binding.delta_updates else ""
    yield f"{'.'.join(binding.resource_path)}{mode}"
    for name, constraint in binding.constraints.items():
        yield f"  {name}: {Constraint.Type.Name(constraint.type)}: {constraint.reason}"


@app.command()
def apply(
    connector: Choice,
    task: TaskFile,
    *,
    version: Annotated[str, typer.Option(help="The version of the task.")] = "1",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the statements, do not execute them.")
    ] = False,
    json_: Json = False,
) -> None:
    """Make an endpoint ready for a task, and say what was done."""
    with told(as_json=json_), driver_of(connector) as driver:
        specification = tasks.validated(driver, read(task, connector))
        request = ApplyRequest(materialization=specification, version=version, dry_run=dry_run)
        response = driver.apply(request)
    if json_:
        show(response)
        return
    typer.echo(response.action_description or "nothing to do")


@app.command()
def serve(
    connector: Annotated[
        str, typer.Argument(metavar="CONNECTOR", help=f"One of {', '.join(OURS)}.")
    ],
    call: Annotated[
        str,
        typer.Argument(
            metavar="[CALL]",
            help="spec, validate, apply or transactions: answer it on pipes.",
        ),
    ] = "",
    *,
    listen: Annotated[
        str, typer.Option(help="HOST:PORT or unix:PATH: serve gRPC there, without encryption.")
    ] = "",
) -> None:
    """Serve one of our connectors: one call on pipes, or all of them over gRPC."""
    if bool(call) == bool(listen) or (call and call not in stdio.CALLS):
        expected = f"expected one of {', '.join(stdio.CALLS)}, or --listen HOST:PORT"
        raise typer.BadParameter(expected)
    with told():
        chosen = named(connector)
    if call:
        pipes = (sys.stdin.buffer, sys.stdout.buffer)
        raise typer.Exit(stdio.serve(chosen, call, pipes, sys.stderr.buffer))
    from connectors.transport.rpc import server  # noqa: PLC0415  one call needs no gRPC

    try:
        running, port = server(chosen, listen)
    except RuntimeError as error:
        raise failed(Determinate(f"cannot listen on {listen}: {error}")) from error
    typer.echo(f"{connector} listens on {port_of(listen, port)}")
    running.wait_for_termination()


def port_of(listen: str, port: int) -> str:
    """The address with the port that was taken, where 0 stood for any."""
    if listen.startswith("unix:"):
        return listen
    return f"{listen.rpartition(':')[0]}:{port}"


def show(message: Message) -> None:
    """A message in JSON's mapping of the protocol."""
    typer.echo(json.dumps(MessageToDict(message), indent=2))
