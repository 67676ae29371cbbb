"""The fingerprint of a dataflow: equal if and only if its states are compatible (rule 24)."""

import hashlib
import json
from importlib.metadata import version

from streams.operators import engine


def fingerprint(plan: str) -> str:
    """Return a short text that depends on plan and versions."""
    facts = [plan, version("slackwater"), engine.fingerprint()]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def plan_name(plan: str) -> str:
    """Return the name of a plan's file: the hash of its content."""
    return hashlib.sha256(plan.encode()).hexdigest()
