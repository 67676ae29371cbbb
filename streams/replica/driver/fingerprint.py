"""The fingerprint of a dataflow: equal if and only if its states are compatible (rule 24)."""

import hashlib
import json
from importlib.metadata import version

from streams.operators import engine


def fingerprint(plan: str, buckets: int) -> str:
    """Return a short text that depends on plan, versions and the number of buckets."""
    facts = [plan, version("slackwater"), engine.fingerprint(buckets)]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def plan_name(plan: str) -> str:
    """Return the name of a plan's file: the hash of its content."""
    return hashlib.sha256(plan.encode()).hexdigest()
