"""SHOW statements of what has no kind of its own among objects."""

from dataclasses import dataclass

USAGE = (
    "SHOW SOURCES | MATERIALIZED VIEWS | REBASES | SINKS | INDEXES | MATERIALIZATIONS"
    " | FUNCTIONS | CLUSTERS | CLUSTER REPLICAS"
)


@dataclass(frozen=True, slots=True)
class ShowFunctions:
    """List the functions that users have created."""


@dataclass(frozen=True, slots=True)
class ShowClusters:
    """List the clusters, with the replicas that are wanted and live."""


@dataclass(frozen=True, slots=True)
class ShowReplicas:
    """List the live replicas."""
