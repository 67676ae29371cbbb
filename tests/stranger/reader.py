"""A reader of collections with no server running, as a stranger writes one from the page.

It folds a group's log, fetches chunks and clips them: `schemas/CLIENTS.md`, part 4.
"""

import hashlib
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.stranger import chunk, wire
from tests.stranger.fold import Fold
from tests.stranger.values import EMPTY, Record, later

LAST = (1 << 63) - 1  # what is written for ever has earlier times


class Missing(Exception):
    """A chunk is not there any more as it was meant."""


class Failing(Exception):
    """The collection has errors at the time that was asked for."""


def begin(values: Iterable[bytes], first: int, fetch: Callable[[Record], bytes]) -> Fold:
    """The state from which the records of a log, the first at offset `first`, are folded on.

    It lies before the furthest rollup, which the fold then checks; only where nothing before it
    can be read is that one believed. One that does not count has chunks that nobody keeps.
    """
    events = map(wire.decode, filter(wire.is_known, values))
    rollups = [event for name, event in events if name == "shard_rollup"]
    reaching = [rollup for rollup in rollups if rollup["upto"] + 1 >= first]
    furthest = max((rollup["upto"] for rollup in reaching), default=-1)
    bodies = {rollup["upto"]: body for rollup in reaching if (body := body_of(rollup, fetch))}
    before = max((upto for upto in bodies if upto < furthest), default=-1)
    fold = Fold()
    if before >= 0:
        fold.load(bodies[before])
    elif first > 0:
        assert bodies, f"records before {first} are lost"
        fold.load(bodies.pop(furthest))
    fold.expected = bodies
    return fold


def skipped(records: Iterable[tuple[int, bytes]]) -> dict[int, int | None]:
    """What operators have everybody pass over: the CRC-32 of the value by offset (4.7)."""
    offsets: dict[int, int | None] = {}
    for offset, value in records:
        name, event = wire.decode(value) if wire.is_known(value) else ("", {})
        if name == "shard_skip" and event["offset"] < offset:
            offsets.setdefault(event["offset"], event["checksum"])
    return offsets


def forward(
    fold: Fold, skips: dict[int, int | None], offset: int, at_ms: int | None, value: bytes
) -> None:
    """Fold one record more, unless the rollup covers it or it is to be passed over.

    `at_ms` is the broker's append time, None if the record has none.
    """
    if offset <= fold.upto:
        return
    reach(fold, skips, offset)
    if offset in skips and skips[offset] == zlib.crc32(value):
        fold.pass_over(offset)
    else:
        assert at_ms is not None, "not the broker's append time"
        fold.step(offset, at_ms, value)


def reach(fold: Fold, skips: dict[int, int | None], end: int) -> None:
    """Pass over offsets before `end` without a record: one, or all that are named (4.7)."""
    gap = range(fold.upto + 1, end)
    assert len(gap) <= 1 or all(offset in skips for offset in gap), "records are missing"
    for offset in gap:
        fold.pass_over(offset)


def body_of(rollup: Record, fetch: Callable[[Record], bytes]) -> Record | None:
    """The state that a rollup holds; None when its chunks are not all there."""
    try:
        body = b"".join(fetch(chunk) for chunk in rollup["chunks"])
    except Missing:
        return None
    if hashlib.sha256(body).hexdigest() != rollup["hash"]:
        return None
    state = wire.decode(body)[1]
    return state if state["upto"] == rollup["upto"] else None


class Reader:
    """Reads collections from the topics alone."""

    def __init__(self, bootstrap: str, namespace: str) -> None:
        self._namespace = namespace
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "stranger",
                "enable.auto.commit": False,
                "isolation.level": "read_uncommitted",  # the order of offsets alone decides
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
            }
        )
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._topics: dict[str, str] = {}  # ids of logs
        self._partitions: dict[str, set[int]] = {}
        self.folds: dict[str, Fold] = {}

    def fold(self, group: str) -> Fold:
        """The group's state, folded to the end that its log has now."""
        log = f"{self._namespace}.{group}.log"
        low, high = self._consumer.get_watermark_offsets(TopicPartition(log, 0), timeout=30)
        fold = self.folds.get(group)
        self._check_same(log)
        assert fold is None or fold.upto < high, f"{log} ends before what was read of it"
        if fold is not None and fold.upto + 1 < low:
            fold = None  # what follows was deleted meanwhile: begin at a rollup
        records = self._records(log, low if fold is None else fold.upto + 1, high)
        skips = skipped((record.offset(), record.value()) for record in records)
        if fold is not None and fold.has_folded(skips):
            del self.folds[group]
            return self.fold(group)
        if fold is None:
            data = f"{self._namespace}.{group}.data"
            values = [record.value() for record in records if record.offset() not in skips]
            fold = begin(values, low, lambda ref: self.chunk(data, ref))
            self.folds[group] = fold
        for message in records:
            kind, at_ms = message.timestamp()
            is_brokers = kind == TIMESTAMP_LOG_APPEND_TIME
            forward(
                fold, skips, message.offset(), at_ms if is_brokers else None, message.value()
            )
        reach(fold, skips, high)
        return fold

    def _check_same(self, topic: str) -> None:
        """A topic that was made anew has another id: what was read is of another."""
        future = self._admin.describe_topics(TopicCollection([topic]), request_timeout=30)
        id_ = str(future[topic].result().topic_id)
        assert self._topics.setdefault(topic, id_) == id_, f"{topic} was made anew"

    def _has_partition(self, topic: str, partition: int) -> bool:
        """Whether the topic has it; asked for when it is not known, for there may be more."""
        if partition not in self._partitions.get(topic, ()):
            topics = self._consumer.list_topics(topic, timeout=30).topics[topic]
            self._partitions[topic] = set(topics.partitions)
        return partition in self._partitions[topic]

    def _records(self, topic: str, start: int, end: int) -> list[Any]:
        updates: list[Any] = []
        if start >= end:
            return updates
        self._consumer.assign([TopicPartition(topic, 0, start)])
        next_ = start
        while next_ < end:
            for message in self._consumer.consume(1000, 1):
                offset = message.offset() or 0
                if message.error() is not None:
                    next_ = max(next_, offset)  # the end: of transactions only marks are left
                elif offset < end:
                    updates.append(message)
                    next_ = offset + 1
        self._consumer.unassign()
        return updates

    def chunk(self, topic: str, ref: Record) -> bytes:
        """A chunk's bytes, which have to be those that were meant."""
        if not self._has_partition(topic, ref["partition"]):
            raise Missing(f"{topic} has no partition {ref['partition']}")
        self._consumer.assign([TopicPartition(topic, ref["partition"], ref["offset"])])
        message = None
        while message is None:
            message = self._consumer.poll(1)
        self._consumer.unassign()
        body = message.value()
        is_there = message.error() is None and message.offset() == ref["offset"]
        if not is_there or message.key() != ref["key"].encode() or body is None:
            raise Missing(f"{topic}/{ref['partition']}@{ref['offset']}")
        if zlib.crc32(body) != ref["checksum"]:
            raise Missing(f"{topic}/{ref['partition']}@{ref['offset']}: damaged")
        return body

    def updates(
        self, group: str, id_: str, since: int, lower: int, upper: int
    ) -> pa.Table | None:
        """Every update at times in [lower, upper), all of one state; None when there are none.

        They add up as long as the collection can be read at `since`.
        """
        topic = f"{self._namespace}.{group}.data"
        selected = pieces(self.folds[group].collections[id_], since, lower, upper)
        while True:
            try:
                parts = [clipped(self.chunk(topic, c), *bounds) for c, bounds in selected]
                return chunk.same_types(parts)
            except Missing:
                newest = pieces(self.fold(group).collections[id_], since, lower, upper)
                if newest == selected:
                    raise
                selected = newest

    def snapshot(self, group: str, id_: str, as_of: int) -> dict[tuple[Any, ...], int]:
        """How often each row is there at a time."""
        collection = self.fold(group).collections[id_]
        assert as_of < later(collection["upper"]), "not yet known"
        return counted(self.updates(group, id_, as_of, 0, as_of + 1), with_time=False)

    def listen(self, group: str, id_: str, after: int) -> dict[tuple[Any, ...], int]:
        """What changed at later times, as far as it is known: by row and time.

        There is nothing before time 0: since 0 is early enough for all that ever changed.
        """
        collection = self.fold(group).collections[id_]
        upper = LAST if collection["upper"] is EMPTY else collection["upper"]
        updates = self.updates(group, id_, max(after, 0), after + 1, upper)
        return counted(updates, with_time=True)

    def close(self) -> None:
        self._consumer.close()


def pieces(
    collection: Record, since: int, lower: int, upper: int
) -> list[tuple[Record, tuple[int, int]]]:
    """The chunks that hold times of [lower, upper), each with the interval it is clipped to."""
    assert later(collection["since"]) <= since, "compacted"
    spans = [
        (batch, max(lower, batch["lower"]), min(upper, later(batch["upper"])))
        for batch in collection["batches"]
    ]
    return [
        (chunk, (begin, end))
        for batch, begin, end in spans
        if begin < end
        for chunk in batch["chunks"]
    ]


def clipped(body: bytes, lower: int, upper: int) -> pa.Table:
    """The rows of a chunk at times in [lower, upper)."""
    rows = chunk.opened(body)
    times = rows.column("time")
    return rows.filter(pc.and_(pc.greater_equal(times, lower), pc.less(times, upper)))


def counted(rows: pa.Table | None, *, with_time: bool) -> dict[tuple[Any, ...], int]:
    """Diffs summed; what comes to nothing is not there. Errors: Failing."""
    total: dict[tuple[Any, ...], int] = {}
    errors: dict[str, int] = {}
    for row in [] if rows is None else rows.to_pylist():
        if row["error"] is not None:
            errors[row["error"]] = errors.get(row["error"], 0) + row["diff"]
            continue
        key = (*row["data"].values(), *([row["time"]] if with_time else []))
        total[key] = total.get(key, 0) + row["diff"]
    if any(errors.values()):
        raise Failing(sorted(text for text, count in errors.items() if count))
    return {key: count for key, count in total.items() if count}
