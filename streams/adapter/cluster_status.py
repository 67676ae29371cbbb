"""What the replicas of all clusters have reported. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streams.adapter.catalog import Item
from streams.compute.replica_responses import (
    NO_CONDITION,
    Condition,
    InstanceStatus,
    LanesReport,
    Report,
)

UNHEARD = InstanceStatus()


@dataclass(frozen=True, slots=True)
class Observed:
    """By the names of clusters. A cluster that is not there has been heard of nothing."""

    clusters: Mapping[str, InstanceStatus] = field(default_factory=dict)

    def of(self, item: Item) -> InstanceStatus:
        """Return what is reported in the cluster of an object."""
        return self.cluster(item.cluster)

    def cluster(self, name: str) -> InstanceStatus:
        """Return what is reported in a cluster."""
        return self.clusters.get(name, UNHEARD)

    def condition(self, item: Item) -> Condition:
        """Return what is reported of an object."""
        return self.of(item).conditions.get(item.id, NO_CONDITION)

    def report(self, item: Item) -> Report:
        """Return what is known of an object: the best that a live replica says."""
        return self.of(item).report(item.id)

    @property
    def replicas(self) -> frozenset[str]:
        """Return the live replica processes."""
        return frozenset().union(*(status.replicas for status in self.clusters.values()))

    @property
    def lanes(self) -> Sequence[tuple[str, LanesReport]]:
        """Return what each replica has said of its lanes, by the names of replicas."""
        statuses = self.clusters.values()
        reports = [report for status in statuses for report in status.lanes.items()]
        return sorted(reports, key=lambda report: report[0])

    @property
    def now(self) -> float:
        """Return the controllers' clock, up to which all is read."""
        return max((status.now for status in self.clusters.values()), default=0.0)
