"""Codec of the catalog's events about clusters: `schemas/avro/catalog_*_cluster.avsc`."""

from schemas.codec import Record
from streams.adapter.catalog_clusters import (
    AddCluster,
    ClusterEvent,
    ComputeCluster,
    ConfigureCluster,
    ForgetCluster,
    RemoveCluster,
    ScaleCluster,
)
from streams.compute.codec import parameter_records, parameter_values

ADDED = ("name", "replicas", "master", "buckets")
"""What the first event of a cluster says of it."""


def cluster_fields(body: ClusterEvent) -> tuple[str, Record]:
    """Return the name of an event's schema, and its own fields."""
    match body:
        case AddCluster(cluster):
            return "catalog_add_cluster", {field: getattr(cluster, field) for field in ADDED}
        case ScaleCluster(name, replicas):
            return "catalog_scale_cluster", {"name": name, "replicas": replicas}
        case ConfigureCluster(name, parameters):
            return "catalog_configure_cluster", {
                "name": name,
                "parameters": parameter_records(parameters),
            }
        case RemoveCluster(name):
            return "catalog_remove_cluster", {"name": name}
        case ForgetCluster(name):
            return "catalog_forget_cluster", {"name": name}


def cluster_event(schema: str, record: Record) -> ClusterEvent | None:
    """Return the event of a record; None if the schema is of another kind of event."""
    match schema:
        case "catalog_add_cluster":
            return AddCluster(ComputeCluster(**{field: record[field] for field in ADDED}))
        case "catalog_scale_cluster":
            return ScaleCluster(record["name"], record["replicas"])
        case "catalog_configure_cluster":
            return ConfigureCluster(record["name"], parameter_values(record["parameters"]))
        case "catalog_remove_cluster":
            return RemoveCluster(record["name"])
        case "catalog_forget_cluster":
            return ForgetCluster(record["name"])
        case _:
            return None
