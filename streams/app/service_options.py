"""The options of services outside of `slackwater up`, as environment variables too."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from streams.app.client_options import (
    DIRECTORY,
    NAMESPACE,
    ClientOption,
    NamespaceOption,
    client_settings,
)
from streams.app.service_config import Service
from streams.app.service_process import LogFormatOption, Supervised, configured
from streams.errors import InvalidUsage

FileOption = Path | None


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Exposure:
    """Where a service answers HTTP, and what protects it."""

    listen: Annotated[
        str,
        typer.Option(
            envvar="SLACKWATER_LISTEN",
            metavar="HOST:PORT",
            help=(
                "Answer /healthz, /readyz and /metrics here; beyond this machine only with TLS"
                " and a password or certificates of clients."
            ),
        ),
    ] = ""
    tls_certificate: Annotated[
        FileOption,
        typer.Option(envvar="SLACKWATER_TLS_CERTIFICATE", help="The service's, as PEM."),
    ] = None
    tls_key: Annotated[
        FileOption, typer.Option(envvar="SLACKWATER_TLS_KEY", help="Its key, as PEM.")
    ] = None
    tls_client_authority: Annotated[
        FileOption,
        typer.Option(
            envvar="SLACKWATER_TLS_CLIENT_AUTHORITY",
            help="Certificates, as PEM, that sign those of clients: others are refused.",
        ),
    ] = None
    password_file: Annotated[
        FileOption,
        typer.Option(
            envvar="SLACKWATER_PASSWORD_FILE", help="A file that holds the clients' password."
        ),
    ] = None

    def applied(self, service: Service) -> Service:
        """The configuration with these settings. Errors: typer.BadParameter."""
        service = replace(
            service,
            listen=self.listen,
            certificate=_name(self.tls_certificate),
            key=_name(self.tls_key),
            client_authority=_name(self.tls_client_authority),
            password_file=_name(self.password_file),
        )
        try:
            _ = service.listening
        except InvalidUsage as error:
            raise typer.BadParameter(str(error)) from error
        return service


def _name(file: Path | None) -> str:
    return "" if file is None else str(file.absolute())


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Place:
    """Brokers and a namespace, or a file of the environment that runs the service."""

    brokers: Annotated[
        str,
        typer.Option(envvar="SLACKWATER_BROKERS", help="Kafka brokers, HOST:PORT[,...]."),
    ] = ""
    client: ClientOption = None
    namespace: NamespaceOption = NAMESPACE
    directory: Annotated[
        Path,
        typer.Option(envvar="SLACKWATER_DIRECTORY", help="Where the service keeps its files."),
    ] = DIRECTORY
    log_format: LogFormatOption = "text"
    config: Annotated[FileOption, typer.Option(hidden=True, exists=True, dir_okay=False)] = None
    supervised: Supervised = False

    def service(self, exposure: Exposure, **options: object) -> Service:
        """The configuration of the service. Errors: typer.BadParameter."""
        if self.config is not None:
            return configured(self.config)
        if not self.brokers:
            raise typer.BadParameter(
                "expected --brokers HOST:PORT[,...] or SLACKWATER_BROKERS, actual none"
            )
        service = Service(
            bootstrap=self.brokers,
            client=client_settings(self.client or []),
            namespace=self.namespace,
            directory=str(self.directory.absolute()),
            log_format=self.log_format,
            **options,  # type: ignore[arg-type]  # each command names fields of Service
        )
        try:
            _ = service.kafka
        except InvalidUsage as error:
            raise typer.BadParameter(str(error)) from error
        return exposure.applied(service)
