"""Codec of the catalog's events about clusters: `schemas/avro/catalog_*_cluster.avsc`."""

from dataclasses import asdict

from schemas.codec import Record
from streams.adapter.catalog_clusters import (
    AddCluster,
    ClusterEvent,
    ComputeCluster,
    ForgetCluster,
    RemoveCluster,
    ScaleCluster,
)


def cluster_fields(body: ClusterEvent) -> tuple[str, Record]:
    """Return the name of an event's schema, and its own fields."""
    match body:
        case AddCluster(cluster):
            return "catalog_add_cluster", asdict(cluster)
        case ScaleCluster(name, replicas):
            return "catalog_scale_cluster", {"name": name, "replicas": replicas}
        case RemoveCluster(name):
            return "catalog_remove_cluster", {"name": name}
        case ForgetCluster(name):
            return "catalog_forget_cluster", {"name": name}


def cluster_event(schema: str, record: Record) -> ClusterEvent | None:
    """Return the event of a record; None if the schema is of another kind of event."""
    match schema:
        case "catalog_add_cluster":
            fields = ("name", "replicas", "master", "buckets")
            return AddCluster(ComputeCluster(**{field: record[field] for field in fields}))
        case "catalog_scale_cluster":
            return ScaleCluster(record["name"], record["replicas"])
        case "catalog_remove_cluster":
            return RemoveCluster(record["name"])
        case "catalog_forget_cluster":
            return ForgetCluster(record["name"])
        case _:
            return None
