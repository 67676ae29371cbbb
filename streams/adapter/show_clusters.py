"""The clusters, with the replicas that are wanted and those that are live. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass

from streams.adapter.catalog import Catalog
from streams.adapter.results import Result
from streams.adapter.show_statements import table
from streams.compute.replica_responses import InstanceStatus
from streams.plan.physical import Column
from streams.plan.sql.clusters import DEFAULT

COLUMNS = (
    Column("name", "VARCHAR"),
    Column("replicas", "BIGINT"),
    Column("live", "BIGINT"),
    Column("objects", "BIGINT"),
    Column("buckets", "BIGINT"),
)
"""Of SHOW CLUSTERS. `replicas` are wanted, `live` have been heard."""


@dataclass(frozen=True, slots=True)
class ShownCluster:
    """One cluster, as `COLUMNS` have it."""

    name: str
    replicas: int
    live: int
    objects: int
    buckets: int

    def as_json(self) -> dict[str, str | int]:
        """The cluster for programs."""
        return asdict(self)


def shown(catalog: Catalog, observed: InstanceStatus, buckets: int) -> list[ShownCluster]:
    """Return the clusters, oldest first; the default one has so many buckets."""
    objects = Counter(DEFAULT for item in catalog.ordered() if item.kind != "errors")
    return [
        ShownCluster(
            name=cluster.name,
            replicas=cluster.replicas,
            live=len(observed.replicas),
            objects=objects[cluster.name],
            buckets=buckets,
        )
        for cluster in catalog.clusters.live.values()
    ]


def results(clusters: Sequence[ShownCluster]) -> Iterator[Result]:
    """Return the answer to SHOW CLUSTERS."""
    return table(COLUMNS, [astuple(cluster) for cluster in clusters])
