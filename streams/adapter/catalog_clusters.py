"""The clusters of a catalog: part of its fold, pure.

A cluster is a compute instance of its own, which bears its name: so many replicas maintain the
objects in it. The cluster `default` is always there; sources and sinks are in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from streams.plan.sql.clusters import DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeCluster:
    """A cluster; `replicas` is how many of them are wanted."""

    name: str
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class ScaleCluster:
    """The cluster is to have so many replicas."""

    name: str
    replicas: int


def _with_default() -> Mapping[str, ComputeCluster]:
    return {DEFAULT: ComputeCluster(name=DEFAULT)}


@dataclass(frozen=True, slots=True)
class Clusters:
    """By their names, oldest first."""

    live: Mapping[str, ComputeCluster] = field(default_factory=_with_default)

    def objection(self, body: ScaleCluster) -> str:
        """Why an event is invalid; empty if it is not."""
        return "" if body.name in self.live else f"no cluster {body.name}"

    def applied(self, body: ScaleCluster) -> "Clusters":
        """The clusters after a valid event."""
        cluster = replace(self.live[body.name], replicas=body.replicas)
        return replace(self, live={**self.live, body.name: cluster})
