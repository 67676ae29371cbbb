"""What must agree for two states of a dataflow to be the same state (rule 24)."""

import hashlib
import json
from importlib.metadata import version

from streams.operators import engine


def fingerprint(plan: str, buckets: int) -> str:
    """A short text that differs when plan, versions or the number of buckets do."""
    facts = [plan, version("slackwater"), engine.fingerprint(buckets)]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def plan_name(plan: str) -> str:
    """The name of a plan's file: the hash of its content."""
    return hashlib.sha256(plan.encode()).hexdigest()
