"""Keeps the controllers as the catalog has clusters, and forgets those that have ended.

A cluster that was dropped is forgotten once its dropped objects are, and its replicas have
ended or had time to. Then its topics are deleted: a replica that still runs, because who runs
it does not know, finds no instance and waits.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from streams.adapter.catalog import Catalog, Item
from streams.adapter.catalog_clusters import ForgetCluster
from streams.adapter.catalog_log import CatalogLog
from streams.adapter.cluster_status import Observed
from streams.adapter.instances import Instances

log = logging.getLogger(__name__)

PATIENCE_S = 60.0
"""How long replicas of a dropped cluster are waited for."""


class ClusterKeeper(Protocol):
    """The parts of the coordinator that clusters concern."""

    catalog: CatalogLog
    instances: Instances


@dataclass(slots=True)
class ClusterLifecycle:
    """Follows the catalog; the caller serialises calls."""

    keeper: ClusterKeeper
    clock: Callable[[], float] = time.monotonic
    _ending: dict[str, float] = field(default_factory=dict)

    def follow(self, catalog: Catalog) -> None:
        """Open what lacks a controller, and forget what has ended.

        Errors: Deposed; Determinate, Indeterminate: it is to be called again.
        """
        self.keeper.instances.follow(catalog.clusters.live.values())
        occupied = {item.cluster for item in catalog.dropped.values()}
        for name in catalog.clusters.ending:
            since = self._ending.setdefault(name, self.clock())
            live = self.keeper.instances.observed.cluster(name).replicas
            if name in occupied or (live and self.clock() - since < PATIENCE_S):
                continue
            self.keeper.instances.forget(name)
            forgotten = ForgetCluster(name)
            self.keeper.catalog.change(partial(_decided, forgotten))
            del self._ending[name]
            log.info("cluster removed", extra={"cluster": name})


def _decided(event: ForgetCluster, _: Catalog) -> ForgetCluster:
    return event


def has_ended(item: Item, observed: Observed, catalog: Catalog) -> bool:
    """Whether the dataflow of a dropped object has stopped. Pure.

    A replica says so. Of a cluster that was dropped none may live any more, nor come again.
    """
    status = observed.of(item)
    if item.id in status.dropped:
        return True
    return item.cluster in catalog.clusters.ending and status.is_deserted
