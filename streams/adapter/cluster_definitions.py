"""Definitions of clusters."""

from streams.adapter.catalog import Catalog
from streams.adapter.catalog_clusters import ComputeCluster, ScaleCluster
from streams.adapter.catalog_log import CatalogLog
from streams.adapter.results import Complete, Result
from streams.errors import InvalidStatement
from streams.plan.sql.clusters import AlterCluster


def alter_cluster(statement: AlterCluster, catalog: CatalogLog) -> tuple[Result, ...]:
    """Change how many replicas a cluster is to have. Errors: InvalidStatement."""
    cluster = known(statement.name, catalog.sync())
    catalog.change(lambda _: ScaleCluster(cluster.name, statement.replicas))
    return (Complete("ALTER CLUSTER", {"replicas": statement.replicas}),)


def known(name: str, catalog: Catalog) -> ComputeCluster:
    """Return the cluster of a name without case. Errors: InvalidStatement if there is none."""
    cluster = catalog.clusters.live.get(name)
    if cluster is None:
        there = ", ".join(catalog.clusters.live)
        raise InvalidStatement(f"cluster {name} does not exist", f"clusters are {there}")
    return cluster
