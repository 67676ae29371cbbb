"""Compaction as a process of an environment: periodic rounds, until stopped.

Merges have a thread of their own: however long one takes, logs are rolled up and truncated, and
garbage is reclaimed beside it.

It follows every group of the namespace, those that come and go included. The read policy is the
coordinator's, which knows who is reading; here what since allows is merged and reclaimed.
"""

import logging
import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Self

from streams.app import compaction_metrics
from streams.app.compaction_metrics import Stored, measured
from streams.app.compaction_setup import (
    CompactionTarget,
    compaction,
    connected,
    groups_of,
    open_groups,
    worker,
)
from streams.app.endpoint import probed
from streams.app.service_config import Service
from streams.app.service_process import now_ms
from streams.app.signals import Stop
from streams.compaction.merge_execution import log_failure
from streams.compaction.runner import Compaction, CompactionRequest, RoundResult
from streams.http.metrics import exposition
from streams.http.server import Probes
from streams.kafka.client.positions import KafkaPositions
from streams.kafka.topics import Topics

log = logging.getLogger(__name__)

LEAST_PAUSE_S = 1.0
"""The least time between two rounds, whatever is configured and however a round ends."""


def run(service: Service, stopping: Stop) -> int:
    """Compact until stopped; the exit code."""
    place = CompactionTarget(service.kafka, service.namespace)
    group = f"{service.namespace}.compaction"
    counts = Counts()
    with (
        probed(service, Probes(why_not_ready=counts.why_not_ready, metrics=counts.text)),
        connected(place) as (broker, shards),
        closing(KafkaPositions(place.kafka, group)) as positions,
        compaction(shards, place.kafka, worker(shards, stopping.is_set), positions) as job,
    ):
        counts.is_ready = True
        return rounds(broker.topics, job, service, stopping, counts)


def rounds(
    topics: Topics, job: Compaction, service: Service, stopping: Stop, counts: "Counts"
) -> int:
    """Rounds until stopped: 0; or until the client of shards is of no use any more: 1."""
    pause_s = max(LEAST_PAUSE_S, service.compact_every_s)
    with Merges(job, counts) as merges:
        while not stopping.wait(pause_s):
            if job.shards.defect is not None:
                return 1
            try:
                follow(topics, job, service.namespace)
                say(job.tidy(CompactionRequest()), counts)
                counts.rounds += 1
                counts.stored = measured(job.shards)
                counts.last_ms = now_ms()
            except Exception as error:  # noqa: BLE001  brokers that do not answer; it is tried again
                counts.failures += 1
                log_failure("round", error)
            merges.begin()
    return 0


class Merges:
    """Merges, in a thread of their own: a large one takes hours, and Rollups do not wait.

    Garbage is looked for before a round's merges begin, not behind them: a floor above chunks
    that were written a moment ago would make a writer in the middle of an append try again.
    """

    def __init__(self, job: Compaction, counts: "Counts") -> None:
        self._job, self._counts = job, counts
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the merges that are due, unless the last ones are still running."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._merge, name="merges", daemon=True)
            self._thread.start()

    def _merge(self) -> None:
        try:
            say(self._job.merge(CompactionRequest()), self._counts)
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


@dataclass(slots=True)
class Counts:
    """What compaction has done since the process began. Each number has one writing thread.

    Rounds and what they reclaim are counted by the one, merges by the other.
    """

    is_ready: bool = False
    rounds: int = 0
    last_ms: int | None = None
    merges: int = 0
    merged_bytes: int = 0
    reclaimed_chunks: int = 0
    failures: int = 0
    stored: Mapping[str, Stored] = field(default_factory=dict)
    """What each collection has stored, by its id; as it was after the last round."""

    def why_not_ready(self) -> str:
        """Empty once the groups of the namespace are followed."""
        return "" if self.is_ready else "the groups of the namespace are not followed yet"

    def text(self) -> str:
        """The numbers for Prometheus."""
        return exposition(compaction_metrics.of_compaction(self))


def say(done: RoundResult, counts: Counts) -> None:
    """Log and count what a round did; what failed is in the log already."""
    counts.failures += len(done.failed)
    for merge in done.compacted:
        counts.merges += 1
        counts.merged_bytes += merge.bytes_written
        facts = {"collection": merge.collection, "batches": merge.batches}
        log.info("compacted", extra={**facts, "bytes": merge.bytes_written})
    if done.reclaimed:
        counts.reclaimed_chunks += len(done.reclaimed)
        log.info("reclaimed", extra={"chunks": len(done.reclaimed)})
    for group in done.removed:
        log.info(
            "topics of a group deleted: all its collections were dropped",
            extra={"group": group},
        )
