"""What specifications must have, in the calls before a stream and in Open."""

import pytest

from connectors.protocol import call_validation
from connectors.protocol.spec_builder import Bind, Collection, FieldSpec, materialization
from connectors.protocol.specs import bounds_of, check_materialization
from connectors.protocol.violations import Rule, Side, Violation
from schemas.flow_pb2 import MaterializationSpec
from schemas.materialize_pb2 import (
    ApplyRequest,
    Constraint,
    SpecResponse,
    ValidateRequest,
    ValidateResponse,
)
from tests.support.materialization_tasks import NAMES, task


def changed(change) -> MaterializationSpec:
    spec = task()
    change(spec)
    return spec


def rename(spec):
    spec.materialization = "no spaces"


def endpoint(spec):
    spec.endpoint_spec_json = "[]"


def no_endpoint(spec):
    spec.endpoint_spec_json = ""


def resource(spec):
    spec.bindings[1].resource_spec_json = "{"


def no_path(spec):
    del spec.bindings[0].resource_path[:]


def empty_path(spec):
    spec.bindings[0].resource_path.append("")


def same_path(spec):
    spec.bindings[2].resource_path[0] = "names"


def collection(spec):
    spec.bindings[0].collection.collection = "a b"


def schema(spec):
    spec.bindings[0].collection.schema_uri = ""


def no_key(spec):
    del spec.bindings[0].collection.key_ptrs[:]


def key_without_projection(spec):
    spec.bindings[0].collection.key_ptrs.append("/gone")


def key_that_is_none(spec):
    spec.bindings[0].collection.projections[0].is_primary_key = False


def twice(spec):
    spec.bindings[0].collection.projections[1].field = "id"


def unknown_field(spec):
    spec.bindings[0].field_selection.values.append("zzz")


def unsorted(spec):
    spec.bindings[0].field_selection.values.append("flow_document")
    spec.bindings[0].field_selection.document = ""
    spec.bindings[0].field_selection.values.reverse()
    spec.bindings[0].field_selection.values.sort(reverse=True)


def keys_in_another_order(spec):
    spec.bindings[1].field_selection.keys.reverse()


def document_elsewhere(spec):
    spec.bindings[0].field_selection.values.remove("name")
    spec.bindings[0].field_selection.document = "name"


def configured(spec):
    spec.bindings[0].field_selection.field_config_json["gone"] = "{}"


def group(spec):
    spec.bindings[0].shuffle.group_name = ""


def uuid(spec):
    spec.bindings[0].shuffle.source_uuid_ptr = ""


def no_shuffle_key(spec):
    del spec.bindings[0].shuffle.shuffle_key_ptr[:]


def two_shuffles(spec):
    spec.bindings[0].shuffle.shuffle_lambda.remote = "http://x"


WRONG = [
    rename, endpoint, no_endpoint, resource, no_path, empty_path, same_path, collection, schema,
    no_key, key_without_projection, key_that_is_none, twice, unknown_field, unsorted,
    keys_in_another_order, document_elsewhere, configured, group, uuid, no_shuffle_key,
    two_shuffles,
]  # fmt: skip


def test_our_own_specification_is_complete():
    check_materialization(task())
    names, pairs, log = bounds_of(task())
    assert (names.keys, names.values, names.delta) == (("id",), ("name",), False)
    assert (pairs.key_pointers, pairs.path) == (("/a", "/b"), ("pairs",))
    assert log.delta


@pytest.mark.parametrize("change", WRONG, ids=lambda change: change.__name__)
def test_an_incomplete_specification_is_the_drivers_fault(change):
    spec = changed(change)
    with pytest.raises(Violation) as caught:
        check_materialization(spec)
    assert (caught.value.side, caught.value.rule) == (Side.DRIVER, Rule.SPEC)
    with pytest.raises(Violation):
        call_validation.check_apply_request(ApplyRequest(materialization=spec, version="v1"))


def test_apply_has_a_version():
    """Seed, "Apply": the version of the materialization being applied."""
    call_validation.check_apply_request(ApplyRequest(materialization=task(), version="v1"))
    with pytest.raises(Violation, match="expected a version"):
        call_validation.check_apply_request(ApplyRequest(materialization=task()))


def test_values_can_be_selected_and_pointers_are_escaped():
    odd = Collection(
        name="c", keys=("a/b",), columns=(FieldSpec(name="a/b"), FieldSpec(name="c~d"))
    )
    bind = Bind(collection=odd, resource={}, path=("t",), fields=())
    spec = materialization("m", {"x": 1}, [bind])
    check_materialization(spec)
    assert spec.bindings[0].collection.key_ptrs == ["/a~1b"]
    assert list(spec.bindings[0].field_selection.values) == []


def test_spec_answers_with_two_schemas():
    """Seed, "Spec": endpoint specification schema, resource specification schema."""
    good = SpecResponse(endpoint_spec_schema_json="{}", resource_spec_schema_json="{}")
    call_validation.check_spec_response(good)
    for bad in ("", "{", "[]"):
        response = SpecResponse(endpoint_spec_schema_json="{}", resource_spec_schema_json=bad)
        with pytest.raises(Violation, match="resource schema") as caught:
            call_validation.check_spec_response(response)
        assert caught.value.side is Side.CONNECTOR


def request() -> ValidateRequest:
    binding = ValidateRequest.Binding(resource_spec_json="{}", collection=NAMES.spec())
    return ValidateRequest(
        materialization="m", endpoint_spec_json="{}", bindings=[binding, binding]
    )


def response() -> ValidateResponse:
    fields = {"id": Constraint(type=Constraint.FIELD_REQUIRED, reason="r")}
    return ValidateResponse(
        bindings=[
            ValidateResponse.Binding(constraints=fields, resource_path=[path]) for path in "ab"
        ]
    )


def test_validate_answers_each_binding_in_order():
    """Seed, "Validate": data bindings with constraints, resource path, delta updates."""
    call_validation.check_validate_request(request())
    call_validation.check_validate_response(request(), response())
    short = response()
    del short.bindings[1]
    with pytest.raises(Violation, match="expected 2 bindings, actual 1") as caught:
        call_validation.check_validate_response(request(), short)
    assert (caught.value.side, caught.value.rule) == (Side.CONNECTOR, Rule.BINDING)


@pytest.mark.parametrize("path", [[], [""], ["a"]])
def test_a_resource_path_is_there_and_its_own(path):
    wrong = response()
    wrong.bindings[1].resource_path[:] = path
    with pytest.raises(Violation, match="binding 1: expected a resource path of its own"):
        call_validation.check_validate_response(request(), wrong)


@pytest.mark.parametrize(
    ("field", "constraint"),
    [
        ("gone", Constraint(reason="r")),
        ("id", Constraint()),
        ("id", Constraint.FromString(b"\x10\x09\x1a\x01r")),
    ],
    ids=["unknown", "no reason", "no type"],
)
def test_a_constraint_is_of_a_projection_of_a_known_type_and_says_why(field, constraint):
    wrong = response()
    wrong.bindings[0].constraints[field].CopyFrom(constraint)
    with pytest.raises(Violation) as caught:
        call_validation.check_validate_response(request(), wrong)
    assert caught.value.side is Side.CONNECTOR


def test_a_request_to_validate_is_complete():
    wrong = request()
    wrong.bindings[0].field_config_json["gone"] = "{}"
    with pytest.raises(Violation, match="'gone'"):
        call_validation.check_validate_request(wrong)
