"""The clusters of a catalog: part of its fold, pure.

A cluster is a compute instance of its own, which bears its name: so many replicas maintain the
objects in it. The cluster `default` is always there; sources, rebases and sinks are in it. One
that was dropped is *ending* until nothing is left of it, and its name is taken so long.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from streams.compute.parameters import ParameterValues
from streams.ids import DEFAULT_CLUSTER


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeCluster:
    """A cluster; `replicas` is how many of them are wanted.

    `master` is that of their Spark, empty for the environment's; `buckets` are the parts into
    which they divide their work, 0 for as many as the environment has. `parameters` are those
    whose values are the cluster's own.
    """

    name: str
    replicas: int = 1
    master: str = ""
    buckets: int = 0
    parameters: ParameterValues = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AddCluster:
    """There is one cluster more."""

    cluster: ComputeCluster

    @property
    def name(self) -> str:
        """Its name."""
        return self.cluster.name


@dataclass(frozen=True, slots=True)
class ScaleCluster:
    """The cluster is to have so many replicas."""

    name: str
    replicas: int


@dataclass(frozen=True, slots=True)
class RescaleCluster:
    """The cluster's replicas are to divide their work into so many buckets."""

    name: str
    buckets: int


@dataclass(frozen=True, slots=True)
class ConfigureCluster:
    """The cluster's replicas are to go by these parameters of its own, and no others."""

    name: str
    parameters: ParameterValues


@dataclass(frozen=True, slots=True)
class RemoveCluster:
    """The cluster is to end; nothing is in it."""

    name: str


@dataclass(frozen=True, slots=True)
class ForgetCluster:
    """Nothing is left of a cluster that has ended: its name is free again."""

    name: str


ClusterEvent = (
    AddCluster
    | ScaleCluster
    | RescaleCluster
    | ConfigureCluster
    | RemoveCluster
    | ForgetCluster
)


def _with_default() -> Mapping[str, ComputeCluster]:
    return {DEFAULT_CLUSTER: ComputeCluster(name=DEFAULT_CLUSTER)}


@dataclass(frozen=True, slots=True)
class Clusters:
    """By their names, oldest first: those there are, and those that are ending."""

    live: Mapping[str, ComputeCluster] = field(default_factory=_with_default)
    ending: Mapping[str, ComputeCluster] = field(default_factory=dict)

    @property
    def all(self) -> tuple[ComputeCluster, ...]:
        """Those there are, and those that are ending."""
        return (*self.live.values(), *self.ending.values())

    def objection(self, body: ClusterEvent, inside: Sequence[str]) -> str:
        """Why an event is invalid; empty if it is not.

        `inside` are the names of the objects in the cluster; of one that is ending, those that
        were dropped and are not forgotten.
        """
        match body:
            case AddCluster(cluster):
                is_taken = cluster.name in self.live or cluster.name in self.ending
                return f"cluster {cluster.name} already exists" if is_taken else ""
            case ScaleCluster(name) | RescaleCluster(name) | ConfigureCluster(name):
                return "" if name in self.live else f"no cluster {name}"
            case RemoveCluster(name) if name == DEFAULT_CLUSTER:
                return f"cluster {name} is always there"
            case RemoveCluster(name) if name not in self.live:
                return f"no cluster {name}"
            case ForgetCluster(name) if name not in self.ending:
                return f"no cluster {name} was dropped"
            case RemoveCluster() | ForgetCluster():
                return f"{inside[0]} is in cluster {body.name}" if inside else ""

    def applied(self, body: ClusterEvent) -> "Clusters":
        """The clusters after a valid event."""
        match body:
            case AddCluster(cluster):
                return replace(self, live={**self.live, cluster.name: cluster})
            case ScaleCluster(name, replicas):
                cluster = replace(self.live[name], replicas=replicas)
                return replace(self, live={**self.live, name: cluster})
            case RescaleCluster(name, buckets):
                cluster = replace(self.live[name], buckets=buckets)
                return replace(self, live={**self.live, name: cluster})
            case ConfigureCluster(name, parameters):
                cluster = replace(self.live[name], parameters=parameters)
                return replace(self, live={**self.live, name: cluster})
            case RemoveCluster(name):
                ending = {**self.ending, name: self.live[name]}
                return Clusters(_without(self.live, name), ending)
            case ForgetCluster(name):
                return replace(self, ending=_without(self.ending, name))


def _without(clusters: Mapping[str, ComputeCluster], name: str) -> Mapping[str, ComputeCluster]:
    return {key: cluster for key, cluster in clusters.items() if key != name}
