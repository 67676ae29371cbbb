"""Validates the messages of the calls before a stream: Spec, Validate, Apply."""

import json

from connectors.protocol.message_validation import check_version
from connectors.protocol.specs import (
    check_collection,
    check_json,
    check_materialization,
    check_name,
    must,
)
from connectors.protocol.violations import Rule, Side, broken, connector_holds
from schemas.materialize_pb2 import (
    ApplyRequest,
    Constraint,
    SpecResponse,
    ValidateRequest,
    ValidateResponse,
)


def check_spec_response(response: SpecResponse) -> None:
    """Both schemas are JSON Schemas of objects. Errors: Violation by the connector."""
    schemas = {
        "endpoint": response.endpoint_spec_schema_json,
        "resource": response.resource_spec_schema_json,
    }
    for name, text in schemas.items():
        try:
            schema = json.loads(text)
        except (ValueError, RecursionError) as error:
            detail = f"Spec: {name} schema: expected a JSON Schema: {error}"
            broken(Side.CONNECTOR, Rule.SPEC, detail)
        connector_holds(
            Rule.SPEC,
            isinstance(schema, dict),
            f"Spec: {name} schema: expected an object, actual {type(schema).__name__}",
        )


def check_validate_request(request: ValidateRequest) -> None:
    """Errors: Violation by the driver."""
    check_name("materialization", request.materialization)
    check_json("endpoint configuration", request.endpoint_spec_json)
    for index, binding in enumerate(request.bindings):
        where = f"binding {index}"
        check_json(f"{where}: resource configuration", binding.resource_spec_json)
        check_collection(where, binding.collection)
        fields = {projection.field for projection in binding.collection.projections}
        for name in binding.field_config_json:
            must(name in fields, f"{where}: expected a projection of {name!r}, actual none")


def check_validate_response(request: ValidateRequest, response: ValidateResponse) -> None:
    """Each binding is answered, in order. Errors: Violation by the connector."""
    requested, answered = len(request.bindings), len(response.bindings)
    connector_holds(
        Rule.BINDING,
        requested == answered,
        f"Validate: expected {requested} bindings, actual {answered}",
    )
    paths = [tuple(binding.resource_path) for binding in response.bindings]
    for index, path in enumerate(paths):
        connector_holds(
            Rule.SPEC,
            path and all(path) and path not in paths[:index],
            f"Validate: binding {index}: expected a resource path of its own, actual {path}",
        )
    for index, binding in enumerate(response.bindings):
        fields = {
            projection.field for projection in request.bindings[index].collection.projections
        }
        for name, constraint in binding.constraints.items():
            check_constraint(f"Validate: binding {index}: {name!r}", constraint)
            connector_holds(
                Rule.SPEC,
                name in fields,
                f"Validate: binding {index}: there is no projection {name!r}",
            )


def check_constraint(where: str, constraint: Constraint) -> None:
    """A constraint is of a known type and says why. Errors: Violation by the connector."""
    is_known = constraint.type in Constraint.Type.values()
    connector_holds(Rule.SPEC, is_known, f"{where}: there is no constraint {constraint.type}")
    connector_holds(Rule.SPEC, constraint.reason, f"{where}: expected a reason, actual none")


def check_apply_request(request: ApplyRequest) -> None:
    """Errors: Violation by the driver."""
    check_materialization(request.materialization)
    check_version("Apply", request.version)
