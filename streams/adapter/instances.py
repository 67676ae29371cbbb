"""The compute instances of all clusters: a controller for each, and what they hear.

A cluster's instance bears its name. Objects go to the controller of their cluster, and each
controller has a thread that reads the responses of its replicas. `follow` opens those of new
clusters. One that cannot be opened, because brokers do not answer, is opened later, and objects
in its cluster wait. It also has the replicas of a cluster go by the parameters that the catalog
has for it, over those of the environment.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from streams.adapter.catalog import Item
from streams.adapter.catalog_clusters import ComputeCluster
from streams.adapter.cluster_status import Observed
from streams.adapter.coordinator_settings import Cluster, CoordinatorSettings
from streams.compute.controller import (
    Controller,
    command_topic,
    create_topics,
    response_topic,
)
from streams.compute.description import DataflowDescription
from streams.compute.parameters import ComputeParameters, differing
from streams.compute.peeks import Peek
from streams.compute.protocol import CreateInstance
from streams.errors import Determinate, SlackwaterError
from streams.ids import CollectionId
from streams.progress import Antichain

log = logging.getLogger(__name__)

LISTEN_MS = 200
PAUSE_S = 1.0


@dataclass(slots=True)
class _Listener:
    """The thread that reads the responses of one instance."""

    name: str
    controller: Controller
    stopped: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        name = f"responses of {self.name}"
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.stopped.is_set():
            try:
                self.controller.poll(LISTEN_MS)
            except SlackwaterError as failure:
                facts = {"cluster": self.name, "cause": str(failure)}
                log.warning("responses cannot be read; retrying", extra=facts)
                self.stopped.wait(PAUSE_S)
            except Exception:
                log.exception("responses cannot be read", extra={"cluster": self.name})
                self.stopped.wait(PAUSE_S)

    def stop(self) -> None:
        self.stopped.set()
        self.thread.join()


class Instances:
    """The controllers, by the names of clusters. The caller serialises what changes them."""

    def __init__(
        self,
        kafka: Cluster,
        settings: CoordinatorSettings,
        epoch: int,
        new_id: Callable[[], str],
    ) -> None:
        self._kafka, self._settings = kafka, settings
        self._epoch, self._new_id = epoch, new_id
        self._listeners: dict[str, _Listener] = {}
        self._is_listening = False
        self._governed: dict[str, ComputeParameters] = {}
        self.controllers: Mapping[str, Controller] = {}
        """A new one at each change: other threads read it."""

    @property
    def observed(self) -> Observed:
        """What all replicas have reported, as of the last responses that were read."""
        return Observed(
            {name: controller.observed for name, controller in self.controllers.items()}
        )

    @property
    def plans(self) -> Mapping[CollectionId, str]:
        """The plans of live dataflows, in JSON; empty for those that replicas know."""
        controllers = self.controllers.values()
        return {
            key: plan for controller in controllers for key, plan in controller.plans.items()
        }

    @property
    def open_peeks(self) -> tuple[Peek, ...]:
        """The peeks without an answer."""
        controllers = self.controllers.values()
        return tuple(peek for controller in controllers for peek in controller.open_peeks)

    def of(self, cluster: str) -> Controller:
        """Return the controller of a cluster. Errors: Determinate while there is none."""
        controller = self.controllers.get(cluster)
        if controller is None:
            raise Determinate(f"cluster {cluster} is being created")
        return controller

    def start(
        self,
        clusters: Iterable[ComputeCluster],
        dataflows: Sequence[tuple[Item, DataflowDescription]],
        dropped: Iterable[Item],
    ) -> None:
        """Open all controllers, and have them run exactly these dataflows.

        Errors: Determinate, Indeterminate: the cluster does not answer.
        """
        gone = list(dropped)
        for cluster in clusters:
            described = [flow for item, flow in dataflows if item.cluster == cluster.name]
            ended = sorted(item.id for item in gone if item.cluster == cluster.name)
            self._open(cluster, described, ended)

    def follow(self, clusters: Iterable[ComputeCluster]) -> None:
        """Open the controllers of clusters that have none, and tell replicas new parameters.

        Errors: as `start`; then it is to be called again.
        """
        for cluster in clusters:
            if cluster.name not in self.controllers:
                self._open(cluster, [], [])
            else:
                self._govern(cluster)

    def _govern(self, cluster: ComputeCluster) -> None:
        """Have replicas go by the settings and parameters of a cluster that were changed."""
        self.controllers[cluster.name].resettle(self._instance(cluster))
        wanted = self._parameters(cluster)
        changed = differing(wanted, self._governed[cluster.name])
        if changed:
            self.controllers[cluster.name].update_configuration(changed)
            self._governed[cluster.name] = wanted

    def _instance(self, cluster: ComputeCluster) -> CreateInstance:
        buckets = cluster.buckets or self._settings.buckets
        return CreateInstance(self._settings.namespace, buckets)

    def _parameters(self, cluster: ComputeCluster) -> ComputeParameters:
        return self._settings.parameters.governed_by(cluster.parameters)

    def _open(
        self,
        cluster: ComputeCluster,
        dataflows: Sequence[DataflowDescription],
        dropped: Sequence[CollectionId],
    ) -> None:
        namespace, name = self._settings.namespace, cluster.name
        create_topics(self._kafka.topics, namespace, name)
        controller = Controller(
            self._kafka.logs,
            self._instance(cluster),
            name,
            self._epoch,
            self._new_id,
            parameters=self._parameters(cluster),
        )
        controller.start(dataflows, dropped)
        self._governed[name] = self._parameters(cluster)
        self.controllers = {**self.controllers, name: controller}
        if self._is_listening:
            self._listeners[name] = _Listener(name, controller)

    def listen(self) -> None:
        """Begin to read responses."""
        self._is_listening = True
        for name, controller in self.controllers.items():
            self._listeners[name] = _Listener(name, controller)

    @property
    def is_alive(self) -> bool:
        """Whether all threads run: there was no internal error."""
        return all(listener.thread.is_alive() for listener in list(self._listeners.values()))

    def allow_compaction(self, sinces: Mapping[CollectionId, Antichain]) -> None:
        """Compact the history of views before these sinces. Errors: as `Controller.create`."""
        for controller in self.controllers.values():
            controller.allow_compaction(sinces)

    def forget(self, cluster: str) -> None:
        """Forget a cluster, and delete its topics. Errors: Determinate, Indeterminate."""
        listener = self._listeners.pop(cluster, None)
        if listener is not None:
            listener.stop()
        controller = self.controllers.get(cluster)
        if controller is not None:
            controller.close()
        self._governed.pop(cluster, None)
        self.controllers = {
            name: other for name, other in self.controllers.items() if name != cluster
        }
        namespace = self._settings.namespace
        names = (command_topic(namespace, cluster), response_topic(namespace, cluster))
        self._kafka.topics.delete(names)

    def close(self) -> None:
        """Stop reading and writing."""
        for listener in self._listeners.values():
            listener.stop()
        for controller in self.controllers.values():
            controller.close()
