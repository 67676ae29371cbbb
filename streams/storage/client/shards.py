"""The client of many groups: create them, follow them, append to them, wait for them.

Its state is only what it has read back from the logs, so two clients disagree for at most the
time of a poll. `submit` sends events of many groups with one flush and returns their outcomes:
they are durable, and decided, when the call returns. A produce whose result is unknown is
repeated unchanged; the log counts it once (rule 1).

A group holds one collection or several; the tables share one. Collections are looked up by id.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from schemas import chunk
from streams.errors import Determinate, InvalidUsage
from streams.ids import CapabilityId, CollectionId, Offset, Timestamp, Topic
from streams.kafka.log import ChunkRef, Chunks, ChunkWrite, Logs
from streams.kafka.topics import MAXIMUM_RECORD_BYTES, TopicKind, Topics, TopicSpec, is_name
from streams.storage.client.bootstrap import recover
from streams.storage.client.follower import PATIENCE_MS, GroupFollower
from streams.storage.client.group import MADE_ANEW, Group, GroupTopics, lost_records, names_of
from streams.storage.client.lifecycle import description_of
from streams.storage.client.named_locks import NamedLocks
from streams.storage.client.status import ClientStatus
from streams.storage.client.submit import RESEND_MS, Attempt, Submitter
from streams.storage.client.waiters import Callback, Groups
from streams.storage.description import Description, dumps
from streams.storage.limits import TooLarge
from streams.storage.log.column_stats import with_ranges
from streams.storage.log.events import Body, Create, Drop, write_capability
from streams.storage.log.outcomes import Created, Outcome, Refused, Unavailable
from streams.storage.log.state import CollectionState, State

MAXIMUM_BODY_BYTES = MAXIMUM_RECORD_BYTES - (1 << 10)
"""Largest chunk in bytes; its record has a key and headers, too."""

MARKS_MS = 1_000
"""How long to wait for a record before asking whether there is one."""

MOST_LOOKS = 8
"""Number of logs asked at once: a transaction marker is rare, a slow broker is not."""

__all__ = ["Shards", "fresh_uuid", "write_capability"]


def fresh_uuid() -> str:
    """Return a random UUID."""
    return uuid.uuid4().hex


class Shards:
    """A client; may be shared by many threads."""

    def __init__(  # noqa: PLR0913  # dependencies, passed by name from the composition root
        self,
        logs: Logs,
        chunks: Chunks,
        topics: Topics,
        *,
        namespace: str = "sw",
        now_ms: Callable[[], int],
        pump: bool = False,
        new_id: Callable[[], str] = fresh_uuid,
        data_partitions: int = 1,
        resend_ms: Sequence[int] = RESEND_MS,
    ) -> None:
        self._topics = topics
        self.chunks = chunks
        self.logs = logs
        self.following = GroupFollower(logs, self._identity, pump=pump, reopened=self._reopened)
        self._opening = NamedLocks()
        self.namespace = namespace
        self._now_ms = now_ms
        self._sending = Submitter(logs, self.following, new_id, tuple(resend_ms))
        self._partitions = data_partitions

    def _identity(self, topic: Topic) -> str | None:
        if not is_name(topic):  # a broker would reject the request
            return None
        info = self._topics.describe(topic)
        return info.id if info is not None else None

    def create(
        self,
        group: str,
        collection: CollectionId,
        description: Description | str,
        since: Timestamp,
        *,
        write: CapabilityId | None = None,
        read: CapabilityId | None = None,
    ) -> CollectionState:
        """Create a collection, and its group's topics if needed. Idempotent.

        Since and upper start at `since`. `write` defaults to `write_capability`.

        Errors: InvalidUsage if the id is bound to something else or was dropped.
        """
        followed = self.following.groups.get(group)
        if followed is None or followed.failure:
            self.make(group)
        text = description if isinstance(description, str) else dumps(description)
        writer = write or write_capability(collection)
        body = Create(
            collection=collection, description=text, frontier=since, write=writer, read=read
        )
        outcome = self.submit([(group, body)])[0]
        if not isinstance(outcome, Created | Unavailable):
            reason = outcome.reason if isinstance(outcome, Refused) else outcome
            raise InvalidUsage(f"collection {collection} cannot be created: {reason}")
        return self.state(collection)

    def make(self, group: str) -> None:
        """Create a group's topics, unless they exist, and follow the group.

        Errors: InvalidUsage if the topics exist with wrong settings.
        """
        names = names_of(self.namespace, group)
        specs = [
            TopicSpec(names.log, 1, TopicKind.LOG),
            TopicSpec(names.data, self._partitions, TopicKind.DATA),
        ]
        self._topics.create(specs)
        self.open(group)

    def identity(self, group: str) -> str | None:
        """The id of the group's log topic, open or not; None if there is no such group."""
        return self._identity(names_of(self.namespace, group).log)

    def open(self, *groups: str) -> None:
        """Follow groups, each folded to the present end of its log; open ones stay open.

        A failed group is reopened.

        Errors: InvalidUsage if there is no such group; Truncated, Corrupt, Determinate.
        """
        wanted = dict.fromkeys(groups)
        with self._opening.of(wanted):
            for name in wanted:
                self.following.heal(name)
            fresh = self._found(
                [group for group in wanted if group not in self.following.groups]
            )
            recover(self.logs, self.chunks, fresh)
            for group in fresh:
                self.following.follow(group)

    def _found(self, groups: Sequence[str]) -> list[Group]:
        every = [names_of(self.namespace, group) for group in groups]
        infos = self._topics.describe_all([names.log for names in every])
        for names in every:
            if names.log not in infos:
                raise InvalidUsage(f"group {names.group}: there is no topic {names.log}")
        ids = [infos[names.log].id for names in every]
        return [
            Group(names, topic_id=id_, uuid=id_) for names, id_ in zip(every, ids, strict=True)
        ]

    def _reopened(self, old: Group) -> Group:
        """Return a group recovered from its topics, in place of one that cannot be followed.

        Errors: Truncated if its log lost records that were folded; as `open`.
        """
        names, upto = old.names, old.state.upto
        (fresh,) = self._found([names.group])
        if fresh.topic_id != old.topic_id:
            raise lost_records(names.log, upto, MADE_ANEW)
        recover(self.logs, self.chunks, [fresh])
        if fresh.state.upto < upto:
            raise lost_records(names.log, upto, f"it ends at offset {fresh.state.upto + 1}")
        return fresh

    def close(self, group: str | None = None) -> None:
        """Stop following a group; without a name, stop following all and shut down."""
        if group is None:
            self.following.close()
        else:
            self.following.leave(group)

    def drop(self, collection: CollectionId) -> Outcome:
        """Drop a collection: it becomes unreadable, and its id is never used again."""
        return self.submit([(self.group_of(collection), Drop(collection))])[0]

    def grow(self, group: str, partitions: int) -> None:
        """Extend a group's data topic to this number of partitions.

        Errors: Determinate, Indeterminate.
        """
        self._topics.grow(self.names(group).data, partitions)

    def delete(self, group: str) -> None:
        """Delete a group's topics with all records.

        Call `Directory.retire` first, or the ids of the group count as lost.
        """
        self.following.leave(group)
        names = names_of(self.namespace, group)
        self._topics.delete([names.log, names.data])

    def groups(self) -> tuple[str, ...]:
        """The groups that are open and have not failed."""
        return tuple(
            name for name, group in list(self.following.groups.items()) if not group.failure
        )

    def names(self, group: str) -> GroupTopics:
        """The topics of a group."""
        return names_of(self.namespace, group)

    def data_topic(self, collection: CollectionId) -> Topic:
        """Return the topic of a collection's chunks.

        Errors: InvalidUsage if it is not in an open group.
        """
        return self.names(self.group_of(collection)).data

    def group_of(self, collection: CollectionId) -> str:
        """Return the open group that holds a collection.

        Errors: InvalidUsage if none does; the group's failure.
        """
        home = self.following.home(collection)
        if home is not None:
            return self.following.group(home).names.group
        raise InvalidUsage(f"collection {collection} is in no open group")

    def state(self, collection: CollectionId) -> CollectionState:
        """Return a collection as folded so far.

        Errors: InvalidUsage if it is not in an open group; the group's failure.
        """
        return self.following.group(self.group_of(collection)).state.collections[collection]

    def group_state(self, group: str) -> State:
        """Return a group's folded state. Errors: as `state`."""
        return self.following.group(group).state

    def skew_ms(self, group: str) -> int:
        """Return how far the local clock is ahead of the newest record's append time.

        It is meaningful right after a `submit` to the group: then both times are of the same
        moment.
        """
        return self._now_ms() - self.following.group(group).last_at_ms

    @property
    def defect(self) -> Exception | None:
        """The internal error that stopped the follower, if any: only a new process helps."""
        return self.following.defect

    def status(self) -> ClientStatus:
        """The status of the brokers, and the failed groups with their reasons."""
        return self.following.status()

    def wait(
        self, predicate: Callable[[], bool], timeout_ms: int, groups: Groups | None = None
    ) -> bool:
        """Wait for the predicate; return whether it came true in time. Each fold evaluates it.

        A predicate about some `groups` only should name them, and has to be quick.
        """
        return self.following.wait(predicate, timeout_ms, groups)

    def subscribe(self, callback: Callback, group: str | None = None) -> Callable[[], None]:
        """Call back with the names of groups that moved; return a function that unsubscribes.

        With a `group`, only if that one is among them. The callback runs in the folding thread:
        it must be short and must not wait for a fold.
        """
        return self.following.subscribe(callback, group)

    def sync(self, collection: CollectionId | None = None) -> None:
        """Wait until all records that the logs held at the call are folded.

        Without a collection, for all groups that have not failed.

        Errors: Truncated if a log ends before what was folded, Determinate if it cannot be read
        to its end; the group's failure.
        """
        names = self.groups() if collection is None else (self.group_of(collection),)
        self._await_folded(self._last_offsets(names))

    def sync_group(self, group: str) -> None:
        """Like `sync`, for one group. Errors: as `sync`."""
        self._await_folded(self._last_offsets((group,)))

    def _last_offsets(self, groups: Sequence[str]) -> Mapping[str, Offset]:
        # read before the logs' ends: a log that ends before this offset has lost folded records
        folded = {group: self.following.group(group).state.upto for group in groups}
        logs = {group: self.names(group).log for group in groups}
        bounds = self.logs.bounds_all(list(logs.values()))
        return {
            group: self._last_offset(logs[group], folded[group], bounds[logs[group]][1])
            for group in groups
        }

    def _last_offset(self, log: Topic, folded: Offset, end: Offset) -> Offset:
        if end <= folded:
            failure = lost_records(log, folded, f"it ends at offset {end}")
            failure = self.following.explained(failure)
            self.following.fail(log, failure)
            raise failure
        return Offset(end - 1)

    def _await_folded(self, upto: Mapping[str, Offset]) -> None:
        def done() -> bool:
            return all(self.following.group(name).state.upto >= upto[name] for name in upto)

        if not self.following.wait(done, MARKS_MS, upto.keys()):
            self._pass_marks(upto)
        if not self.following.await_answered(done, upto.keys()):
            raise Determinate(f"logs were not read to {dict(upto)} in {PATIENCE_MS} ms")

    def _pass_marks(self, upto: Mapping[str, Offset]) -> None:
        """Reopen groups whose logs end with a transaction marker: no record is delivered."""
        folded = {group: self.following.group(group).state.upto for group in upto}
        late = [group for group in upto if folded[group] + 1 == upto[group]]
        for name in late[:MOST_LOOKS]:
            log = self.names(name).log
            if self.logs.is_bare(log, upto[name]):
                cause = Determinate(f"log {log} ends with a transaction marker")
                self.following.reopen(name, cause)

    def headers(self, collection: CollectionId) -> Mapping[str, bytes]:
        """Return the headers of the chunks of a collection."""
        uuid_ = self.following.group(self.group_of(collection)).uuid
        return {"group": uuid_.encode(), "collection": collection.encode()}

    def write(
        self, collection: CollectionId, updates: pa.Table, errors: pa.Table | None = None
    ) -> tuple[ChunkRef, ...]:
        """Write updates as chunks, to be linked by an Append.

        Shape: `updates` has columns c0 .. cn, time, diff; `errors` error, time, diff. Errors:
        InvalidUsage if a single row is larger than a record can be.
        """
        body = self._chunks_of(collection, updates, errors)
        if not body.bodies:
            return ()
        refs = self.chunks.write(*body)
        return with_ranges(refs, updates)

    def write_all(
        self, writes: Sequence[tuple[CollectionId, pa.Table]]
    ) -> list[tuple[ChunkRef, ...]]:
        """Like `write`, for many collections with one flush.

        Shape: each as `updates`. Errors: as `write`; then nothing was written.
        """
        wanted = [self._chunks_of(collection, updates) for collection, updates in writes]
        stored = self.chunks.write_all(wanted)
        return [
            with_ranges(refs, updates)
            for refs, (_, updates) in zip(stored, writes, strict=True)
        ]

    def _chunks_of(
        self, collection: CollectionId, updates: pa.Table, errors: pa.Table | None = None
    ) -> ChunkWrite:
        names = description_of(self.state(collection)).names
        bodies = chunk.encode(updates, names, errors)
        # more than one row is never too large
        largest = max((len(body) for body, _ in bodies), default=0)
        if largest > MAXIMUM_BODY_BYTES:
            advice = "split it or keep its largest value elsewhere"
            what = f"bytes of a packed row of collection {collection} ({advice})"
            raise TooLarge(what, MAXIMUM_BODY_BYTES, largest)
        return ChunkWrite(self.data_topic(collection), bodies, self.headers(collection))

    def submit(self, events: Sequence[tuple[str, Body]]) -> list[Outcome]:
        """Append events to the logs of their groups; return the outcome of each.

        One flush for all; they are durable and decided when this returns, except those of a
        failed group, which are `Unavailable`.

        Errors: Determinate (nothing was appended), Indeterminate (not read back in time),
        InvalidUsage if a group is not open.
        """
        return self._sending.submit(events)

    def attempt(self, attempts: Sequence[Attempt]) -> list[Outcome]:
        """Like `submit`, with caller-supplied ids; a stale event is `Stale`, not re-sent."""
        return self._sending.attempt(attempts)
