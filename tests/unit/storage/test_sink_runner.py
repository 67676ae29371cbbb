"""A sink over shards in memory and an output whose transactions fail on purpose."""

import time
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pytest

from schemas.keys import unpack
from schemas.rows import decode_row
from streams.errors import Determinate, Indeterminate
from streams.ids import CapabilityId, CollectionId, Timestamp, Topic
from streams.kafka.client.transactions import Fenced, Out, OutRecord, one_by_one
from streams.kafka.memory.logs import MemoryBroker
from streams.progress import frontier
from streams.storage.client.shards import Shards, write_capability
from streams.storage.description import Description
from streams.storage.log.events import Acquire, Append, Part, Right
from streams.storage.log.outcomes import Appended
from streams.storage.sinks.progress import (
    LARGEST_BYTES,
    LIMIT,
    Progress,
    decode,
    encode,
    limit_of,
    transactions,
)
from streams.storage.sinks.runner import SinkRunner, SinkSpec, SinkStatus

U1 = CollectionId("u1")
SPEC = SinkSpec(
    sink=CollectionId("k2"),
    collection=U1,
    group="u1",
    topic=Topic("totals"),
    keys=("id",),
    as_of=Timestamp(10),
    hold=CapabilityId("k2.reads.u1"),
    namespace="sw",
    idle_ms=0,
)


class Output:
    """Topics that several sessions write; only the newest may."""

    def __init__(self) -> None:
        self.records: list[OutRecord] = []
        self.sizes: list[int] = []
        self.session = 0
        self.failures: list[Exception | None] = []
        self.partitions = 1


class MemoryTransactions:
    """One session. A failure of `failures` is raised before the commit, or after it."""

    def __init__(self, output: Output) -> None:
        self.output, self.mine = output, -1

    def init(self) -> None:
        self.output.session += 1
        self.mine = self.output.session

    def commit(self, records: Sequence[Out]) -> None:
        output = self.output
        if self.mine != output.session:
            raise Fenced("sw.sink.k2")
        failure = output.failures.pop(0) if output.failures else None
        if isinstance(failure, Determinate):
            raise failure
        every = list(one_by_one(records))
        output.records.extend(every)
        output.sizes.append(len(every))
        if failure is not None:
            raise failure

    def last_value(self, topic: Topic, key: bytes, partition: int = 0) -> bytes | None:
        records = [
            record
            for record in self.output.records
            if (record.topic, record.key) == (topic, key)
        ]
        return records[-1].value if records else None

    def partitions(self, topic: Topic) -> int:
        assert topic == SPEC.topic
        return self.output.partitions

    def close(self) -> None:
        pass


class World:
    def __init__(self) -> None:
        broker = MemoryBroker(lambda: 1000)
        self.output = Output()
        self.shards = Shards(
            broker.logs, broker.chunks, broker.topics, now_ms=lambda: 1000, pump=True
        )
        columns = (("id", "BIGINT"), ("total", "BIGINT"))
        self.shards.create("u1", U1, Description(columns), Timestamp(10))
        hold = Acquire(collection=U1, capability=SPEC.hold, right=Right.READ)
        self.shards.submit([("u1", hold)])
        self.runners: list[SinkRunner] = []

    def append(
        self,
        upper: int,
        updates: Sequence[tuple[int, int, int, int]] = (),
        errors: Sequence[tuple[str, int, int]] = (),
    ) -> None:
        """Append (id, total, time, diff) updates up to `upper`."""
        table = pa.table(
            {
                "c0": pa.array([update[0] for update in updates], pa.int64()),
                "c1": pa.array([update[1] for update in updates], pa.int64()),
                "time": pa.array([update[2] for update in updates], pa.int64()),
                "diff": pa.array([update[3] for update in updates], pa.int64()),
            }
        )
        wrong = pa.table(
            {
                "error": pa.array([error[0] for error in errors], pa.utf8()),
                "time": pa.array([error[1] for error in errors], pa.int64()),
                "diff": pa.array([error[2] for error in errors], pa.int64()),
            }
        )
        part = Part(
            collection=U1,
            capability=write_capability(U1),
            lower=self.shards.state(U1).upper,
            upper=frontier(upper),
            chunks=self.shards.write(U1, table, wrong),
        )
        (outcome,) = self.shards.submit([("u1", Append((part,)))])
        assert isinstance(outcome, Appended)

    def run(self) -> SinkRunner:
        runner = SinkRunner(
            SPEC, self.shards, MemoryTransactions(self.output), now_ms=lambda: 1000
        )
        runner.start()
        self.runners.append(runner)
        return runner

    @property
    def written(self) -> list[tuple[int, object, object]]:
        """(time, id, total) of each record of the output topic; total None for a tombstone."""
        schema = next(
            record.value for record in self.output.records if record.topic == SPEC.schema_topic
        )
        assert schema is not None
        return [
            (
                int(record.headers[0][1]),
                unpack(record.key or b"")[0],
                None
                if record.value is None
                else int(decode_row(schema.decode(), record.value)["total"]),
            )
            for record in self.output.records
            if record.topic == SPEC.topic
        ]

    @property
    def progress(self) -> Progress | None:
        value = MemoryTransactions(self.output).last_value(SPEC.progress_topic, b"k2")
        return decode(value) if value else None

    def reached(self, time_: int) -> Callable[[], bool]:
        return lambda: self.progress == Progress(Timestamp(time_))

    def stop(self) -> None:
        for runner in self.runners:
            runner.stop()
        self.shards.close()


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.stop()


def test_the_first_contents_and_then_every_change_are_written_once(world) -> None:
    world.append(20, [(1, 5, 10, 1), (2, 6, 10, 1), (1, 5, 12, -1), (1, 7, 12, 1)])
    world.run()
    eventually(world.reached(20))
    world.append(30, [(2, 6, 25, -1)])
    eventually(world.reached(30))
    assert sorted(world.written, key=str) == sorted(
        [(10, 1, 5), (10, 2, 6), (12, 1, 7), (25, 2, None)], key=str
    )


def test_the_hold_stays_below_the_committed_progress(world) -> None:
    world.append(20, [(1, 5, 10, 1)])
    runner = world.run()
    eventually(lambda: world.shards.state(U1).since == frontier(19))
    world.append(50)
    eventually(lambda: world.shards.state(U1).since == frontier(49))
    eventually(lambda: runner.status.frontier == 50)


@pytest.mark.parametrize("failure", [Determinate("refused"), Indeterminate("timeout")])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_nothing_is_lost_or_doubled_whatever_a_commit_says(world, monkeypatch, failure, at):
    monkeypatch.setattr("streams.storage.sinks.runner.RETRY_S", 0.01)
    world.output.failures = [None] * at + [failure]
    world.append(20, [(1, 5, 10, 1)])
    world.run()
    eventually(world.reached(20))
    world.append(30, [(1, 5, 22, -1), (1, 6, 22, 1)])
    eventually(world.reached(30))
    assert world.written == [(10, 1, 5), (22, 1, 6)]


def test_a_defect_is_said_and_the_sink_goes_on_when_it_is_gone(world, monkeypatch) -> None:
    monkeypatch.setattr("streams.storage.client.backoff.FIRST_PAUSE_S", 0.01)
    met: list[int] = []

    def damaged(*_: object, **__: object) -> None:
        met.append(1)
        raise RecursionError("too deep")

    world.append(20, [(1, 5, 10, 1)])
    with monkeypatch.context() as defect:
        defect.setattr("streams.storage.sinks.runner.RecordEncoder.decide", damaged)
        runner = world.run()
        eventually(lambda: len(met) >= 3)
        eventually(lambda: runner.status.state == "failed")
        assert runner.status.message == "RecursionError('too deep')"
    eventually(world.reached(20))
    eventually(lambda: runner.status.state == "running")
    assert world.written == [(10, 1, 5)]


def test_pauses_grow_while_a_sink_stands_at_one_frontier(world) -> None:
    runner, defect = SinkRunner(SPEC, world.shards, world.output, now_ms=int), KeyError("x")
    assert [runner._failed(defect) for _ in range(3)] == [0.5, 1.0, 2.0]
    runner._say(SinkStatus("running", "", Timestamp(20)))
    assert runner._failed(defect) == 0.5
    assert runner.status == SinkStatus("failed", "KeyError('x')", Timestamp(20))


def test_a_long_interval_goes_on_where_the_last_session_stopped(world, monkeypatch) -> None:
    monkeypatch.setattr("streams.storage.sinks.runner.RETRY_S", 0.01)
    monkeypatch.setattr("streams.storage.sinks.runner.limit_of", lambda *_: 3)
    # the schema, two transactions of the snapshot, and then nobody knows
    world.output.failures = [None, None, Indeterminate("timeout"), Determinate("no")]
    world.append(20, [(number, number, 10, 1) for number in range(10)])
    world.append(21, [(0, 0, 20, -1)])
    world.run()
    eventually(world.reached(21))
    snapshot = [record for record in world.written if record[0] == 10]
    assert sorted(snapshot) == [(10, number, number) for number in range(10)]
    assert world.written[10:] == [(20, 0, None)]
    assert max(world.output.sizes) == 4


def test_a_newer_session_fences_the_older(world) -> None:
    world.append(20, [(1, 5, 10, 1)])
    old = world.run()
    eventually(world.reached(20))
    new = world.run()
    eventually(lambda: new.status.state == "running")
    world.append(30, [(1, 5, 22, -1)])
    eventually(world.reached(30))
    world.append(40)
    eventually(lambda: old.status.state == "stalled" or new.status.frontier == 40)
    assert world.written == [(10, 1, 5), (22, 1, None)]


def test_a_runner_goes_on_when_the_one_that_fenced_it_is_gone(world, monkeypatch) -> None:
    monkeypatch.setattr("streams.storage.sinks.runner.FENCED_S", 0.01)
    world.append(20, [(1, 5, 10, 1)])
    owner = world.run()
    eventually(world.reached(20))
    world.output.session += 1  # of a process that went on after a pause, and is stopped now
    world.append(30, [(1, 5, 22, -1)])
    eventually(world.reached(30))
    eventually(lambda: owner.status.state == "running")
    assert world.written == [(10, 1, 5), (22, 1, None)]


def test_a_restart_goes_on_from_the_progress(world) -> None:
    world.append(20, [(1, 5, 10, 1), (2, 5, 15, 1)])
    world.run().stop()
    eventually(lambda: True)
    first = world.run()
    eventually(world.reached(20))
    first.stop()
    world.append(30, [(1, 5, 22, -1), (1, 6, 22, 1)])
    world.run()
    eventually(world.reached(30))
    assert world.written == [(10, 1, 5), (15, 2, 5), (22, 1, 6)]


def test_progress_from_before_its_birth_is_another_sink_s(world) -> None:
    """With the catalog its numbers are lost, and another sink gets the same id."""
    earlier = OutRecord(
        SPEC.progress_topic,
        SPEC.sink.encode(),
        encode(SPEC.sink, Progress(Timestamp(5), Timestamp(12), 1)),
        (),
        0,
    )
    world.output.records.append(earlier)
    world.append(13, [(1, 5, 11, 1), (2, 7, 12, 1)])
    world.run()
    eventually(world.reached(13))
    assert len(world.written) == 2


TOO_MANY = (
    "topic totals: expected 1 partitions, actual 3: records of a key would be in two of them,"
    " in no order; drop the sink, and create one with another topic"
)


def test_a_topic_with_more_partitions_than_it_was_created_with_is_not_written(
    world, monkeypatch
) -> None:
    monkeypatch.setattr("streams.storage.sinks.runner.RETRY_S", 0.01)
    world.output.partitions = 3
    world.append(20, [(1, 5, 10, 1)])
    runner = world.run()
    eventually(lambda: runner.status == SinkStatus("stalled", TOO_MANY))
    assert not world.output.records, "also no schema"
    world.output.partitions = 1
    eventually(world.reached(20))
    runner.stop()
    assert world.written == [(10, 1, 5)]


def test_partitions_are_counted_again_while_a_sink_runs(world, monkeypatch) -> None:
    monkeypatch.setattr("streams.storage.sinks.runner.CHECK_MS", 0)
    world.append(20, [(1, 5, 10, 1)])
    runner = world.run()
    eventually(world.reached(20))
    world.output.partitions = 3
    world.append(30, [(1, 6, 22, 1), (1, 5, 22, -1)])
    eventually(lambda: runner.status.state == "stalled")
    assert runner.status.message == TOO_MANY
    assert world.written == [(10, 1, 5)]


def test_a_key_that_is_not_unique_stalls_with_a_reason_and_heals(world) -> None:
    world.append(20, [(1, 5, 10, 1), (1, 6, 15, 1)])
    runner = world.run()
    eventually(lambda: runner.status.state == "stalled")
    assert runner.status.message == "key (id = 1) is not unique: 2 rows have it at 15"
    assert world.progress == Progress(Timestamp(15))
    world.append(30, [(1, 5, 22, -1)])
    eventually(world.reached(30))
    eventually(lambda: runner.status.state == "running")
    assert world.written == [(10, 1, 5), (22, 1, 6)]


def test_an_error_in_the_collection_stalls_with_its_text(world) -> None:
    world.append(20, [(1, 5, 10, 1)], [("division by zero", 12, 1)])
    runner = world.run()
    eventually(lambda: runner.status.state == "stalled")
    assert runner.status.message == "the collection is in error at 12: division by zero"
    assert world.written == [(10, 1, 5)]


def test_the_progress_comes_back_as_it_was() -> None:
    for progress in (Progress(Timestamp(5)), Progress(Timestamp(5), Timestamp(9), 7)):
        assert decode(encode(SPEC.sink, progress)) == progress


@pytest.mark.parametrize(
    ("records", "nbytes", "limit"),
    [(0, 0, 1), (10, 100, LIMIT), (4, 4 * LARGEST_BYTES, 1), (10, 100 * LARGEST_BYTES, 1)],
)
def test_a_transaction_is_bounded_by_records_and_bytes(records, nbytes, limit) -> None:
    assert limit_of(records, nbytes) == limit
    half = limit_of(1_000_000, 40 * LARGEST_BYTES)
    assert half == 25_000


@pytest.mark.parametrize(
    ("before", "records", "expected"),
    [
        (Progress(Timestamp(1)), 0, [(0, 0)]),
        (Progress(Timestamp(1)), 3, [(0, 3)]),
        (Progress(Timestamp(1)), 7, [(0, 3), (3, 6), (6, 7)]),
        (Progress(Timestamp(1), Timestamp(9), 3), 7, [(3, 6), (6, 7)]),
        (Progress(Timestamp(1), Timestamp(9), 7), 7, [(7, 7)]),
    ],
)
def test_an_interval_is_cut_into_transactions(before, records, expected) -> None:
    cut = list(transactions(before, Timestamp(9), records, limit=3))
    assert [(first, last) for first, last, _ in cut] == expected
    assert cut[-1][2] == Progress(Timestamp(9))
    for _, last, progress in cut[:-1]:
        assert progress == Progress(Timestamp(1), Timestamp(9), last)
