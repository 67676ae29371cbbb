"""A connector of files: Parquet in directories, on any file system that Arrow reaches.

Every change is a row, so bindings are of delta updates. There is no fence that a file system
would enforce: see `connectors/docs/FILES.md`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import permutations
from typing import Literal

import pyarrow as pa
from pyarrow import fs
from pydantic import BaseModel, Field

from connectors.config import STRICT, form, parsed, schema_text
from connectors.files.store import ROOT, TaskStore
from connectors.files.transactor import Directory, FilesTransactor
from connectors.protocol.messages import Extensions, Open
from connectors.sql.columns import kind_of, shape_of
from connectors.sql.transactor import check_version, spec_text
from schemas.flow_pb2 import CollectionSpec, MaterializationSpec
from schemas.materialize_pb2 import (
    ApplyRequest,
    ApplyResponse,
    Constraint,
    SpecRequest,
    SpecResponse,
    ValidateRequest,
    ValidateResponse,
)
from streams.errors import Determinate, InvalidUsage

URL = (
    r"^([A-Za-z][A-Za-z0-9+.-]*:)?"  # scheme
    r"(//([^/@:?]*@)?[^/@?]*)?"  # user without a password, host
    r"(/([^/].*)?)?(\?.*)?$"  # path, query
)


class Config(BaseModel):  # type: ignore[explicit-any] # JSON is recursive
    """Endpoint configuration: the location of the files."""

    model_config = STRICT | {"title": "Files"}

    url: str = Field(
        title="URL",
        description="A whole path, or file:, s3:, gs:, abfs:, hdfs:; no password is in it.",
        pattern=URL,
        min_length=1,
        json_schema_extra=form(0),
    )


class Resource(BaseModel):  # type: ignore[explicit-any] # JSON is recursive
    """Resource configuration: the location of a binding's files."""

    model_config = STRICT | {"title": "Directory"}

    path: str = Field(
        title="Path",
        description="The directory of the collection, below that of all tables.",
        pattern=r"^[^/._][^/]*(/[^/._][^/]*)*$",
        json_schema_extra=form(0, mark="x-collection-name"),
    )
    partition_by: list[str] = Field(
        default=[],
        title="Partition by",
        description="Fields by whose values files are divided into directories, as name=value.",
        json_schema_extra=form(1),
    )
    delta_updates: Literal[True] = Field(
        default=True,
        title="Delta updates",
        description="Every change is a row of its own.",
        json_schema_extra=form(2, mark="x-delta-updates"),
    )


class FilesConnector:
    """The four calls."""

    extensions = Extensions(subranges=True)

    def spec(self, request: SpecRequest) -> SpecResponse:
        """The schemas."""
        del request
        return SpecResponse(
            endpoint_spec_schema_json=schema_text(Config),
            resource_spec_schema_json=schema_text(Resource),
            documentation_url="connectors/docs/FILES.md",
        )

    def validate(self, request: ValidateRequest) -> ValidateResponse:
        """Errors: InvalidUsage; Determinate if the file system cannot be reached."""
        reached(request.endpoint_spec_json)
        response = ValidateResponse()
        resources = [
            resource_of(index, binding.resource_spec_json)
            for index, binding in enumerate(request.bindings)
        ]
        check_apart([resource.path for resource in resources])
        for resource, binding in zip(resources, request.bindings, strict=True):
            response.bindings.add(
                constraints=constraints(resource, binding.collection),
                resource_path=resource.path.split("/"),
                delta_updates=True,
            )
        return response

    def apply(self, request: ApplyRequest) -> ApplyResponse:
        """Record the task; directories come with their first files. Errors: InvalidUsage."""
        spec = request.materialization
        store = store_of(spec)
        directories(spec)
        row = (request.version, spec_text(spec))
        if store.applied() == row:
            return ApplyResponse()
        if not request.dry_run:
            store.record(*row)
        said = f"record task {spec.materialization}, version {request.version}"
        return ApplyResponse(action_description=said)

    @contextmanager
    def open(self, message: Open) -> Iterator[FilesTransactor]:
        """Errors: Violation by the driver, DividedRange, InvalidUsage, Determinate."""
        store = store_of(message.materialization)
        check_version(store.applied(), message)
        yield FilesTransactor(store, directories(message.materialization), message)


def reached(text: str) -> tuple[fs.FileSystem, str]:
    """The file system of a configuration, and the directory.

    Errors: InvalidUsage; Determinate if one on a network cannot be reached.
    """
    config = parsed(Config, "endpoint configuration", text)
    try:
        filesystem, root = fs.FileSystem.from_uri(config.url)
    except OSError as error:
        raise Determinate(f"url: {error}") from error
    except pa.ArrowException as error:
        raise InvalidUsage(f"url: {error}") from error
    return filesystem, root.rstrip("/")


def store_of(spec: MaterializationSpec) -> TaskStore:
    """The stored record of a task."""
    return TaskStore(*reached(spec.endpoint_spec_json), spec.materialization)


def resource_of(index: int, text: str) -> Resource:
    """Errors: InvalidUsage."""
    return parsed(Resource, f"binding {index}: resource configuration", text)


def directories(spec: MaterializationSpec) -> list[Directory]:
    """The directories of a task. Errors: InvalidUsage for a partition by a missing column."""
    planned: list[Directory] = []
    for index, binding in enumerate(spec.bindings):
        resource = resource_of(index, binding.resource_spec_json)
        shape = shape_of(binding.collection, binding.field_selection)
        missing = set(resource.partition_by) - {column.name for column in shape.columns}
        if missing:
            raise InvalidUsage(f"binding {index}: partition_by: no selected field {missing}")
        planned.append(
            Directory(path=resource.path, shape=shape, partition_by=resource.partition_by)
        )
    check_apart([directory.path for directory in planned])
    return planned


def check_apart(paths: Sequence[str]) -> None:
    """No directory is in another one, whose readers would take its files for their own.

    Errors: InvalidUsage.
    """
    for outer, inner in permutations(paths, 2):
        if f"{inner}/".startswith(f"{outer}/"):
            raise InvalidUsage(
                f"path {inner}: it is in {outer}, which another binding is kept in: give it"
                " another path"
            )


def constraints(resource: Resource, spec: CollectionSpec) -> Mapping[str, Constraint]:
    """A constraint for every projection."""
    by_field: dict[str, Constraint] = {}
    for projection in spec.projections:
        if projection.ptr in spec.key_ptrs or projection.field in resource.partition_by:
            kind, reason = Constraint.LOCATION_REQUIRED, "it is part of the key or of the path"
        elif kind_of(projection) is None:
            kind, reason = Constraint.FIELD_FORBIDDEN, "it is always null"
        else:
            kind, reason = Constraint.LOCATION_RECOMMENDED, "it has a column of its own"
        by_field[projection.field] = Constraint(type=kind, reason=reason)
    return by_field


CONNECTOR = FilesConnector()


def connector(_: Mapping[str, str]) -> FilesConnector:
    """The connector; no environment variable matters to it."""
    return CONNECTOR


__all__ = ["CONNECTOR", "ROOT", "Config", "FilesConnector", "Resource", "connector"]
