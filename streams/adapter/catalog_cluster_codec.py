"""Codec of the catalog's events about clusters: `schemas/avro/catalog_*_cluster.avsc`."""

from collections.abc import Callable, Mapping

from schemas.codec import Record
from streams.adapter.catalog_clusters import (
    AddCluster,
    ClusterEvent,
    ComputeCluster,
    ConfigureCluster,
    ForgetCluster,
    RemoveCluster,
    RescaleCluster,
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
        case RescaleCluster(name, buckets):
            return "catalog_rescale_cluster", {"name": name, "buckets": buckets}
        case ConfigureCluster(name, parameters):
            return "catalog_configure_cluster", {
                "name": name,
                "parameters": parameter_records(parameters),
            }
        case RemoveCluster(name):
            return "catalog_remove_cluster", {"name": name}
        case ForgetCluster(name):
            return "catalog_forget_cluster", {"name": name}


_EVENTS: Mapping[str, Callable[[Record], ClusterEvent]] = {
    "catalog_add_cluster": lambda record: AddCluster(
        ComputeCluster(**{field: record[field] for field in ADDED})
    ),
    "catalog_scale_cluster": lambda record: ScaleCluster(record["name"], record["replicas"]),
    "catalog_rescale_cluster": lambda record: RescaleCluster(record["name"], record["buckets"]),
    "catalog_configure_cluster": lambda record: ConfigureCluster(
        record["name"], parameter_values(record["parameters"])
    ),
    "catalog_remove_cluster": lambda record: RemoveCluster(record["name"]),
    "catalog_forget_cluster": lambda record: ForgetCluster(record["name"]),
}


def cluster_event(schema: str, record: Record) -> ClusterEvent | None:
    """Return the event of a record; None if the schema is of another kind of event."""
    event_of = _EVENTS.get(schema)
    return None if event_of is None else event_of(record)
