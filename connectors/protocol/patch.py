"""The connector's own checkpoint as the driver stores it: replaced, cleared or merge-patched.

Source: RFC 7396, JSON Merge Patch.
"""

import json

from pydantic import JsonValue

from connectors.protocol.messages import Flushed


def kept(before: bytes, flushed: Flushed) -> bytes:
    """The checkpoint that the driver stores after a transaction; empty if there is none.

    A checkpoint that is no patch takes the place of the one before, and an empty one clears it.
    """
    if not flushed.patch:
        return flushed.checkpoint
    document: JsonValue = json.loads(before) if before else None
    merged = merge(document, json.loads(flushed.checkpoint))
    return json.dumps(merged, separators=(",", ":"), ensure_ascii=False).encode()


def merge(document: JsonValue, patch: JsonValue) -> JsonValue:
    """A document with a patch applied: null removes a member, other values replace it."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged
