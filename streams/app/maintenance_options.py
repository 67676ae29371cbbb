"""Options of `slackwater up` and of the services that it runs: history, deadlines, limits."""

from typing import Annotated

import typer

from streams.adapter.workers.limits import LEAST_DISK, LEAST_MEMORY
from streams.app.client_options import named
from streams.compute.parameters import check_names, check_values
from streams.copies.targets import CopyTargets
from streams.errors import InvalidStatement, InvalidUsage
from streams.plan.sql.durations import milliseconds

LEAST_DEADLINE_MS = 1000

SliceOption = Annotated[
    int, typer.Option(min=1, help="Bytes of stored input that a hydration reads at a time.")
]


IndexMemoryOption = Annotated[
    int, typer.Option(min=0, help="Bytes of memory for all indexes of a replica together.")
]

ResidentOption = Annotated[
    int,
    typer.Option(
        "--resident-tasks",
        min=0,
        help=(
            "Tasks of Spark's that stay, for small steps, each with a core of its own; 0: none."
            " On a cluster they wait for executors with a core more."
        ),
    ),
]

DeadlineOption = Annotated[
    str, typer.Option(help="Deadline of the smallest micro-batch; larger ones get more.")
]

RetainOption = Annotated[
    str, typer.Option(help="How much history to keep, unless an object sets its own.")
]

StatementsOption = Annotated[
    int, typer.Option(min=1, help="How many statements run at a time; others wait.")
]

StatementMemoryOption = Annotated[
    int, typer.Option(min=LEAST_MEMORY, help="Bytes of memory that a statement may use.")
]

StatementDiskOption = Annotated[
    int,
    typer.Option(
        min=LEAST_DISK,
        help="Bytes of disk for a statement's working files, and for its answer.",
    ),
]

AuditOption = Annotated[
    float,
    typer.Option(
        "--audit-every",
        metavar="SECONDS",
        min=0,
        help="Seconds between audits, each of one view at one random time; 0: no audits.",
    ),
]

CopyToOption = Annotated[
    list[str] | None,
    typer.Option(
        "--copy-to",
        envvar="SLACKWATER_COPY_TO",
        metavar="URI",
        help=(
            "COPY may write below this URI, as file:///exports or s3://bucket/exports; it may"
            " have credentials and options of the file system. May be repeated."
        ),
    ),
]

ParameterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter",
        envvar="SLACKWATER_PARAMETER",
        metavar="NAME=VALUE",
        help="A parameter of the replicas, as heartbeat_ms=1000. May be repeated.",
    ),
]

StatementDeadlineOption = Annotated[
    str, typer.Option(help="How long planning a statement may take, and running it.")
]


def chosen_parameters(options: list[str]) -> dict[str, int]:
    """`NAME=VALUE` pairs of what replicas go by. Errors: typer.BadParameter."""
    try:
        values = {name: int(value) for name, value in named(options).items()}
    except ValueError as error:
        raise typer.BadParameter("expected NAME=VALUE with a whole number") from error
    try:
        check_names(values)
        check_values(values)
    except InvalidUsage as error:
        raise typer.BadParameter(str(error)) from error
    return values


def duration(text: str) -> int:
    """The milliseconds of a duration. Errors: typer.BadParameter."""
    try:
        return milliseconds(text)
    except InvalidStatement as error:
        raise typer.BadParameter(f"{error.message}: {error.hint}") from error


def deadline(text: str) -> int:
    """The milliseconds of a step's or a statement's deadline. Errors: typer.BadParameter."""
    ms = duration(text)
    if ms < LEAST_DEADLINE_MS:
        raise typer.BadParameter(f"expected at least one second, actual {text!r}")
    return ms


def chosen_targets(uris: list[str] | None) -> list[str]:
    """Return the URIs below which COPY may write. Errors: typer.BadParameter."""
    try:
        CopyTargets.of(uris or [])
    except InvalidUsage as error:
        raise typer.BadParameter(str(error)) from error
    return uris or []
