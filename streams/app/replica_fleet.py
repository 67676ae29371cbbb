"""The replicas that `slackwater up` runs beside its first one: as many as clusters want.

The coordinator is asked what clusters there are, for the catalog says how many replicas each is
to have. While it does not answer, everything stays as it is. A replica that was given up is
started again after a while: its cluster may name a master that comes later, and an environment
in which one cluster does not work is there for the others.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from streams.app.client import ClusterStatus
from streams.app.processes import Child
from streams.errors import Determinate
from streams.ids import DEFAULT_CLUSTER

log = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0
RETRY_S = 300.0
"""The pause before a replica that was given up is started again."""


@dataclass(frozen=True, slots=True, order=True)
class ReplicaPlace:
    """The place of one replica: a cluster, a number in it, from 1 on, and Spark's master.

    Without a master that is the environment's.
    """

    cluster: str
    number: int
    master: str = ""

    @property
    def name(self) -> str:
        """The replica's name, which no replica of another cluster has."""
        of = "" if self.cluster == DEFAULT_CLUSTER else f"{self.cluster}_"
        return f"{of}r{self.number}"

    @property
    def service(self) -> str:
        """The name of its process, its log and its directory."""
        return f"replica-{self.cluster}-r{self.number}"


FIRST = ReplicaPlace(DEFAULT_CLUSTER, 1)
"""The replica that is always there, and not of the fleet."""


def wanted(clusters: Sequence[ClusterStatus]) -> frozenset[ReplicaPlace]:
    """The places that have to be filled."""
    places = (
        ReplicaPlace(cluster["name"], number, cluster["master"] or "")
        for cluster in clusters
        for number in range(1, cluster["replicas"] + 1)
    )
    return frozenset(places) - {FIRST}


@dataclass(slots=True)
class ReplicaFleet:
    """Follows what `ask` says of clusters; `make` has a process for a place, not started."""

    ask: Callable[[], Sequence[ClusterStatus]]
    make: Callable[[ReplicaPlace], Child]
    clock: Callable[[], float] = time.monotonic
    children: Mapping[ReplicaPlace, Child] = field(default_factory=dict)
    """A new one at each change: other threads read it."""
    _over: dict[ReplicaPlace, float] = field(default_factory=dict)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Follow in the background."""
        self._thread = threading.Thread(target=self._follow, name="fleet", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop following, and end all replicas, together."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._end(self.children)

    def adjust(self, places: Collection[ReplicaPlace]) -> None:
        """End the replicas that are in no such place, and start those that lack."""
        self._end([place for place in self.children if place not in places])
        self._note_given_up()
        for place in sorted(set(places) - self.children.keys()):
            log.info("starting a replica", extra={"service": place.service})
            child = self.make(place)
            self.children = {**self.children, place: child}
            child.start()

    def _follow(self) -> None:
        while not self._stopping.wait(LOOK_EVERY_S):
            try:
                self.adjust(wanted(self.ask()))
            except Determinate:
                continue  # it is being restarted
            except OSError as cause:  # no room for a configuration, or no process more
                log.warning("replicas cannot be started", extra={"cause": str(cause)})
            except Exception:
                log.exception("replicas cannot be followed")

    def _note_given_up(self) -> None:
        """Forget those that were given up long ago, which are then started again."""
        now = self.clock()
        over = [place for place, child in self.children.items() if child.is_over]
        self._over = {place: self._over.get(place, now) for place in over}
        self._end([place for place, since in self._over.items() if now - since >= RETRY_S])

    def _end(self, places: Collection[ReplicaPlace]) -> None:
        ending = [threading.Thread(target=self.children[place].stop) for place in places]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join()
        self.children = {
            place: child for place, child in self.children.items() if place not in set(places)
        }
