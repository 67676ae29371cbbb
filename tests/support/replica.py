"""A replica without Spark: it speaks the protocol, and writes what a test tells it."""

import itertools
import threading
import time
from collections.abc import Sequence

import pyarrow as pa

from streams.compute.controller import command_topic, response_topic
from streams.compute.description import DataflowDescription
from streams.compute.protocol import Alive, Frontiers, Reconciled, Response, Status
from streams.compute.reader import CommandReader, UnreadableCommand
from streams.compute.session import Action, Create, Drop, Reconcile, Restart, Session
from streams.compute.writer import ResponseWriter
from streams.copies.targets import NOWHERE, CopyTargets
from streams.ids import CollectionId, Topic
from streams.kafka.log import Logs
from streams.kafka.memory.logs import MemoryBroker
from streams.progress import EMPTY, frontier
from streams.replica.peeks.loop import PeekLoop
from streams.storage.client.shards import Shards
from streams.storage.log.events import Append, Part
from streams.storage.log.outcomes import Appended
from streams.trace.kernel.kernel import arrow_schema

_names = itertools.count()
ALIVE_EVERY_S = 2.0


class FakeReplica:
    """Follows the commands in a thread of its own."""

    def __init__(
        self, logs: Logs, shards: Shards, namespace: str = "sw", cluster: str = "default"
    ) -> None:
        self.shards, self.cluster = shards, cluster
        self._reader = CommandReader(logs, command_topic(namespace, cluster))
        responses: Topic = response_topic(namespace, cluster)
        self._writer = ResponseWriter(logs, responses, f"fake-{next(_names)}")
        self.session = Session()
        self.created: list[DataflowDescription] = []
        self.dropped: list[CollectionId] = []
        self.peeks: PeekLoop | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> "FakeReplica":
        self._thread.start()
        return self

    def answer_peeks(
        self, broker: MemoryBroker, namespace: str = "sw", copy_to: CopyTargets = NOWHERE
    ) -> None:
        """Answer peeks, and keep the indexes that are created from now on."""
        topic = command_topic(namespace, self.cluster)
        _, started = broker.logs.bounds(topic)

        def shards_of(name: str) -> Shards:
            return Shards(
                broker.logs,
                broker.chunks,
                broker.topics,
                namespace=name,
                now_ms=lambda: 0,
                pump=True,
            )

        reader = CommandReader(broker.logs, topic)
        self.peeks = PeekLoop(
            reader, started, self._writer, "fake", shards_of, 1 << 30, copy_to=copy_to
        )

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        if self.peeks is not None:
            self.peeks.close()

    def _run(self) -> None:
        due = 0.0
        while not self._stopped.is_set():
            if self.session.nonce and time.monotonic() >= due:
                self.say(Alive())
                due = time.monotonic() + ALIVE_EVERY_S
            if self.peeks is not None and self.session.is_initialized:
                for response in self.peeks.indexes.responses():
                    self.say(response)
            for message in self._reader.poll(20):
                assert not isinstance(message.command, UnreadableCommand), message
                self.session, actions = self.session.step(message.command)
                for action in actions:
                    self._act(action)
                if self._stopped.is_set():
                    return

    def _act(self, action: Action) -> None:
        match action:
            case Create(description) if description.kind == "index":
                self.created.append(description)
                if self.peeks is not None:
                    self.peeks.indexes.create(description)
            case Create(description):
                self.created.append(description)
                self.say(Status(description.export, "running"))
            case Drop(export, silent):
                self.dropped.append(export)
                if self.peeks is not None:
                    self.peeks.indexes.drop(export)
                self.shards.close(export)
                if not silent:
                    self.say(Frontiers(export, EMPTY, EMPTY))
            case Reconcile(kept, created, dropped):
                if self.peeks is not None:
                    self.peeks.indexes.repeat()
                self.say(Reconciled(len(kept), created, dropped))
            case Restart():
                self._stopped.set()
            case _:
                pass

    def say(self, response: Response) -> None:
        self._writer.write(self.session.nonce, [response])

    def append(
        self,
        export: str,
        upper: int | None,
        updates: Sequence[tuple[tuple[object, ...], int, int]] = (),
        errors: Sequence[tuple[str, int, int]] = (),
    ) -> None:
        """Append (row, time, diff) updates, and errors, from the shard's upper to `upper`.

        None is the end of time: the shard is sealed.
        """
        until = EMPTY if upper is None else frontier(upper)
        collection = CollectionId(export)
        description = next(
            description for description in self.created if description.export == collection
        )
        self.shards.open(description.group)
        schema = arrow_schema([column.type for column in description.columns])
        columns = [
            *([row[index] for row, _, _ in updates] for index in range(len(schema) - 2)),
            [time for _, time, _ in updates],
            [diff for _, _, diff in updates],
        ]
        arrays = [
            pa.array(values, field.type) if values else pa.nulls(0, field.type)
            for values, field in zip(columns, schema, strict=True)
        ]
        wrong = pa.table(
            {
                "error": pa.array([text for text, _, _ in errors], pa.utf8()),
                "time": pa.array([time for _, time, _ in errors], pa.int64()),
                "diff": pa.array([diff for _, _, diff in errors], pa.int64()),
            }
        )
        self.shards.sync(collection)
        refs = self.shards.write(collection, pa.table(arrays, schema=schema), wrong)
        part = Part(
            collection=collection,
            capability=description.capability,
            lower=self.shards.state(collection).upper,
            upper=until,
            chunks=refs,
        )
        (outcome,) = self.shards.submit([(description.group, Append((part,)))])
        assert isinstance(outcome, Appended), outcome
        self.say(Frontiers(collection, until, until))
