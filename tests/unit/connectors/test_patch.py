"""Driver checkpoints: replaced, cleared, merged."""

import json
from typing import Any

import pytest

from connectors.protocol.messages import Flushed
from connectors.protocol.patch import kept, merge

# The test cases of RFC 7396, appendix A: document, patch, result.
RFC = [
    ('{"a":"b"}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'),
    ('{"a":"b"}', '{"a":null}', "{}"),
    ('{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'),
    ('{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'),
    ('{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'),
    ('{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'),
    ('["a","b"]', '["c","d"]', '["c","d"]'),
    ('{"a":"b"}', '["c"]', '["c"]'),
    ('{"a":"foo"}', "null", "null"),
    ('{"a":"foo"}', '"bar"', '"bar"'),
    ('{"e":null}', '{"a":1}', '{"e":null,"a":1}'),
    ("[1,2]", '{"a":"b","c":null}', '{"a":"b"}'),
    ("{}", '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}'),
]


@pytest.mark.parametrize(("document", "patch", "result"), RFC)
def test_a_patch_is_merged_as_the_rfc_says(document: str, patch: str, result: str) -> None:
    before = json.loads(document)
    assert merge(before, json.loads(patch)) == json.loads(result)
    assert before == json.loads(document), "the document is as it was"


@pytest.mark.parametrize(
    ("before", "flushed", "after"),
    [
        (b"", Flushed(), b""),
        (b'{"a":1}', Flushed(b'{"b":2}'), b'{"b":2}'),
        (b'{"a":1}', Flushed(), b""),
        (b'{"a":1}', Flushed(b'{"b":2}', patch=True), b'{"a":1,"b":2}'),
        (b"", Flushed(b'{"b":null,"c":3}', patch=True), b'{"c":3}'),
    ],
    ids=["none", "replaced", "cleared", "patched", "patched from nothing"],
)
def test_a_driver_keeps_what_the_connector_gives_it(
    before: bytes, flushed: Any, after: bytes
) -> None:
    """Seed, "Checkpoints": optional values that the connector registers, given back after."""
    assert kept(before, flushed) == after
