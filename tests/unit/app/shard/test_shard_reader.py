"""Reading a shard from its topics, over a broker in memory."""

import json
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from streams.adapter.results import Columns, Complete, Notice, Progress, Result, Rows
from streams.app.error_output import Refused
from streams.app.shard.attach import AttachedNamespace
from streams.app.shard.shard_reader import Reader
from streams.errors import Determinate
from streams.ids import Timestamp, Topic
from streams.kafka.log import ChunkRef
from streams.kafka.memory.logs import MemoryBroker
from streams.progress import EMPTY, frontier
from streams.storage.client.shards import Shards, write_capability
from streams.storage.client.status import ClientStatus
from streams.storage.log.events import Append, Create, Downgrade, Drop, Part, Replace
from streams.trace.kernel.kernel import Kernel
from tests.support.shard_clients import DESCRIPTION, U1, append, broker, client, rows
from tests.support.shard_looks import look

ERRORS = pa.table({"error": ["odd", "odd", "gone"], "time": [1, 1, 1], "diff": [1, 1, 1]})
HEALED = pa.table({"error": ["gone"], "time": [2], "diff": [-1]})


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def kafka() -> MemoryBroker:
    return broker()


@pytest.fixture
def one(kafka: MemoryBroker) -> Iterator[Shards]:
    with client(kafka) as opened:
        opened.create("u1", U1, DESCRIPTION, Timestamp(0), read="u1.object")  # type: ignore[arg-type]  # a name
        yield opened


@pytest.fixture
def at(kafka: MemoryBroker, one: Shards) -> Iterator[AttachedNamespace]:
    with look(kafka) as opened:
        yield opened


def reader(at: AttachedNamespace, kernel: Kernel) -> Reader:
    return Reader(at.shards, at.find("u1"), kernel)


def shown(results: Iterator[Result]) -> list[list[object]]:
    parts = list(results)
    assert isinstance(parts[0], Columns)
    return [json.loads(row) for part in parts if isinstance(part, Rows) for row in part.rows]


def test_a_read_has_multiplicities_and_error_rows(one, at, kernel) -> None:
    append(one, 0, 1, rows("a", "b", time=0))
    append(one, 1, 2, rows("a", time=1), rows("c", time=1, diff=-1))
    with_errors(one, 2, ERRORS, HEALED)
    assert shown(reader(at, kernel).read(Timestamp(1))) == [
        [2, "a", 0, None],
        [1, "b", 1, None],
        [-1, "c", 0, None],
    ]
    results = list(reader(at, kernel).read(Timestamp(2)))
    assert isinstance(results[0], Columns)
    assert [column.name for column in results[0].columns] == [
        "slackwater_diff", "name", "size", "slackwater_error",
    ]  # fmt: skip
    assert shown(iter(results))[-1] == [2, None, None, "odd"]
    assert results[-1] == Complete("READ 4", {"as_of": 2})


def with_errors(one: Shards, lower: int, *tables: pa.Table) -> None:
    nothing = rows("", time=0).slice(0, 0)
    refs = tuple(ref for table in tables for ref in one.write(U1, nothing, moved(table, lower)))
    part = Part(
        collection=U1,
        capability=write_capability(U1),
        lower=frontier(lower),
        upper=frontier(lower + 1),
        chunks=refs,
    )
    one.submit([("u1", Append((part,)))])


def moved(table: pa.Table, time: int) -> pa.Table:
    return table.set_column(1, "time", pa.array([time] * table.num_rows, pa.int64()))


def test_without_a_time_the_latest_complete_one_is_read(one, at, kernel) -> None:
    append(one, 0, 7, rows("a", time=3))
    assert list(reader(at, kernel).read(None))[-1] == Complete("READ 1", {"as_of": 6})


def test_a_time_beyond_upper_is_refused_or_waited_for(one, at, kernel) -> None:
    append(one, 0, 7, rows("a", time=3))
    with pytest.raises(Refused) as raised:
        list(reader(at, kernel).read(Timestamp(7)))
    assert raised.value.message == "shard u1 is not complete at 7"
    assert raised.value.detail == "expected a time before upper {7}"
    assert "--wait" in raised.value.hint
    waiting = reader(at, kernel).read(Timestamp(7), 10_000)
    append(one, 7, 8)
    assert len(shown(waiting)) == 1


def test_a_time_before_since_is_refused(one, at, kernel) -> None:
    append(one, 0, 9, rows("a", time=3))
    advance_since(one, 5)
    with pytest.raises(Refused) as raised:
        list(reader(at, kernel).read(Timestamp(4)))
    assert raised.value.message == "shard u1 cannot be read at 4"
    assert raised.value.hint == "read it at 5 or later"


def test_a_read_that_is_overtaken_by_compaction_is_refused(one, at, kernel) -> None:
    append(one, 0, 9, rows("a", time=3))
    under_way = reader(at, kernel).read(Timestamp(4))
    assert isinstance(next(under_way), Columns)
    compact(one, 5)
    at.shards.sync()
    with pytest.raises(Refused, match=r"at or beyond since \{5\}"):
        list(under_way)


def advance_since(one: Shards, since: int) -> None:
    body = Downgrade(collection=U1, capability="u1.object", frontier=frontier(since))  # type: ignore[arg-type]  # a name
    one.submit([("u1", body)])


def compact(one: Shards, since: int) -> None:
    advance_since(one, since)
    old = one.state(U1).batches.ordered()
    refs = one.write(U1, rows("a", time=since))
    names = tuple(batch.name for batch in old)
    body = Replace(collection=U1, replaced=names, chunks=refs, since=Timestamp(since))
    one.submit([("u1", body)])


def test_a_dropped_shard_is_refused(one, at, kernel) -> None:
    look_at = reader(at, kernel)
    one.submit([("u1", Drop(U1))])
    at.shards.sync()
    with pytest.raises(Refused, match="it was dropped"):
        list(look_at.read(None))


def test_a_sealed_shard_is_read_at_its_end(one, at, kernel) -> None:
    append(one, 0, None, rows("a", time=3))
    assert shown(reader(at, kernel).read(None)) == [[1, "a", 0, None]]


def test_a_tail_of_a_sealed_shard_is_its_contents(one, at, kernel) -> None:
    append(one, 0, None, rows("a", time=3))
    results = list(reader(at, kernel).tail(None, None, snapshot=True))
    assert [row[1:] for row in shown(iter(results))] == [[1, "a", 0, None]]
    assert results[-2:] == [Progress(EMPTY), Complete("TAIL")]


def test_a_description_of_another_client_is_refused(kafka, one, at, kernel) -> None:
    body = Create(collection="u9", description="odd", frontier=Timestamp(0), write="w")  # type: ignore[arg-type]  # names
    one.submit([("u1", body)])
    with pytest.raises(Refused, match="description is not valid"):
        list(Reader(at.shards, at.find("u9"), kernel).read(None))


def test_a_tail_begins_with_the_contents_and_ends_before_until(one, at, kernel) -> None:
    append(one, 0, 2, rows("a", "b", time=0), rows("a", time=1, diff=-1))
    append(one, 2, 3, rows("c", time=2))
    append(one, 3, 6, rows("d", time=3), rows("e", time=5), rows("f", time=4))
    results = list(reader(at, kernel).tail(Timestamp(1), Timestamp(5), snapshot=True))
    assert shown(iter(results)) == [
        [1, 1, "b", 1, None],
        [2, 1, "c", 0, None],
        [3, 1, "d", 0, None],
        [4, 1, "f", 0, None],
    ]
    reached = [progress.frontier for progress in results if isinstance(progress, Progress)]
    assert reached == [frontier(2), frontier(5)]
    assert results[-1] == Complete("TAIL")


def test_a_tail_without_snapshot_has_the_changes_after_its_time(one, at, kernel) -> None:
    append(one, 0, 2, rows("a", time=1))
    append(one, 2, None, rows("b", time=2))
    results = list(reader(at, kernel).tail(Timestamp(1), None, snapshot=False))
    assert shown(iter(results)) == [[2, 1, "b", 0, None]]
    assert results[-2:] == [Progress(EMPTY), Complete("TAIL")]  # sealed: it ends by itself


def test_errors_come_and_go_in_a_tail(one, at, kernel) -> None:
    append(one, 0, 1)
    with_errors(one, 1, ERRORS)
    with_errors(one, 2, HEALED)
    append(one, 3, None)
    lines = shown(reader(at, kernel).tail(Timestamp(0), None, snapshot=False))
    assert sorted(map(str, lines)) == [
        "[1, 1, None, None, 'gone']",
        "[1, 2, None, None, 'odd']",
        "[2, -1, None, None, 'gone']",
    ]


def test_a_tail_says_how_far_it_is_while_nothing_comes(one, at, kernel, monkeypatch) -> None:
    monkeypatch.setattr("streams.app.shard.shard_reader.BEAT_MS", 1)
    append(one, 0, 4, rows("a", time=1))
    stream = reader(at, kernel).tail(None, None, snapshot=True)
    assert [next(stream) for _ in range(4)][2:] == [
        Progress(frontier(4)),
        Progress(frontier(4)),
    ]
    append(one, 4, 5, rows("b", time=4))
    assert isinstance(
        next(result for result in stream if not isinstance(result, Progress)), Rows
    )


def test_a_tail_says_when_no_broker_answers(one, at, kernel, monkeypatch) -> None:
    monkeypatch.setattr("streams.app.shard.shard_reader.BEAT_MS", 1)
    append(one, 0, 4, rows("a", time=1))
    silences = iter([0, 4_000, 5_000, 0, 0])
    monkeypatch.setattr(at.shards, "status", lambda: ClientStatus(next(silences)))
    stream = reader(at, kernel).tail(None, None, snapshot=False)
    results = [next(stream) for _ in range(8)]
    assert [notice.message for notice in results if isinstance(notice, Notice)] == [
        "no broker has answered for 4 s: waiting",
        "the brokers answer",
    ]


def test_a_tail_goes_on_when_the_broker_is_back(one, at, kernel, monkeypatch) -> None:
    monkeypatch.setattr("streams.app.shard.shard_reader.BEAT_MS", 1)
    append(one, 0, 4, rows("a", time=1))
    append(one, 4, None, rows("b", time=5))
    fetch, failures = at.shards.chunks.fetch, [Determinate("no answer in time")]

    def flaky(topic: Topic, refs: Sequence[ChunkRef]) -> list[bytes]:
        if failures:
            raise failures.pop()
        bodies: list[bytes] = fetch(topic, refs)
        return bodies

    monkeypatch.setattr(at.shards.chunks, "fetch", flaky)
    results = list(reader(at, kernel).tail(Timestamp(3), None, snapshot=False))
    assert results[1] == Notice("no answer in time; retrying")
    assert shown(iter(results)) == [[5, 1, "b", 0, None]]


def test_a_tail_that_is_overtaken_is_refused(one, at, kernel) -> None:
    append(one, 0, 4, rows("a", time=1))
    stream = reader(at, kernel).tail(Timestamp(1), None, snapshot=True)
    assert [type(next(stream)) for _ in range(3)] == [Columns, Rows, Progress]
    append(one, 4, 9)
    compact(one, 7)
    at.shards.sync()
    with pytest.raises(Refused, match=r"since \{7\}"):
        list(stream)
