"""Setup shared by the services of an environment: clock, names, log lines, shutdown.

Each is a process of its own (`streams.app.coordinator`, `streams.app.replica`,
`streams.app.compaction`), and is configured by one JSON file (`streams.app.service_config`). It
serves until it is asked to end, independent of its standard input.
"""

import logging
import os
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from streams.app import signals
from streams.app.environment_access import reachable
from streams.app.error_output import failed
from streams.app.processes import end_with_input
from streams.app.service_config import FAILED, Service, read_service
from streams.errors import InvalidUsage, SlackwaterError
from streams.log_lines import JSON, LogFormat, configure

log = logging.getLogger(__name__)


def now_ms() -> int:
    """The wall clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """A name that no other process has."""
    return uuid.uuid4().hex


LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        envvar="SLACKWATER_LOG_FORMAT",
        help="Log lines for people, or one JSON object a line for programs.",
    ),
]


Supervised = Annotated[
    bool,
    typer.Option(
        "--supervised",
        hidden=True,
        help="End, with this process group, when standard input ends: the parent is gone.",
    ),
]


def until_signalled(
    *, supervised: bool = False, log_format: LogFormat = "text", service: str = ""
) -> signals.Stop:
    """Set when the process is asked to end; from now on it logs to standard output.

    The end of standard input ends a supervised process, and no other: a service that an
    operating system or a container runs has none.
    """
    if supervised:
        end_with_input()
    configure(log_format, service, sys.stdout)
    return signals.until_signalled()


def configured(config: Path) -> Service:
    """The configuration that a file holds. Errors: typer.BadParameter, saying what is wrong."""
    try:
        return read_service(config)
    except InvalidUsage as error:
        raise typer.BadParameter(str(error), param_hint="--config") from error


def ended(
    error: SlackwaterError, log_format: LogFormat, code: int = FAILED, *, as_json: bool = False
) -> typer.Exit:
    """Show with which error a service ends, in the form of its log lines; the exit to raise."""
    if log_format == JSON:
        log.error("%s", " ".join(str(error).split()))
        return typer.Exit(code)
    return failed(error, code, as_json=as_json)


Run = Callable[[Service, signals.Stop], int]
"""Serves its configuration until the event is set or a fatal error; returns the exit code."""


def serve(run: Run, service: Service, stopping: signals.Stop) -> NoReturn:
    """Run a service until it ends, and this process with it, by the service's exit code.

    By then the service has closed all that it opened. Threads of libraries still run (PySpark
    has some for each query): to take the interpreter apart under them makes native libraries
    report leaks, and may crash. So the process ends at once.
    """
    code = FAILED
    try:
        reachable(service.kafka)  # before Spark is started, which takes seconds
        code = run(service, stopping)
    except SlackwaterError as error:
        log.error("%s", " ".join(str(error).split()))  # noqa: TRY400  expected: where it was noticed tells nothing
    except Exception:
        log.exception("unexpected error, exiting")
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
