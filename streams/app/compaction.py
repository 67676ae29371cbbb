"""Compaction as a process of an environment: periodic rounds, until stopped.

Merges have a thread of their own: however long one takes, logs are rolled up and truncated, and
garbage is reclaimed beside it.

It follows every group of the namespace, those that come and go included. The read policy is the
coordinator's, which knows who is reading; here what since allows is merged and reclaimed.
"""

import logging
import threading
from contextlib import closing
from typing import Self

from streams.app.compaction_setup import (
    CompactionTarget,
    compaction,
    connected,
    groups_of,
    open_groups,
    worker,
)
from streams.app.service_config import Service
from streams.app.signals import Stop
from streams.compaction.merge_execution import log_failure
from streams.compaction.runner import Compaction, RoundResult, Wish
from streams.kafka.client.positions import KafkaPositions
from streams.kafka.topics import Topics

log = logging.getLogger(__name__)


def run(service: Service, stopping: Stop) -> int:
    """Compact until stopped; the exit code."""
    place = CompactionTarget(service.kafka, service.namespace)
    group = f"{service.namespace}.compaction"
    with (
        connected(place) as (broker, shards),
        closing(KafkaPositions(place.kafka, group)) as positions,
        compaction(shards, place.kafka, worker(shards, stopping.is_set), positions) as job,
    ):
        return rounds(broker.topics, job, service, stopping)


def rounds(topics: Topics, job: Compaction, service: Service, stopping: Stop) -> int:
    """Rounds until stopped: 0; or until the client of shards is of no use any more: 1."""
    with Merges(job) as merges:
        while not stopping.wait(service.compact_every_s):
            if job.shards.defect is not None:
                return 1
            try:
                follow(topics, job, service.namespace)
                say(job.tidy(Wish()))
            except Exception as error:  # noqa: BLE001  brokers that do not answer; it is tried again
                log_failure("round", error)
            merges.begin()
    return 0


class Merges:
    """Merges, in a thread of their own: a large one takes hours, and Rollups do not wait.

    Garbage is looked for before a round's merges begin, not behind them: a floor above chunks
    that were written a moment ago would make a writer in the middle of an append try again.
    """

    def __init__(self, job: Compaction) -> None:
        self._job = job
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the merges that are due, unless the last ones are still running."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._merge, name="merges", daemon=True)
            self._thread.start()

    def _merge(self) -> None:
        try:
            say(self._job.merge(Wish()))
        except Exception as error:  # noqa: BLE001  as in `rounds`
            log_failure("merges", error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for what is going on; asked to stop, that is one piece of one merge."""
        if self._thread is not None:
            self._thread.join()


def follow(topics: Topics, job: Compaction, namespace: str) -> None:
    """Follow the groups that there are now; failed ones are opened again after their rest."""
    shards, rests = job.shards, job.rests
    present = groups_of(namespace, topics.names())
    healthy = set(shards.groups()).intersection(present)
    for name in list(shards.following.groups):
        if name not in healthy:
            shards.close(name)
    missing = [name for name in present if name not in healthy and rests.is_due(opening(name))]
    failures = open_groups(shards, missing)
    for name in missing:
        why = failures.get(name)
        if why is None:
            rests.worked(opening(name))
        else:
            log.warning("group cannot be followed", extra={"group": name, "cause": why})
            rests.failed(opening(name))


def opening(group: str) -> str:
    """The work that is paused when a group cannot be followed."""
    return f"group {group}: opening"


def say(done: RoundResult) -> None:
    """Log what a round did; what failed is in the log already."""
    for merge in done.compacted:
        facts = {"collection": merge.collection, "batches": merge.batches}
        log.info("compacted", extra={**facts, "bytes": merge.bytes_written})
    if done.reclaimed:
        log.info("reclaimed", extra={"chunks": len(done.reclaimed)})
    for group in done.removed:
        log.info(
            "topics of a group deleted: all its collections were dropped",
            extra={"group": group},
        )
