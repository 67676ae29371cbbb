"""SUBSCRIBE up to a time, without a snapshot, and by replicas."""

import itertools
from dataclasses import replace

import pyarrow as pa
import pytest

from streams.adapter import collection_reads, subscribe_replicas
from streams.adapter.collection_reads import CollectionReads
from streams.adapter.results import Columns, Complete, Failed, Notice, Progress, Result
from streams.compute.parameters import BOUNDS
from streams.compute.protocol import replica_of
from streams.compute.replica_responses import InstanceStatus
from streams.errors import Determinate
from streams.ids import CollectionId, Timestamp
from streams.progress import EMPTY, frontier
from streams.replica.peeks import subscribe_read
from tests.support.coordinators import NOW, Environment, rows_of, with_orders
from tests.support.processes import eventually
from tests.support.replica import FakeReplica


@pytest.fixture
def replica(env: Environment) -> FakeReplica:
    """A replica of orders, which answers."""
    replica = with_orders(env)
    replica.answer_peeks(env.broker)
    replica.append("s1", NOW + 10, [((1, 1.0), NOW, 1), ((2, 2.0), NOW + 2, 1)])
    eventually(lambda: bool(env.coordinator.observed.replicas))
    return replica


def name_of(env: Environment) -> str:
    (process,) = env.coordinator.observed.replicas
    return replica_of(process)


WAYS = ["", "REPLICAS", "REPLICA"]


def statement(env: Environment, way: str, rest: str = "", *options: str) -> str:
    by = f'REPLICA "{name_of(env)}"' if way == "REPLICA" else way
    given = ", ".join(filter(None, [by, *options]))
    return f"SUBSCRIBE orders {rest}" + (f" WITH ({given})" if given else "")


def is_ended(result: Result) -> bool:
    return isinstance(result, Complete | Failed)


@pytest.mark.parametrize("way", WAYS)
def test_it_ends_before_a_time(env: Environment, replica: FakeReplica, way: str) -> None:
    text = statement(env, way, f"AS OF {NOW + 4} UP TO {NOW + 16}")
    stream = env.coordinator.execute(text)
    results = list(itertools.islice(stream, 2))
    updates = [((3, 3.0), NOW + 15, 1), ((4, 4.0), NOW + 16, 1)]
    replica.append("s1", NOW + 20, updates)
    results += stream
    assert isinstance(results[0], Columns)
    first = [[NOW + 4, 1, 1, 1.0], [NOW + 4, 1, 2, 2.0]]
    assert sorted(rows_of(results)) == [*first, [NOW + 15, 1, 3, 3.0]]
    assert results[-1] == Complete("SUBSCRIBE")
    assert [one for one in results if isinstance(one, Progress)][-1] == Progress(EMPTY)


@pytest.mark.parametrize("way", WAYS)
def test_without_a_snapshot_there_are_changes_alone(
    env: Environment, replica: FakeReplica, way: str
) -> None:
    rest = f"AS OF {NOW + 1} UP TO {NOW + 10}"
    results = env.sql(statement(env, way, rest, "SNAPSHOT FALSE"))
    assert rows_of(results) == [[NOW + 2, 1, 2, 2.0]]
    assert results[-1] == Complete("SUBSCRIBE")


@pytest.mark.parametrize("way", WAYS)
def test_it_goes_on_until_its_reader_leaves(env, replica, way) -> None:
    stream = env.coordinator.execute(statement(env, way))
    results: list[Result] = []
    while not rows_of(results):
        results.append(next(stream))
    replica.append("s1", NOW + 20, [((3, 3.0), NOW + 15, 1)])
    while len(rows_of(results)) < 3:
        results.append(next(stream))
    results.append(next(stream))
    last = results[-1]
    assert isinstance(last, Progress)
    assert last.frontier == frontier(NOW + 20)
    stream.close()


@pytest.mark.parametrize("way", WAYS)
def test_it_ends_with_the_first_error(env: Environment, replica: FakeReplica, way: str) -> None:
    stream = env.coordinator.execute(statement(env, way))
    results = list(itertools.islice(stream, 2))
    replica.append("s1", NOW + 20, [((3, 3.0), NOW + 15, 1)], [("bad", NOW + 17, 1)])
    results += stream
    assert max(rows_of(results)) == [NOW + 15, 1, 3, 3.0]
    failed = results[-1]
    assert isinstance(failed, Failed)
    assert failed.detail == "bad"
    assert str(NOW + 17) in failed.message
    again = statement(env, way, f"AS OF {NOW + 18} UP TO {NOW + 19}", "SNAPSHOT FALSE")
    assert isinstance(env.sql(again)[-1], Failed), "there is nothing that it changes"


@pytest.mark.parametrize("is_first", [True, False])
def test_what_is_too_much_for_an_answer_the_coordinator_reads(
    env: Environment, replica: FakeReplica, is_first: bool
) -> None:
    """As a snapshot, or at one time behind others."""
    env.rows("ALTER CLUSTER default SET (max_result_bytes 4096)")
    many = [((100 + n, 1.0 * n), NOW + 13, 1) for n in range(2_000)]
    replica.append("s1", NOW + 15, many)
    rest = f"AS OF {NOW + 14 if is_first else NOW + 1} UP TO {NOW + 20}"
    stream = env.coordinator.execute(statement(env, "REPLICAS", rest))
    results: list[Result] = []
    while len(rows_of(results)) < 2_002:
        results.append(next(stream))
    (notice,) = [one for one in results if isinstance(one, Notice)]
    assert "expected updates of at most 4096 bytes" in notice.message
    assert env.rows("SELECT reader, replica FROM slackwater.subscribes") == [
        ["coordinator", None]
    ]
    replica.append("s1", NOW + 22, [((3, 3.0), NOW + 16, 1)])
    results += stream
    assert len(rows_of(results)) == 2_003, "each once"
    assert max(rows_of(results)) == [NOW + 16, 1, 3, 3.0]
    reached = [one.frontier for one in results if isinstance(one, Progress)]
    assert reached[-1] == EMPTY
    times = [upper.time for upper in reached[:-1]]
    assert times == sorted(times)
    assert results[-1] == Complete("SUBSCRIBE")


def test_what_was_delivered_stays_so_while_the_coordinator_is_behind(
    env, replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.rows("ALTER CLUSTER default SET (max_result_bytes 4096)")
    replica.append("s1", NOW + 15, [((100 + n, 1.0 * n), NOW + 13, 1) for n in range(2_000)])
    stream = env.coordinator.execute(statement(env, "REPLICAS", f"AS OF {NOW + 1}"))
    for result in stream:
        if isinstance(result, Notice):
            break
    state = CollectionReads.state
    with monkeypatch.context() as patch:
        patch.setattr(collection_reads, "BEAT_MS", 20)
        patch.setattr(
            CollectionReads,
            "state",
            lambda *given: replace(state(*given), upper=frontier(NOW + 5)),
        )
        assert [next(stream) for _ in range(3)] == [Progress(frontier(NOW + 13))] * 3
    results: list[Result] = []
    while Progress(frontier(NOW + 15)) not in results:
        results.append(next(stream))
    assert len(rows_of(results)) == 2_000
    stream.close()


TYPES = pa.schema([("c0", pa.int64()), ("c1", pa.float64()), ("time", pa.int64())])
ROW: list[object] = [7, 7.0, NOW + 15]


def streamed(schema: pa.Schema, *row: object) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_table(pa.table([[value] for value in row], schema=schema))
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    ("updates", "said"),
    [
        (b"no stream", "expected an arrow stream"),
        (streamed(TYPES, *ROW), "expected columns c0 int64, c1 double, time int64, diff int64"),
        (
            streamed(TYPES.append(pa.field("diff", pa.int64())), 7, 7.0, NOW + 20, 1),
            f"expected updates before {NOW + 20}, actual one at {NOW + 20}",
        ),
    ],
    ids=["no-stream", "other-columns", "later"],
)
def test_a_malformed_interval_is_an_error_of_its_statement_alone(
    env, replica, monkeypatch: pytest.MonkeyPatch, updates: bytes, said: str
) -> None:
    stream = env.coordinator.execute(statement(env, "REPLICAS"))
    results: list[Result] = []
    while len(rows_of(results)) < 2:
        results.append(next(stream))
    with monkeypatch.context() as patch:
        patch.setattr(subscribe_read, "_encoded", lambda _: updates)
        replica.append("s1", NOW + 20, [((3, 3.0), NOW + 15, 1)])
        results += stream
    failed = results[-1]
    assert isinstance(failed, Failed)
    assert failed.message == "orders cannot be read by a replica: its answer is malformed"
    assert said in failed.detail
    assert not env.coordinator.instances.of("default")._subscribes.subscribes
    again = env.sql(statement(env, "REPLICAS", f"UP TO {NOW + 20}"))
    assert isinstance(again[-1], Complete)
    assert len(rows_of(again)) == 3


def test_a_replica_and_a_time_are_checked(env: Environment, replica: FakeReplica) -> None:
    failed = env.fails("SUBSCRIBE orders WITH (REPLICA r9)")
    assert failed.message == "there is no replica r9"
    failed = env.fails(f"SUBSCRIBE orders UP TO {NOW}")
    assert failed.message.startswith("expected UP TO a time beyond")


def test_what_is_taken_is_acknowledged_and_let_go(env, replica, monkeypatch) -> None:
    monkeypatch.setattr(subscribe_replicas, "BEAT_S", 0.05)
    monkeypatch.setattr(subscribe_replicas, "ACKNOWLEDGE_S", 0.05)
    controller = env.coordinator.instances.of("default")
    told: list[Timestamp] = []
    refused: list[Timestamp] = []
    acknowledge = controller.acknowledge

    def note(uuid: str, upper: Timestamp) -> None:
        if upper == NOW + 20 and not refused:
            refused.append(upper)
            raise Determinate("refused; nothing comes that would have it said again")
        acknowledge(uuid, upper)
        told.append(upper)

    monkeypatch.setattr(controller, "acknowledge", note)
    stream = env.coordinator.execute(statement(env, "REPLICAS"))
    results = [next(stream)]
    replica.append("s1", NOW + 20, [((3, 3.0), NOW + 15, 1)])
    while len(rows_of(results)) < 3 or NOW + 20 not in told:
        results.append(next(stream))
    guards = env.coordinator._reads._guards
    held = guards.frontier(CollectionId("s1"))
    assert held == frontier(NOW + 19)
    stream.close()
    assert not controller._subscribes.subscribes
    assert guards.frontier(CollectionId("s1")) == EMPTY
    least, _ = BOUNDS["max_unacknowledged_bytes"]
    assert least > 2 * subscribe_replicas.ACKNOWLEDGED_BYTES, "else a client waits for nothing"


@pytest.mark.parametrize("way", ["REPLICAS", "REPLICA"])
def test_it_says_that_no_replica_is_live(env, replica, monkeypatch, way) -> None:
    monkeypatch.setattr(subscribe_replicas, "BEAT_S", 0.05)
    stream = env.coordinator.execute(statement(env, way))
    results = list(itertools.islice(stream, 4))
    while not isinstance(results[-1], Notice) and len(results) < 60:
        monkeypatch.setattr(InstanceStatus, "replicas", frozenset())
        results.append(next(stream))
    stream.close()
    notices = [result.message for result in results if isinstance(result, Notice)]
    (said,) = notices
    assert said.startswith("waits for the ")
    assert said.endswith("none of which is live")
