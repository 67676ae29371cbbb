"""Background reconciliation: create and drop objects, advance since, detect fencing.

Objects that the catalog names and for which no command was sent yet are created, oldest first
(`problems` has the failures); dropped ones are removed as soon as a replica has confirmed that
their dataflows stopped; the catalog's holds follow the read policy. Failures are retried: at
the next beat if the cluster does not answer, and otherwise after growing pauses, while the
other objects continue. That includes failures that a new process would meet again: a refused
definition, a plan that kills its worker, a log that cannot be folded, an internal error about
one object. A successor ends the coordinator (`failure`), and so does any other internal error:
its process exits, and a new one recovers from the topics.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from streams.adapter.catalog import Catalog, Item
from streams.adapter.catalog_log import CatalogLog, Deposed
from streams.adapter.cluster_lifecycle import ClusterLifecycle, has_ended
from streams.adapter.compactions import Compactions
from streams.adapter.instances import Instances
from streams.adapter.materializations import Materializing
from streams.adapter.provisioning import Objects
from streams.adapter.read_errors import with_way_out
from streams.adapter.read_holds import Guards
from streams.adapter.retention import History
from streams.errors import Corrupt, InvalidStatement, InvalidUsage, SlackwaterError
from streams.ids import CollectionId
from streams.kafka.log import Truncated
from streams.storage.client.backoff import RetryBackoff
from streams.storage.client.shards import Shards
from streams.storage.policy import Retention

log = logging.getLogger(__name__)

BEAT_S = 1.0

UNMADE = "object cannot be created"
LASTING = (InvalidUsage, InvalidStatement, Corrupt, Truncated)
"""Failures that do not pass by themselves as an outage does."""


class Keeper(Protocol):
    """The parts of the coordinator that the background threads use."""

    catalog: CatalogLog
    shards: Shards
    instances: Instances
    guards: Guards
    materializing: Materializing


class Reconciler:
    """The thread that reconciles clusters and objects."""

    def __init__(
        self,
        keeper: Keeper,
        objects: Objects,
        lock: threading.RLock,
        policy: Retention,
        now_ms: Callable[[], int],
    ) -> None:
        self._keeper, self._objects, self._lock = keeper, objects, lock
        self._history = History(keeper.shards, keeper.guards, policy, now_ms)
        self._compactions = Compactions(keeper.shards, keeper.instances)
        self._asked: set[CollectionId] = set()
        self._dropping: set[CollectionId] = set()
        self._pauses = RetryBackoff()
        self._seen: tuple[Catalog | None, int] = (None, 0)
        self._complete: Catalog | None = None
        self._stopped = threading.Event()
        self._clusters = ClusterLifecycle(keeper)
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)
        self.failure: SlackwaterError | None = None
        self.problems: dict[CollectionId, str] = {}

    def restore(self) -> None:
        """Create everything that the catalog names; the caller holds the lock.

        An object of which that is impossible stays behind, with what reads it (`problems`): its
        definition, or what its topics hold, is not what it was.
        Errors: Determinate, Indeterminate: the cluster does not answer. Nothing is asked for
        then, for replicas would drop what was left out.
        """
        catalog = self._keeper.catalog.sync()
        described = []
        self._objects.attach(catalog.ordered())
        self._objects.plans.prepare(catalog.ordered(), catalog)
        for item in catalog.ordered():
            if item.kind != "errors" and self._asked.issuperset(item.inputs):
                try:
                    described.append((item, self._objects.establish(item)))
                except LASTING as error:
                    self._note_lasting(item, error, UNMADE)
                except SlackwaterError:
                    raise
                except Exception as defect:  # noqa: BLE001  logged with its trace
                    self._note_defect(item, defect, UNMADE)
                else:
                    self._note_asked(item)
        instances, dropped = self._keeper.instances, catalog.dropped.values()
        instances.start(catalog.clusters.all, described, dropped)
        self._dropping.update(catalog.dropped)

    def start(self) -> None:
        """Start the background threads."""
        self._keeper.instances.listen()
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the threads run: no successor, no stop, no internal error."""
        return self._thread.is_alive() and self._keeper.instances.is_alive

    def stop(self) -> None:
        """Stop the thread."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def establish(self, item: Item) -> None:
        """Create an object and send its dataflow; the caller holds the lock."""
        description = self._objects.establish(item)
        self._objects.crash("before-command")
        self._keeper.instances.of(item.cluster).create(description)
        self._note_asked(item)
        self._objects.crash("after-command")

    def _note_asked(self, item: Item) -> None:
        letters = item.dead_letters
        self._asked.update([item.id] if letters is None else [item.id, letters.id])

    def retry(self, item: Item) -> None:
        """Like `establish`, but a failure is recorded and retried later. Errors: Deposed."""
        with self._alone(item, UNMADE):
            self.establish(item)

    def renew(self, item: Item) -> None:
        """Send the changed dataflow of an object; a failure is retried later. Errors: Deposed.

        The catalog already has the change; the caller holds the lock.
        """
        self._asked.discard(item.id)
        self.retry(item)

    def abolish(self, item: Item) -> None:
        """Send the end of a dropped object's dataflow; the caller holds the lock.

        A failure is retried later: the catalog already has the drop. Errors: Deposed.
        """
        self._asked.discard(item.id)
        with self._alone(item, "cannot request the end of a dataflow"):
            self._keeper.instances.of(item.cluster).drop(item.id)
            self._dropping.add(item.id)

    @contextmanager
    def _alone(self, item: Item, said: str) -> Iterator[None]:
        """Record a failure of one object; others are not affected. Errors: Deposed."""
        try:
            yield
        except Deposed:
            raise
        except LASTING as error:
            self._note_lasting(item, error, said)
        except SlackwaterError as error:
            self._note(item, error, said)
        except Exception as defect:  # noqa: BLE001  logged with its trace
            self._note_defect(item, defect, said)
        else:
            self.problems.pop(item.id, None)
            self._pauses.over(item.id)

    def _note(self, item: Item, error: SlackwaterError, said: str) -> None:
        cause = with_way_out(error, self._keeper.shards)
        if self.problems.get(item.id) != cause:
            facts = {"id": item.id, "object": item.name, "cause": cause}
            log.warning("%s; retrying", said, extra=facts)
        self.problems[item.id] = cause

    def _note_lasting(self, item: Item, error: SlackwaterError, said: str) -> None:
        self._note(item, error, said)
        self._pauses.failed(item.id)

    def _note_defect(self, item: Item, defect: Exception, said: str) -> None:
        log.error(said, extra={"id": item.id, "object": item.name}, exc_info=defect)
        self._pauses.failed(item.id)
        self.problems[item.id] = repr(defect)

    def follow_clusters(self) -> None:
        """Have the controllers fit the catalog; a failure is retried later. Errors: Deposed."""
        try:
            self._clusters.follow(self._keeper.catalog.state)
        except Deposed:
            raise
        except SlackwaterError as failure:
            log.warning("clusters do not fit yet; retrying", extra={"cause": str(failure)})

    def _run(self) -> None:
        while not self._stopped.wait(BEAT_S):
            try:
                self._beat()
            except Deposed as failure:
                log.error("coordinator is fenced", extra={"cause": str(failure)})  # noqa: TRY400  no defect, no trace
                self.failure = failure
                self._stopped.set()
            except SlackwaterError as failure:
                log.warning("reconciliation failed; retrying", extra={"cause": str(failure)})
                self._stopped.wait(BEAT_S)

    def _beat(self) -> None:
        catalog = self._keeper.catalog.state
        # without the lock: a text that ends its worker may take a minute for it
        self._objects.plans.prepare([*self._due(catalog)], catalog)
        with self._lock:
            # Read under the lock: a definition that is just being executed changes it.
            catalog = self._keeper.catalog.sync()
            self.follow_clusters()
            self._catch_up(catalog)
            observed = self._keeper.instances.observed
            for item in sorted(catalog.dropped.values(), key=lambda item: -item.number):
                if not self._pauses.is_due(item.id):
                    continue
                if has_ended(item, observed, catalog):
                    self._remove(item)
                elif item.id not in self._dropping:
                    self.abolish(item)
            self._keeper.materializing.beat()
        self._history.let_go()
        self._compactions.tell()

    def _catch_up(self, catalog: Catalog) -> None:
        """Create what is missing, and look after the history of what exists.

        Nothing is to be done while the catalog is as it was and all that it names is asked for.
        """
        for item in self._due(catalog):
            self.retry(item)
        seen, count = self._seen
        if catalog is not seen or len(self._asked) != count:
            self._seen = catalog, len(self._asked)
            self._history.look_after(
                item for id_, item in catalog.items.items() if id_ in self._asked
            )

    def _due(self, catalog: Catalog) -> Iterator[Item]:
        """Return what to create now, oldest first, with its inputs.

        A catalog all of whose objects are asked for is not looked through again: only a Drop
        takes one back, and the catalog is another one then.
        """
        if catalog is self._complete:
            return
        if self._asked.issuperset(catalog.items):
            self._complete = catalog
            return
        for item in catalog.ordered():
            is_lacking = item.kind != "errors" and item.id not in self._asked
            is_wanted = is_lacking and self._pauses.is_due(item.id)
            if is_wanted and self._asked.issuperset(item.inputs):
                yield item

    def _remove(self, item: Item) -> None:
        """Remove a dropped object; a failure is retried later. Errors: Deposed."""
        with self._alone(item, "object cannot be removed"):
            self._objects.abolish(item)
            self._keeper.instances.of(item.cluster).forget(item.id)
            self._dropping.discard(item.id)
