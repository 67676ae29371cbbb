"""The clusters, with the replicas that are wanted and those that are live. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass

from streams.adapter.catalog import Catalog
from streams.adapter.cluster_status import Observed
from streams.adapter.results import Result
from streams.adapter.show_statements import table
from streams.compute.parameters import ParameterValues
from streams.plan.physical import Column

COLUMNS = (
    Column("name", "VARCHAR"),
    Column("replicas", "BIGINT"),
    Column("live", "BIGINT"),
    Column("objects", "BIGINT"),
    Column("buckets", "BIGINT"),
    Column("master", "VARCHAR"),
    Column("parameters", "VARCHAR"),
)
"""Of SHOW CLUSTERS. `replicas` are wanted, `live` have been heard. `master` is NULL for the
environment's, and `parameters` are those of the cluster's own, or NULL."""


@dataclass(frozen=True, slots=True)
class ShownCluster:
    """One cluster, as `COLUMNS` have it."""

    name: str
    replicas: int
    live: int
    objects: int
    buckets: int
    master: str | None = None
    parameters: str | None = None

    def as_json(self) -> dict[str, str | int | None]:
        """The cluster for programs."""
        return asdict(self)


def shown(catalog: Catalog, observed: Observed, buckets: int) -> list[ShownCluster]:
    """Return the clusters, oldest first; they have so many buckets unless they say."""
    objects = Counter(item.cluster for item in catalog.ordered() if item.kind != "errors")
    return [
        ShownCluster(
            name=cluster.name,
            replicas=cluster.replicas,
            live=len(observed.cluster(cluster.name).replicas),
            objects=objects[cluster.name],
            buckets=cluster.buckets or buckets,
            master=cluster.master or None,
            parameters=_text(cluster.parameters) or None,
        )
        for cluster in catalog.clusters.live.values()
    ]


def _text(parameters: ParameterValues) -> str:
    """Return parameters as ALTER CLUSTER takes them."""
    return ", ".join(f"{name} {value}" for name, value in sorted(parameters.items()))


def results(clusters: Sequence[ShownCluster]) -> Iterator[Result]:
    """Return the answer to SHOW CLUSTERS."""
    return table(COLUMNS, [astuple(cluster) for cluster in clusters])
