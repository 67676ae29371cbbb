"""Compaction as a process of an environment: a round now and then, until told to stop.

It follows every group of the namespace, those that come and go included. The read policy is the
coordinator's, which knows who is reading; here what since allows is merged and reclaimed.
"""

import logging
import threading

from streams.app.compacting import Place, compaction, connected, groups_of, open_groups, worker
from streams.app.service import Service
from streams.compaction.runner import Compaction, Round, Wish
from streams.compaction.work import log_failure
from streams.kafka.topics import Topics

log = logging.getLogger(__name__)


def run(service: Service, stopping: threading.Event) -> int:
    """Compact until told to stop; the exit code."""
    place = Place(service.kafka, service.namespace)
    with (
        connected(place) as (broker, shards),
        compaction(shards, place.kafka, worker(shards)) as job,
    ):
        return rounds(broker.topics, job, service, stopping)


def rounds(topics: Topics, job: Compaction, service: Service, stopping: threading.Event) -> int:
    """Rounds until told to stop: 0; or until the client of shards is of no use any more: 1."""
    while not stopping.wait(service.compact_every_s):
        if job.shards.defect is not None:
            return 1
        try:
            follow(topics, job, service.namespace)
            say(job.run_once(Wish(patient=True)))
        except Exception as error:  # noqa: BLE001  brokers that do not answer; what fails alone is noted
            log_failure("round", error)
    return 0


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
    """What rests when a group cannot be followed."""
    return f"group {group}: opening"


def say(done: Round) -> None:
    """Log what a round did; what failed is in the log already."""
    for each in done.compacted:
        facts = {"collection": each.collection, "batches": each.batches}
        log.info("compacted", extra={**facts, "bytes": each.bytes_written})
    if done.reclaimed:
        log.info("reclaimed", extra={"chunks": len(done.reclaimed)})
