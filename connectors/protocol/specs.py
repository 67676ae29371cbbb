"""Validates the specifications of a task, and extracts what a session needs from them."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from connectors.protocol.violations import Rule, driver_holds
from schemas.flow_pb2 import CollectionSpec, FieldSelection, MaterializationSpec, Shuffle

NAME = re.compile(r"[\w+/.-]{1,512}")
"""Letters, digits and - _ + / . alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingProperties:
    """The properties of a binding against which its messages are checked."""

    path: tuple[str, ...]
    keys: tuple[str, ...]
    """Fields, in the order of the collection's key."""
    key_pointers: tuple[str, ...]
    """JSON pointers."""
    number_keys: frozenset[str]
    """Those of numbers."""
    values: tuple[str, ...]
    delta: bool


def bounds_of(spec: MaterializationSpec) -> tuple[BindingProperties, ...]:
    """The bindings of a task."""
    return tuple(
        BindingProperties(
            path=tuple(binding.resource_path),
            keys=tuple(binding.field_selection.keys),
            key_pointers=tuple(binding.collection.key_ptrs),
            number_keys=number_keys(binding.collection),
            values=tuple(binding.field_selection.values),
            delta=binding.delta_updates,
        )
        for binding in spec.bindings
    )


def number_keys(collection: CollectionSpec) -> frozenset[str]:
    """The pointers of the key that are of numbers alone."""
    return frozenset(
        projection.ptr
        for projection in collection.projections
        if projection.is_primary_key and {*projection.inference.types} - {"null"} == {"number"}
    )


def must(holds: object, detail: str) -> None:
    """Errors: Violation of the rule `spec` by the driver."""
    driver_holds(Rule.SPEC, holds, detail)


def check_materialization(spec: MaterializationSpec) -> None:
    """Errors: Violation of the rule `spec`, which names the binding and the field."""
    check_name("materialization", spec.materialization)
    check_json("endpoint configuration", spec.endpoint_spec_json)
    check_unique("resource path", [tuple(binding.resource_path) for binding in spec.bindings])
    for index, binding in enumerate(spec.bindings):
        where = f"binding {index}"
        check_json(f"{where}: resource configuration", binding.resource_spec_json)
        path = list(binding.resource_path)
        must(path and all(path), f"{where}: expected a resource path, actual {path}")
        check_collection(where, binding.collection)
        check_selection(where, binding.collection, binding.field_selection)
        check_shuffle(where, binding.shuffle)


def check_name(what: str, name: str) -> None:
    """Errors: Violation of the rule `spec`."""
    must(
        NAME.fullmatch(name),
        f"{what}: expected a name of 1 to 512 letters, digits and - _ + / ., actual {name!r}",
    )


def check_json(what: str, text: str) -> None:
    """A configuration is the text of a JSON object."""
    must(text, f"{what}: expected JSON, actual nothing")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        must(holds=False, detail=f"{what}: expected JSON: {error}")
        return
    must(isinstance(value, dict), f"{what}: expected an object, actual {type(value).__name__}")


def check_collection(where: str, spec: CollectionSpec) -> None:
    """Errors: Violation unless it is named and has a key, each part of it a projection."""
    check_name(f"{where}: collection", spec.collection)
    must(spec.schema_uri, f"{where}: expected a schema URI, actual none")
    must(spec.key_ptrs, f"{where}: expected a key, actual none")
    check_unique(f"{where}: projection", [projection.field for projection in spec.projections])
    keys = {projection.ptr for projection in spec.projections if projection.is_primary_key}
    for pointer in spec.key_ptrs:
        must(
            pointer.startswith("/") and pointer in keys,
            f"{where}: expected a projection that is a key at {pointer!r}, actual none",
        )


def check_selection(where: str, collection: CollectionSpec, spec: FieldSelection) -> None:
    """Errors: Violation unless the fields are projections: the key, values, the document."""
    pointers = {projection.field: projection.ptr for projection in collection.projections}
    selected = [*spec.keys, *spec.values, *filter(None, [spec.document])]
    check_unique(f"{where}: selected field", selected)
    for name in selected:
        must(name in pointers, f"{where}: expected a projection of {name!r}, actual none")
    for name in spec.field_config_json:
        must(name in selected, f"{where}: expected {name!r} to be selected, as configured")
    must(
        [pointers[name] for name in spec.keys] == list(collection.key_ptrs),
        f"{where}: expected key fields at {list(collection.key_ptrs)},"
        f" actual {[pointers[name] for name in spec.keys]}",
    )
    values = list(spec.values)
    must(values == sorted(values), f"{where}: expected values in order, actual {values}")
    must(
        not spec.document or pointers[spec.document] == "",
        f"{where}: expected the document's field at the root, actual {spec.document!r}",
    )


def check_shuffle(where: str, spec: Shuffle) -> None:
    """Errors: Violation of the rule `spec`."""
    must(spec.group_name, f"{where}: shuffle: expected a group name, actual none")
    must(spec.source_uuid_ptr, f"{where}: shuffle: expected a UUID pointer, actual none")
    must(
        bool(spec.shuffle_key_ptr) != spec.HasField("shuffle_lambda"),
        f"{where}: shuffle: expected key pointers or a lambda, not both",
    )


def check_unique(what: str, values: Iterable[str | tuple[str, ...]]) -> None:
    """Errors: Violation of the rule `spec`."""
    twice = [value for value, count in Counter(values).items() if count > 1]
    must(not twice, f"{what}: expected each once, actual twice: {twice}")
