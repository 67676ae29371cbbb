"""Round-trip checks of values of every type of the protocol."""

import json

from connectors.protocol import messages
from connectors.protocol.messages import Tuples
from connectors.protocol.spec_builder import Collection, FieldSpec
from schemas.flow_pb2 import MaterializationSpec
from schemas.flow_tuple import element

NULL = "null"
EVERYTHING = Collection(
    name="testing/types",
    keys=("id",),
    columns=(
        FieldSpec(name="id", types=("integer",)),
        FieldSpec(name="any", types=("string", "integer", "object", NULL), required=False),
        FieldSpec(name="base64", types=("string", NULL), base64=True, required=False),
        FieldSpec(name="boolean", types=("boolean", NULL), required=False),
        FieldSpec(name="date", types=("string", NULL), format="date", required=False),
        FieldSpec(name="duration", types=("string", NULL), format="duration", required=False),
        FieldSpec(name="integer", types=("integer", NULL), required=False),
        FieldSpec(name="list", types=("array", NULL), required=False),
        FieldSpec(name="moment", types=("string", NULL), format="date-time", required=False),
        FieldSpec(name="number", types=("number", NULL), required=False),
        FieldSpec(name="numeric", types=("string", NULL), format="number", required=False),
        FieldSpec(name="object", types=("object", NULL), required=False),
        FieldSpec(name="text", types=("string", NULL), required=False),
        FieldSpec(name="time", types=("string", NULL), format="time", required=False),
        FieldSpec(name="uuid", types=("string", NULL), format="uuid", required=False),
    ),
)
Value = dict[str, object]
VALUES: dict[str, tuple[object, ...]] = {
    "any": ("text", 7, {"a": 1}),
    "base64": ("", "AP8="),
    "boolean": (True, False),
    "date": ("2026-11-23", "0001-01-01"),
    "duration": ("P1Y2M3DT4H5M6S", "PT0S"),
    "integer": (0, 2**63 - 1, -(2**63), 2**53 + 1),
    "list": ([], [1, None, "x", [True]]),
    "moment": ("2026-11-23T10:20:30Z", "1970-01-01T00:00:00.123456Z"),
    "number": (0.5, -1e300, 5e-324),
    "numeric": ("123456789012345678901234567890.5", "-0.01"),
    "object": ({}, {"nested": {"list": [1.5, "\u00e4"]}, "quote'\"": None}),
    "text": ("", 'it\'s "quoted"', "line\nline\ttab\\", "\u00e4\u4e2d\U0001f600", " x "),
    "time": ("10:20:30Z", "23:59:59.999999Z"),
    "uuid": ("123e4567-e89b-12d3-a456-426614174000",),
}


def documents() -> list[Value]:
    """One bare document, then one for each value."""
    bare: Value = {"id": 0, **dict.fromkeys(VALUES)}
    variants = [bare]
    for name, values in VALUES.items():
        variants += [
            bare | {"id": len(variants) + place, name: v} for place, v in enumerate(values)
        ]
    return variants


def store_of(task: MaterializationSpec, documents: list[Value]) -> messages.Store:
    """The selected fields of documents that are not there yet."""
    (binding,) = task.bindings
    chosen = binding.field_selection
    keys, values = (
        Tuples.of([[element(document[name]) for name in names] for document in documents])
        for names in (chosen.keys, chosen.values)
    )
    return messages.Store(
        binding=0,
        keys=keys,
        values=values,
        documents=[json.dumps(document).encode() for document in documents],
        exists=[False] * len(documents),
    )
