"""Definitions of clusters: what a statement changes in the catalog."""

from typing import assert_never

from streams.adapter.catalog import NAMES, Catalog
from streams.adapter.catalog_clusters import (
    AddCluster,
    ComputeCluster,
    ConfigureCluster,
    RemoveCluster,
    RescaleCluster,
    ScaleCluster,
)
from streams.adapter.catalog_log import CatalogLog
from streams.adapter.results import Complete, Notice, Result
from streams.compute.parameters import check_names, check_values
from streams.errors import InvalidStatement, InvalidUsage
from streams.ids import DEFAULT_CLUSTER
from streams.plan.sql.clusters import (
    AlterCluster,
    ClusterStatement,
    CreateCluster,
    DropCluster,
)


def changed(statement: ClusterStatement, catalog: CatalogLog) -> tuple[Result, ...]:
    """Execute a statement. Errors: InvalidStatement."""
    match statement:
        case CreateCluster():
            return _create(statement, catalog)
        case AlterCluster():
            return _alter(statement, catalog)
        case DropCluster():
            return _drop(statement, catalog)
        case _:
            assert_never(statement)


def live_cluster(name: str, catalog: Catalog) -> ComputeCluster:
    """Return the cluster of a name without case. Errors: InvalidStatement if there is none."""
    cluster = catalog.clusters.live.get(name)
    if cluster is None:
        there = ", ".join(catalog.clusters.live)
        raise InvalidStatement(f"cluster {name} does not exist", f"clusters are {there}")
    return cluster


def _create(statement: CreateCluster, catalog: CatalogLog) -> tuple[Result, ...]:
    name, clusters = statement.name, catalog.sync().clusters
    done = Complete("CREATE CLUSTER")
    if name in clusters.ending:
        raise InvalidStatement(
            f"cluster {name} is being dropped",
            "its replicas must stop before the name can be used again",
            "try again in a minute, or choose another name",
        )
    if name in clusters.live:
        if not statement.if_not_exists:
            raise InvalidStatement(f"cluster {name} already exists")
        return Notice(f"cluster {name} already exists and is unchanged"), done
    cluster = ComputeCluster(
        name=name,
        replicas=statement.replicas,
        master=statement.master,
        buckets=statement.buckets,
    )
    catalog.change(lambda _: AddCluster(cluster))
    return (done,)


def _alter(statement: AlterCluster, catalog: CatalogLog) -> tuple[Result, ...]:
    named = (*statement.parameters, *statement.reset)
    try:
        check_names(dict.fromkeys(named, 0))
        check_values(statement.parameters)
    except InvalidUsage as unusable:
        raise InvalidStatement(str(unusable)) from unusable
    name = live_cluster(statement.name, catalog.sync()).name
    replicas, buckets = statement.replicas, statement.buckets
    if replicas is not None:
        catalog.change(lambda _: ScaleCluster(name, replicas))
    if buckets is not None:
        catalog.change(lambda _: RescaleCluster(name, buckets))
    if named:
        catalog.change(lambda state: _configured(statement, live_cluster(name, state)))
    numbers = {"replicas": replicas, "buckets": buckets}
    changed = {option: number for option, number in numbers.items() if number}
    return (Complete("ALTER CLUSTER", changed),)


def _configured(statement: AlterCluster, cluster: ComputeCluster) -> ConfigureCluster:
    values = {**cluster.parameters, **statement.parameters}
    kept = {name: value for name, value in values.items() if name not in statement.reset}
    return ConfigureCluster(cluster.name, kept)


def _drop(statement: DropCluster, catalog: CatalogLog) -> tuple[Result, ...]:
    name, done = statement.name, Complete("DROP CLUSTER")
    state = catalog.sync()
    if name not in state.clusters.live and statement.if_exists:
        return Notice(f"cluster {name} does not exist"), done
    live_cluster(name, state)
    if name == DEFAULT_CLUSTER:
        raise InvalidStatement(
            f"cluster {name} cannot be dropped",
            "sources and sinks are in it",
            "ALTER CLUSTER changes how many replicas it has",
        )
    residents = [item for item in state.ordered() if item.cluster == name]
    if residents:
        shown = ", ".join(f"{NAMES[item.kind]} {item.name}" for item in residents)
        raise InvalidStatement(
            f"cluster {name} cannot be dropped", f"what is in it: {shown}", "drop those first"
        )
    catalog.change(lambda _: RemoveCluster(name))
    return (done,)
