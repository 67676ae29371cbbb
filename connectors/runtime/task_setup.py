"""Sets a task up: Validate and Apply, field selection, and the bound collections."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from connectors.driver import Driver
from connectors.protocol import arena_codec, spec_builder
from connectors.protocol.messages import Extensions
from connectors.protocol.violations import Rule, connector_holds
from connectors.runtime.fields import DIFF, META, TIME, collection_of, with_changes
from connectors.runtime.task import BindingConfig, Materialization
from connectors.runtime.transactions import BoundCollection
from schemas.flow_pb2 import FLOW_SINK, MaterializationSpec
from schemas.materialize_pb2 import (
    ApplyRequest,
    Constraint,
    SpecRequest,
    ValidateRequest,
    ValidateResponse,
)
from streams.errors import InvalidUsage
from streams.ids import CollectionId
from streams.storage.description import Description

Descriptions = Mapping[CollectionId, Description]
FORBIDDEN = {None, Constraint.FIELD_FORBIDDEN}
"""A field without a constraint is forbidden."""
REQUIRED = {Constraint.FIELD_REQUIRED, Constraint.LOCATION_REQUIRED}


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedTask:
    """A task that was applied."""

    spec: MaterializationSpec
    version: str
    bounds: tuple[BoundCollection, ...]
    collections: tuple[CollectionId, ...]
    """For each binding."""
    places: tuple[str, ...]
    """For each binding, the name in checkpoints."""
    extensions: Extensions
    applied: str
    """The actions that Apply took."""

    @property
    def names(self) -> Sequence[tuple[CollectionId, str]]:
        """For each binding, its collection and its place."""
        return list(zip(self.collections, self.places, strict=True))


def prepare(driver: Driver, task: Materialization, descriptions: Descriptions) -> AppliedTask:
    """Validate a task and apply it.

    Errors: InvalidUsage if a binding has no key, or the connector refuses a field; Violation,
    ConnectorFailed.
    """
    extensions = arena_codec.extensions(driver.spec(SpecRequest()).extensions)
    answers = validated(driver, task, descriptions)
    binds = [
        bind(binding, described(binding, descriptions), answer)
        for binding, answer in zip(task.bindings, answers, strict=True)
    ]
    spec = spec_builder.materialization(task.task, task.config, binds)
    text = spec.SerializeToString(deterministic=True)
    version = hashlib.sha256(text).hexdigest()[:12]
    applied = driver.apply(ApplyRequest(materialization=spec, version=version))
    bounds = [
        BoundCollection(
            name=".".join(bind.path),
            description=described(binding, descriptions),
            keys=tuple(bind.collection.keys),
            delta=bind.delta,
        )
        for binding, bind in zip(task.bindings, binds, strict=True)
    ]
    return AppliedTask(
        spec=spec,
        version=version,
        bounds=tuple(bounds),
        collections=tuple(CollectionId(binding.collection) for binding in task.bindings),
        places=tuple(
            place_of(bound.name, binding)
            for bound, binding in zip(bounds, task.bindings, strict=True)
        ),
        extensions=extensions,
        applied=applied.action_description,
    )


def place_of(name: str, binding: BindingConfig) -> str:
    """A place with a raised backfill has another name, so old checkpoints do not match it."""
    backfill = binding.resource.get("backfill", 0)
    return f"{name}#{backfill}" if backfill else name


def described(binding: BindingConfig, descriptions: Descriptions) -> Description:
    """The description of a binding's collection."""
    return descriptions[CollectionId(binding.collection)]


def validated(
    driver: Driver, task: Materialization, descriptions: Descriptions
) -> Sequence[ValidateResponse.Binding]:
    """The connector's answers. Which bindings take delta updates, it says itself."""
    deltas = [is_delta(binding, described(binding, descriptions)) for binding in task.bindings]
    answers = driver.validate(request(task, descriptions, deltas)).bindings
    for binding, answer in zip(task.bindings, answers, strict=True):
        if not answer.delta_updates and not keys_of(binding, described(binding, descriptions)):
            raise InvalidUsage(
                f"collection {binding.collection} has no key: declare the columns that identify"
                " a row, as `key: [id]`, or take delta updates"
            )
    said = [answer.delta_updates for answer in answers]
    if said != deltas:
        answers = driver.validate(request(task, descriptions, said)).bindings
        again = [answer.delta_updates for answer in answers]
        detail = f"Validate: expected delta updates of each binding as before, {said}"
        connector_holds(Rule.SPEC, again == said, f"{detail}, actual {again}")
    return answers


def is_delta(binding: BindingConfig, description: Description) -> bool:
    """The connector's expected answer."""
    return bool(binding.resource.get("delta_updates")) or not keys_of(binding, description)


def keys_of(binding: BindingConfig, description: Description) -> tuple[str, ...]:
    """The key that was declared, or the collection's. Errors: InvalidUsage."""
    keys = description.keys if binding.key is None else tuple(binding.key)
    names = description.names
    wrong = [name for name in (*keys, *(binding.select or ())) if name not in names]
    if wrong:
        raise InvalidUsage(
            f"collection {binding.collection}: expected columns among {', '.join(names)},"
            f" actual {', '.join(wrong)}"
        )
    return keys


def collection(
    binding: BindingConfig, description: Description, *, delta: bool, document: bool = True
) -> spec_builder.Collection:
    """The collection of a binding, as the protocol describes it."""
    keys = keys_of(binding, description)
    taken = {META, spec_builder.DOCUMENT, *((TIME, DIFF) if delta else ())}
    for name in description.names:
        if name in taken:
            raise InvalidUsage(
                f"collection {binding.collection}: a column named {name} is reserved by"
                " the protocol: rename it"
            )
    shown = with_changes(description) if delta else description
    return collection_of(
        binding.collection, shown, keys or (TIME,), document=document, is_keyed=not delta
    )


def request(
    task: Materialization, descriptions: Descriptions, deltas: Sequence[bool]
) -> ValidateRequest:
    """The Validate request."""
    bindings = [
        ValidateRequest.Binding(
            resource_spec_json=json.dumps(binding.resource),
            collection=collection(
                binding, described(binding, descriptions), delta=delta
            ).spec(),
        )
        for binding, delta in zip(task.bindings, deltas, strict=True)
    ]
    return ValidateRequest(
        materialization=task.task,
        endpoint_type=FLOW_SINK,
        endpoint_spec_json=json.dumps(task.config),
        bindings=bindings,
    )


def bind(
    binding: BindingConfig,
    description: Description,
    answer: ValidateResponse.Binding,
) -> spec_builder.Bind:
    """A binding as it is applied. Errors: InvalidUsage."""
    delta, constraints = answer.delta_updates, answer.constraints
    wanted = (
        constraints[spec_builder.DOCUMENT].type
        if spec_builder.DOCUMENT in constraints
        else None
    )
    has_document = wanted in REQUIRED or (not delta and wanted not in FORBIDDEN)
    bound = collection(binding, description, delta=delta, document=has_document)
    place = ".".join(answer.resource_path)
    if refused := list(refusals(binding, bound, answer)):
        raise InvalidUsage(f"{place}: {'; '.join(refused)}")
    chosen = selected(binding, bound, answer)
    if not has_document:
        check_kept(place, bound, chosen, binding, answer)
    return spec_builder.Bind(
        collection=bound,
        resource=binding.resource,
        path=list(answer.resource_path),
        delta=delta,
        fields=chosen,
    )


def check_kept(
    place: str,
    bound: spec_builder.Collection,
    chosen: Sequence[str],
    binding: BindingConfig,
    answer: ValidateResponse.Binding,
) -> None:
    """Refuse a binding without a document that would lose columns. Errors: InvalidUsage."""
    if binding.select is None:
        lost = [
            f"{column.name}: {answer.constraints[column.name].reason}"
            for column in bound.columns
            if column.name not in chosen
        ]
        if lost:
            raise InvalidUsage(f"{place}: {'; '.join(lost)}; or select the columns to keep")


def refusals(
    binding: BindingConfig,
    bound: spec_builder.Collection,
    answer: ValidateResponse.Binding,
) -> Iterator[str]:
    """The selected fields that the connector forbids, and required ones that are missing."""
    constraints = answer.constraints
    chosen = {*bound.keys, *selected(binding, bound, answer)}
    for name in sorted(chosen - constraints.keys()):
        yield f"{name}: the connector has no constraint for it, which forbids it"
    for name, constraint in sorted(constraints.items()):
        is_refused = name in chosen and constraint.type in FORBIDDEN
        if is_refused or constraint.type == Constraint.UNSATISFIABLE:
            yield f"{name}: {constraint.reason}"
        elif name not in {*chosen, spec_builder.DOCUMENT} and constraint.type in REQUIRED:
            yield f"{name}: it is to be selected too: {constraint.reason}"


def selected(
    binding: BindingConfig, bound: spec_builder.Collection, answer: ValidateResponse.Binding
) -> list[str]:
    """The fields to select: those of the binding and of delta updates, or all allowed ones."""
    chosen = binding.select
    if chosen is not None:
        return [
            *chosen,
            *(column.name for column in bound.columns[-2:] if answer.delta_updates),
        ]
    allowed = {
        name
        for name, constraint in answer.constraints.items()
        if constraint.type != Constraint.FIELD_FORBIDDEN
    }
    return [column.name for column in bound.columns if column.name in allowed]
