"""System relations as topics, so that sources and views over them have a history.

While a source reads the topic of a relation, the coordinator writes it: one message for each
row that has changed, by key, and a tombstone for a key that has no row any more. All changes of
one look are one transaction. A session begins with what the topics hold, so a coordinator that
starts again writes what is different, and deletes what its predecessor left behind.

Two coordinators may write until one learns that it was succeeded: each session fences the one
before (`Fenced`), and the next session reads again what the topics hold.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import pyarrow as pa

from streams.adapter import system_relations
from streams.adapter.catalog import Catalog
from streams.adapter.system_columns import COLUMNS, KEYS, relation_of
from streams.adapter.system_relations import Row, SystemState
from streams.errors import SlackwaterError
from streams.ids import Offset, Topic
from streams.kafka.client.transactions import OutRecord
from streams.kafka.topics import OffsetRange

Contents = dict[bytes, bytes]
"""The value of each key of a topic."""


class SystemSession(Protocol):
    """A transactional producer (`streams.kafka.client.transactions`)."""

    def init(self) -> None:
        """Begin the session, and fence those before it."""

    def commit(self, records: tuple[OutRecord, ...]) -> None:
        """Make all records visible at once."""

    def close(self) -> None:
        """Release the connections."""


class SystemReader(Protocol):
    """A reader of raw topics (`streams.kafka.client.raw`)."""

    def ends(self, topic: Topic) -> Mapping[int, OffsetRange]:
        """Return the readable range of each partition."""

    def fetch_ranges(
        self, topic: Topic, ranges: Sequence[tuple[int, Offset, Offset]]
    ) -> pa.Table:
        """Return the committed records of ranges, with columns `key` and `value`."""

    def close(self) -> None:
        """Release the connections."""


Connect = Callable[[], tuple[SystemSession, SystemReader]]


def read_by_sources(catalog: Catalog, namespace: str) -> Mapping[str, Topic]:
    """Return the topics that sources read, by the system relations they are of."""
    topics = {item.source.topic for item in catalog.items.values() if item.source is not None}
    named = ((relation_of(topic, namespace), topic) for topic in sorted(topics))
    return {relation: topic for relation, topic in named if relation is not None}


def contents(relation: str, rows: Iterable[Row]) -> Contents:
    """Return the messages of rows: JSON objects, the key's columns in the key alone."""
    keys, columns = KEYS[relation], [column.name for column in COLUMNS[relation]]
    messages: Contents = {}
    for row in rows:
        cells = dict(zip(columns, row, strict=True))
        key = {name: cells.pop(name) for name in keys}
        messages[_json(key)] = _json(cells)
    return messages


def _json(cells: Mapping[str, object]) -> bytes:
    return json.dumps(cells, ensure_ascii=False, separators=(",", ":")).encode()


def changes(topic: Topic, before: Contents, after: Contents) -> Iterator[OutRecord]:
    """Yield the records that make the contents of a topic other contents."""
    for key in before.keys() - after.keys():
        yield OutRecord(topic, key, None)
    for key, value in after.items():
        if before.get(key) != value:
            yield OutRecord(topic, key, value)


class SystemTopics:
    """Writes the topics of system relations that sources read. One thread."""

    def __init__(
        self,
        namespace: str,
        catalog: Callable[[], Catalog],
        state: Callable[[], SystemState],
        connect: Connect,
    ) -> None:
        self._namespace, self._catalog, self._state = namespace, catalog, state
        self._connect = connect
        self._connected: tuple[SystemSession, SystemReader] | None = None
        self._written: dict[Topic, Contents] = {}

    def write(self) -> None:
        """Write what has changed since the last call. Nothing while no source reads it.

        Errors: SlackwaterError; the next call begins a new session.
        """
        topics = read_by_sources(self._catalog(), self._namespace)
        if not topics:
            self.close()
            return
        try:
            self._write(topics)
        except SlackwaterError:
            self.close()
            raise

    def _write(self, topics: Mapping[str, Topic]) -> None:
        session, reader = self._begun()
        for topic in self._written.keys() - set(topics.values()):
            del self._written[topic]  # its source was dropped; another one may come
        for topic in set(topics.values()) - self._written.keys():
            self._written[topic] = _held(reader, topic)
        state, records = self._state(), list[OutRecord]()
        for relation, topic in topics.items():
            now = contents(relation, system_relations.rows(relation, state))
            records += changes(topic, self._written[topic], now)
            self._written[topic] = now
        if records:
            session.commit(tuple(records))

    def _begun(self) -> tuple[SystemSession, SystemReader]:
        if self._connected is None:
            self._connected = self._connect()
            self._connected[0].init()
        return self._connected

    def close(self) -> None:
        """End the session."""
        self._written.clear()
        connected, self._connected = self._connected, None
        for client in connected or ():
            with suppress(SlackwaterError):
                client.close()


def _held(reader: SystemReader, topic: Topic) -> Contents:
    """Return what a topic holds. Errors: Determinate."""
    ranges = [(number, low, high) for number, (low, high) in reader.ends(topic).items()]
    table = reader.fetch_ranges(topic, [range_ for range_ in ranges if range_[1] < range_[2]])
    held: Contents = {}
    for key, value in zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True):
        if key is None:
            continue  # nothing of ours: what has no key is never compacted, and never a row
        if value is None:
            held.pop(key, None)
        else:
            held[key] = value
    return held
