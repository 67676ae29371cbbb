"""The four calls of a connector of a SQL database."""

import base64
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from pydantic import BaseModel, Field, model_validator

from connectors.config import STRICT, form, parsed, schema_text
from connectors.protocol.messages import Extensions, Open
from connectors.sql.columns import shape_of
from connectors.sql.constraints import RAISE, constraints, malformed
from connectors.sql.ddl import CHECKPOINTS, META, TASKS, changes, create_meta, recreate
from connectors.sql.dialect import Database, Dialect, Existing, Name
from connectors.sql.statements import OF_SESSION, Table
from connectors.sql.transactor import SqlTransactor, spec_text, tasks
from schemas.flow_pb2 import MaterializationSpec
from schemas.materialize_pb2 import (
    ApplyRequest,
    ApplyResponse,
    Constraint,
    SpecRequest,
    SpecResponse,
    ValidateRequest,
    ValidateResponse,
)
from streams.errors import InvalidUsage

IMPOSSIBLE = {Constraint.UNSATISFIABLE, Constraint.FIELD_FORBIDDEN}


class Resource(BaseModel):  # type: ignore[explicit-any] # JSON is recursive
    """Resource configuration: the table of a binding."""

    model_config = STRICT | {"title": "Table"}

    table: str = Field(
        title="Table",
        description="The table that holds the collection.",
        min_length=1,
        json_schema_extra=form(0, mark="x-collection-name"),
    )
    delta_updates: bool = Field(
        default=False,
        title="Delta updates",
        description="Whether every change is a row of its own, and the table has no key.",
        json_schema_extra=form(1, mark="x-delta-updates"),
    )
    soft_delete: bool = Field(
        default=False,
        title="Soft delete",
        description="Whether deleted rows stay, with true in their column _deleted.",
        json_schema_extra=form(2),
    )
    adopt: bool = Field(
        default=False,
        title="Adopt",
        description="Whether a table may be used that no task has made.",
        json_schema_extra=form(3),
    )
    backfill: int = Field(
        default=0,
        title="Backfill",
        description="Raise it to have the table recreated, and all of it written again.",
        ge=0,
        json_schema_extra=form(4),
    )

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if self.delta_updates and self.soft_delete:
            raise ValueError("delta updates delete no rows: leave out soft_delete")
        return self

    @property
    def name(self) -> Name:
        """The table."""
        return (self.table,)


OFFERED = Extensions(delete=True, subranges=True)
"""A commit of a database is final, so there is nothing to acknowledge."""

Config = TypeVar("Config", bound=BaseModel)
Kept = TypeVar("Kept", bound=Resource)


def _as_it_is(config: Config) -> Config:
    return config


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlConnector(Generic[Config, Kept]):
    """A connector, of a dialect and of how a database is connected to."""

    dialect: Dialect
    config: type[Config]
    resource: type[Kept]
    connect: Callable[[Config], AbstractContextManager[Database]]
    documentation: str
    extensions: Extensions = OFFERED
    for_inspection: Callable[[Config], Config] = _as_it_is
    """The configuration for Validate and dry runs, which must not create a database."""

    def spec(self, request: SpecRequest) -> SpecResponse:
        """The schemas; a partial configuration changes nothing."""
        del request
        return SpecResponse(
            endpoint_spec_schema_json=schema_text(self.config),
            resource_spec_schema_json=schema_text(self.resource),
            documentation_url=self.documentation,
        )

    def validate(self, request: ValidateRequest) -> ValidateResponse:
        """Errors: InvalidUsage; Determinate if the database cannot be reached."""
        response = ValidateResponse()
        resources = [
            self._resource(index, binding.resource_spec_json)
            for index, binding in enumerate(request.bindings)
        ]
        check_tables(self.dialect, [resource.name for resource in resources])
        with self._connect(request.endpoint_spec_json, inspects=True) as database:
            applied = bindings_of(tasks(self.dialect, database))
            for resource, binding in zip(resources, request.bindings, strict=True):
                existing = database.columns_of(resource.name)
                if check_owner(request.materialization, resource, existing, applied):
                    existing = {}
                fields = constraints(
                    self.dialect, binding.collection, existing, delta=resource.delta_updates
                )
                response.bindings.add(
                    constraints=fields,
                    resource_path=resource.name,
                    delta_updates=resource.delta_updates,
                )
        return response

    def apply(self, request: ApplyRequest) -> ApplyResponse:
        """The statements, executed unless it is a dry run. Errors: as `validate`."""
        spec = request.materialization
        endpoint, inspects = spec.endpoint_spec_json, request.dry_run
        with self._connect(endpoint, inspects=inspects) as database, database.transaction():
            statements = list(self._statements(spec, database))
            recorded = tasks(self.dialect, database)
            row = (request.version, spec_text(spec))
            record = recorded.get(spec.materialization) != row
            if not request.dry_run:
                for statement in statements:
                    database.execute(statement)
                if record:
                    self._record(database, spec.materialization, row)
        lines = [f"{statement};" for statement in statements]
        if record:
            lines.append(f"-- record task {spec.materialization}, version {request.version}")
        return ApplyResponse(action_description="\n".join(lines))

    @contextmanager
    def open(self, message: Open) -> Iterator[SqlTransactor]:
        """Errors: Violation by the driver, DividedRange, InvalidUsage, Determinate."""
        spec = message.materialization
        with self._connect(spec.endpoint_spec_json) as database:
            yield SqlTransactor(self.dialect, database, self._tables(spec), message)

    def _connect(
        self, text: str, *, inspects: bool = False
    ) -> AbstractContextManager[Database]:
        config = parsed(self.config, "endpoint configuration", text)
        return self.connect(self.for_inspection(config) if inspects else config)

    def _resource(self, index: int, text: str) -> Kept:
        return parsed(self.resource, f"binding {index}: resource configuration", text)

    def _tables(self, spec: MaterializationSpec) -> list[Table]:
        task = spec.materialization
        tables = [
            self._table(task, index, binding) for index, binding in enumerate(spec.bindings)
        ]
        check_tables(self.dialect, [table.name for table in tables])
        return tables

    def _table(self, task: str, index: int, binding: MaterializationSpec.Binding) -> Table:
        resource = self._resource(index, binding.resource_spec_json)
        if (
            resource.name != tuple(binding.resource_path)
            or resource.delta_updates != binding.delta_updates
        ):
            raise InvalidUsage(
                f"binding {index}: resource path or delta updates are not those of its"
                " configuration; validate it again"
            )
        return Table(
            dialect=self.dialect,
            index=index,
            name=resource.name,
            shape=shape_of(binding.collection, binding.field_selection),
            delta=resource.delta_updates,
            soft=resource.soft_delete,
            adopted=resource.adopt,
            comment=f"collection {binding.collection.collection}, kept by task {task}",
        )

    def _statements(self, spec: MaterializationSpec, database: Database) -> Iterator[str]:
        if not database.columns_of(TASKS):
            yield from create_meta(self.dialect)
        applied = bindings_of(tasks(self.dialect, database))
        for table, binding in zip(self._tables(spec), spec.bindings, strict=True):
            resource = self._resource(table.index, binding.resource_spec_json)
            existing = database.columns_of(table.name)
            if check_owner(spec.materialization, resource, existing, applied):
                yield from recreate(table, spec.materialization, existing)
                existing = {}
            self._check_selected(table, binding, existing)
            yield from changes(table, existing, written(table.name, applied))

    def _check_selected(
        self,
        table: Table,
        binding: MaterializationSpec.Binding,
        existing: Mapping[str, Existing],
    ) -> None:
        fields = constraints(self.dialect, binding.collection, existing, delta=table.delta)
        for column in table.shape.columns:
            if fields[column.name].type in IMPOSSIBLE:
                reason = fields[column.name].reason
                raise InvalidUsage(f"table {'.'.join(table.name)}: {column.name}: {reason}")
        if table.shape.document is None and not table.delta:
            raise InvalidUsage(
                f"table {'.'.join(table.name)}: the field of the whole document is not"
                " selected: a table without delta updates needs it"
            )

    def _record(self, database: Database, task: str, row: tuple[str, str]) -> None:
        table, mark = self.dialect.table(TASKS), self.dialect.mark
        database.execute(f"DELETE FROM {table} WHERE task = {mark}", [task])
        values = ", ".join([mark] * len(META[TASKS]))
        database.execute(
            f"INSERT INTO {table} (task, version, spec) VALUES ({values})", [task, *row]
        )


def check_tables(dialect: Dialect, names: Sequence[Name]) -> None:
    """Each table can have its name, and is not another one. Errors: InvalidUsage."""
    taken: dict[Name, str] = dict.fromkeys([CHECKPOINTS, TASKS], "a table of ours")
    for name in names:
        text = ".".join(name)
        for part in name:
            if problem := malformed(dialect, part):
                raise InvalidUsage(f"table {text}: {problem}; give it another name")
        same = tuple(map(dialect.same_name, name))
        if len(same) == 1 and OF_SESSION.fullmatch(same[0]):
            raise InvalidUsage(f"table {text}: the name is reserved for sessions: name another")
        if same in taken:
            raise InvalidUsage(f"table {text}: it is {taken[same]}; give it another name")
        taken[same] = "that of another binding"


Applied = Sequence[tuple[str, MaterializationSpec.Binding]]


def bindings_of(applied: Mapping[str, tuple[str, str]]) -> Applied:
    """All bindings of all tasks in the database, each with the name of its task."""
    return [
        (task, binding)
        for task, (_, spec) in applied.items()
        for binding in MaterializationSpec.FromString(base64.b64decode(spec)).bindings
    ]


def written(table: Name, applied: Applied) -> Collection[str] | None:
    """The columns that the table's task has written last; None if no task has a binding."""
    for _, binding in applied:
        if tuple(binding.resource_path) == table:
            selection = binding.field_selection
            return {*selection.keys, *selection.values, selection.document}
    return None


def check_owner(
    task: str, resource: Resource, existing: Mapping[str, Existing], applied: Applied
) -> bool:
    """A table is kept by one task; return whether it is recreated. Errors: InvalidUsage."""
    table = ".".join(resource.name)
    owners = [
        (owner, binding)
        for owner, binding in applied
        if tuple(binding.resource_path) == resource.name
    ]
    if not owners and existing and not resource.adopt:
        raise InvalidUsage(
            f"table {table} exists, and no task created it: drop it, name another table,"
            " or configure adopt"
        )
    for owner, binding in owners:
        if owner != task:
            raise InvalidUsage(f"table {table} is kept by task {owner}: name another table")
        before = json.loads(binding.resource_spec_json)
        last = int(before.get("backfill", 0))
        if resource.backfill > last:
            return True
        if resource.backfill < last:
            raise InvalidUsage(
                f"table {table}: backfill was {last} and cannot be lower, actual"
                f" {resource.backfill}"
            )
        if existing and before.get("soft_delete") and not resource.soft_delete:
            raise InvalidUsage(
                f"table {table}: soft_delete cannot be turned off, since rows that are marked"
                f" as deleted would appear again: {RAISE}"
            )
        if existing and binding.delta_updates != resource.delta_updates:
            raise InvalidUsage(
                f"table {table}: delta updates cannot be turned on or off: name another table,"
                f" or {RAISE}"
            )
    return False
