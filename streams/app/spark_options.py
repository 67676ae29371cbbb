"""Options of a replica about Spark: its master and settings, and what executors share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import typer

from streams.app.client_options import named
from streams.app.maintenance_options import ResidentOption
from streams.app.service_config import MASTER, RESIDENT_TASKS

KEPT = {
    "spark.master": "--master says it",
    "spark.python.daemon.module": "tasks of a replica are started by its own daemon",
    "spark.sql.adaptive.enabled": "a bucket of state would not stay in its partition",
}
"""Settings of Spark that a replica depends on, and why."""


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class OnSpark:
    """Where Spark runs tasks, and where these have state. It may hold secrets: no repr."""

    master: Annotated[str, typer.Option(envvar="SLACKWATER_MASTER", help="Spark's master.")] = (
        MASTER
    )
    driver_memory: Annotated[str, typer.Option(help="Memory of Spark's driver.")] = "1g"
    resident_tasks: ResidentOption = RESIDENT_TASKS
    store: Annotated[
        str,
        typer.Option(
            "--store",
            envvar="SLACKWATER_STORE",
            metavar="URI",
            help=(
                "Keep state below this URI of a file system, as s3://bucket/slackwater or"
                " file:///shared: executors then need no directory in common."
            ),
        ),
    ] = ""
    cache: Annotated[
        str,
        typer.Option(
            "--cache",
            envvar="SLACKWATER_CACHE",
            metavar="DIRECTORY",
            help=(
                "With --store: the directory of each host for copies of its state. Default: one"
                " where its executor was started, which ends with it."
            ),
        ),
    ] = ""
    cache_bytes: Annotated[
        int, typer.Option(min=1 << 20, help="With --store: bytes of copies that a host keeps.")
    ] = 16 << 30
    conf: Annotated[
        list[str] | None,
        typer.Option(
            "--conf",
            metavar="NAME=VALUE",
            help="A setting of Spark's, as spark.executor.memory=4g. May be repeated.",
        ),
    ] = None

    def options(self) -> Mapping[str, object]:
        """The fields of a service's configuration. Errors: typer.BadParameter."""
        self.check()
        return {
            "master": self.master,
            "driver_memory": self.driver_memory,
            "resident_tasks": self.resident_tasks,
            "store": self.store,
            "cache": self.cache,
            "cache_bytes": self.cache_bytes,
            "spark_settings": self.spark_settings,
        }

    def check(self) -> None:
        """Errors: typer.BadParameter for options that do not fit together."""
        if self.store and "://" not in self.store:
            raise typer.BadParameter(
                "--store: expected a URI, as file:///shared, actual a path"
            )
        if self.cache and not self.store:
            raise typer.BadParameter("--cache needs --store URI: add it")
        if self.cache and not self.cache.startswith("/"):
            raise typer.BadParameter(
                "--cache: expected an absolute path, actual a relative one"
            )

    @property
    def spark_settings(self) -> Mapping[str, str]:
        """Spark's settings by name. Errors: typer.BadParameter."""
        return chosen_settings(self.conf or [])


def chosen_settings(pairs: list[str]) -> Mapping[str, str]:
    """`NAME=VALUE` pairs of Spark's settings by name. Errors: typer.BadParameter."""
    settings = named(pairs)
    for name in settings:
        if not name.startswith("spark."):
            raise typer.BadParameter(f"--conf: expected spark.NAME=VALUE, actual {name[:60]!r}")
        if name in KEPT:
            raise typer.BadParameter(f"--conf: {name} cannot be set: {KEPT[name]}")
    return settings
