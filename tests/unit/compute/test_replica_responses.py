import itertools
from math import isqrt

import pytest

from streams.compute.activity import DataflowActivity, LaneActivity, ReplicaActivity
from streams.compute.controller import Controller, create_topics, response_topic
from streams.compute.protocol import (
    Alive,
    CreateInstance,
    Frontiers,
    Hydration,
    Reconciled,
    Response,
    ResponseMessage,
    Status,
    process_name,
    replica_of,
)
from streams.compute.replica_responses import SILENCE_S, STANDBY, InstanceStatus
from streams.compute.writer import ResponseWriter
from streams.ids import CollectionId
from streams.kafka.memory.logs import MemoryBroker
from streams.progress import EMPTY, frontier
from streams.storage.log import persistent_map

U1 = CollectionId("u1")
RUNNING = Status(U1, "running")


def hear(
    observed: InstanceStatus, process: str, now: float, response: Response
) -> InstanceStatus:
    return observed.step(ResponseMessage("n", process, int(now * 10), response), now)


def test_a_replica_that_died_is_listed_no_more() -> None:
    observed = hear(InstanceStatus(), "r1-a", 1.0, Reconciled(0, 0, 0))
    observed = hear(observed, "r2-b", 1.0, RUNNING)
    observed = hear(observed, "r1-a", 6.0, Alive())
    assert observed.at(10.9).replicas == {"r1-a", "r2-b"}
    assert observed.at(11.0).replicas == {"r1-a"}
    assert not observed.at(15.9).is_deserted
    assert observed.at(16.0).replicas == frozenset()
    assert observed.at(16.0).is_deserted


@pytest.mark.parametrize("word", [RUNNING, Frontiers(U1, frontier(5)), Alive()])
def test_whatever_a_replica_says_shows_that_it_lives(word) -> None:
    observed = hear(InstanceStatus(), "r1-a", 1.0, Reconciled(0, 0, 0))
    assert hear(observed, "r1-a", 30.0, word).replicas == {"r1-a"}


def test_a_successor_replaces_the_process_before_it() -> None:
    observed = hear(InstanceStatus(), "r1-a", 1.0, Reconciled(0, 0, 0))
    observed = hear(observed, "r-1-c", 1.0, Reconciled(0, 0, 0))
    assert hear(observed, "r1-b", 2.0, Reconciled(0, 0, 0)).replicas == {"r1-b", "r-1-c"}


def test_what_a_dataflow_costs_is_kept_while_its_status_changes() -> None:
    activity = DataflowActivity(U1, 1, 1, 1, 1, 0, 9, 9, ())
    observed = hear(InstanceStatus(), "r1-a", 1.0, activity)
    observed = hear(observed, "r1-a", 4.0, RUNNING)
    report = observed.conditions[U1].reports["r1-a"]
    assert (report.status, report.activity, report.activity_at) == (RUNNING, activity, 1.0)
    assert observed.at(1_000.0).report(U1).activity == activity, "also when it is silent"


def test_the_lanes_of_a_process_replace_those_of_the_one_before_it() -> None:
    first, then = (
        ReplicaActivity((LaneActivity("ingest", batches, 0, 0, 0, 0),)) for batches in (9, 1)
    )
    observed = hear(InstanceStatus(), "r1-a", 1.0, first)
    observed = hear(observed, "r2-b", 2.0, first)
    observed = hear(observed, "r1-c", 3.0, then)
    told = {
        name: (said.process, said.activity, said.at) for name, said in observed.lanes.items()
    }
    assert told == {"r1": ("r1-c", then, 3.0), "r2": ("r2-b", first, 2.0)}


def test_lanes_are_remembered_of_so_many_replicas() -> None:
    observed = InstanceStatus()
    for number in range(100):
        observed = hear(observed, f"r{number}-a", 1.0, ReplicaActivity(()))
    assert list(observed.lanes) == [f"r{number}" for number in range(36, 100)]


def test_two_that_share_a_name_are_both_listed() -> None:
    observed = hear(InstanceStatus(), "r1-a", 1.0, Reconciled(0, 0, 0))
    observed = hear(observed, "r1-b", 2.0, Reconciled(0, 0, 0))
    observed = hear(observed, "r1-a", 3.0, Alive())
    assert hear(observed, "r1-b", 4.0, Alive()).replicas == {"r1-a", "r1-b"}


def test_replicas_have_time_to_answer_a_new_iteration() -> None:
    observed = hear(InstanceStatus(), "r1-a", 1.0, RUNNING).begin(100.0)
    assert observed.replicas == frozenset()
    assert observed.report(U1).status == RUNNING
    assert not observed.at(100.0 + SILENCE_S - 0.1).is_deserted
    assert observed.at(100.0 + SILENCE_S).is_deserted


def said(observed: InstanceStatus) -> str:
    status = observed.report(U1).status
    return "" if status is None else status.state


def test_a_dataflow_is_as_well_as_the_best_live_replica_says() -> None:
    observed = hear(InstanceStatus(), "r1-a", 1.0, RUNNING)
    observed = hear(observed, "r2-b", 2.0, Status(U1, "hydrating"))
    observed = hear(observed, "r2-b", 2.0, Hydration(U1, 3, 10))
    assert said(observed) == "running"
    assert observed.report(U1).hydration is None
    observed = hear(observed, "r2-b", 8.0, Alive())
    assert said(observed.at(10.9)) == "running"
    assert said(observed.at(11.0)) == "hydrating", "the other one is gone"
    assert observed.at(11.0).report(U1).hydration == Hydration(U1, 3, 10)
    observed = hear(observed, "r1-c", 12.0, Status(U1, "failed", "no plan"))
    assert said(observed) == "hydrating"
    assert said(hear(observed, "r2-b", 13.0, Status(U1, "failed"))) == "failed"


def test_who_stands_by_says_nothing_of_a_source() -> None:
    observed = hear(InstanceStatus(), "r1-a", 1.0, Status(U1, STANDBY))
    observed = hear(observed, "r2-b", 1.0, Status(U1, "failed"))
    assert said(observed) == "failed"
    observed = hear(observed, "r1-a", 10.0, RUNNING)
    observed = hear(observed, "r2-b", 10.0, Status(U1, STANDBY))
    assert said(observed) == "running"
    observed = hear(observed, "r2-b", 15.0, Alive())
    assert said(observed.at(20.0)) == STANDBY, "the owner is gone, and nobody has followed"


def test_what_a_process_said_counts_until_its_successor_says_something() -> None:
    observed = hear(InstanceStatus(), "r1-a", 1.0, RUNNING)
    observed = hear(observed, "r1-b", 2.0, Reconciled(0, 1, 0))
    assert said(observed) == "running"
    observed = hear(observed, "r1-b", 3.0, Status(U1, "starting"))
    assert said(observed) == "starting"
    assert set(observed.conditions[U1].reports) == {"r1-b"}


def test_a_dataflow_is_dropped_when_all_live_replicas_have_stopped_it() -> None:
    end = Frontiers(U1, EMPTY, EMPTY)
    observed = hear(InstanceStatus(), "r1-a", 1.0, Reconciled(0, 0, 0))
    observed = hear(observed, "r2-b", 1.0, Reconciled(0, 0, 0))
    observed = hear(observed, "r1-a", 5.0, end)
    assert observed.dropped == frozenset(), "it runs on the other one"
    assert hear(observed, "r2-b", 6.0, end).dropped == {U1}
    assert observed.at(12.0).dropped == {U1}, "the other one is gone"
    assert observed.forget(U1).at(12.0).dropped == frozenset()


def test_a_process_signs_with_the_name_of_its_replica() -> None:
    assert replica_of(process_name("east-1", "0f3a")) == "east-1"
    assert replica_of("plain") == "plain"


def test_a_controller_lists_who_spoke_lately() -> None:
    broker = MemoryBroker(lambda: 1000)
    create_topics(broker.topics, "sw", "default")
    now, numbers = [50.0], itertools.count()
    one = Controller(
        broker.logs,
        CreateInstance("sw", 2),
        "default",
        1,
        lambda: f"n{next(numbers)}",
        lambda: now[0],
    )
    one.start([], [])
    assert [one.observed.is_deserted] == [False], "it has just begun to listen"
    writer = ResponseWriter(broker.logs, response_topic("sw", "default"), "r1-a")
    writer.write("n0", [Reconciled(0, 0, 0)])
    one.poll(0)
    assert one.observed.replicas == {"r1-a"}
    now[0] += SILENCE_S
    one.poll(0)
    assert [one.observed.is_deserted] == [True]
    writer.write("n0", [Alive()])
    one.poll(0)
    assert one.observed.replicas == {"r1-a"}


@pytest.mark.parametrize("dataflows", [100, 10_000])
def test_a_response_costs_no_look_at_what_the_others_said(monkeypatch, dataflows: int) -> None:
    """Entries copied by each of many responses: a square root, where all were copied."""
    observed = InstanceStatus()
    for number in range(dataflows):
        key = CollectionId(f"s{number}")
        observed = hear(observed, "r1-a", 1.0, Frontiers(key, frontier(5)))
    copied, make = [0], persistent_map._made

    def counted(base: dict[str, object], over: dict[str, object], count: int) -> object:
        copied[0] += len(over) or len(base)
        return make(base, over, count)

    monkeypatch.setattr(persistent_map, "_made", counted)
    total = 500
    for number in range(total):
        key = CollectionId(f"s{number % dataflows}")
        observed = hear(observed, "r1-a", 2.0, Frontiers(key, frontier(6)))
    assert copied[0] > 0, "the map that is counted is the one in use"
    assert copied[0] / total <= 3 * (isqrt(dataflows) + persistent_map.SMALL)
    assert observed.conditions[CollectionId("s1")].write == frontier(6)
    assert len(observed.forget(CollectionId("s1")).conditions) == dataflows - 1


def observe(*responses) -> InstanceStatus:
    observed = InstanceStatus()
    for number, (replica, response) in enumerate(responses):
        observed = observed.step(ResponseMessage("n", replica, number, response), 0.0)
    return observed


def test_frontiers_are_the_furthest_of_any_replica() -> None:
    observed = observe(
        ("a", Frontiers(U1, frontier(5), frontier(4))),
        ("b", Frontiers(U1, frontier(3), None, frontier(9))),
        ("b", Frontiers(U1, None, frontier(6))),
        ("a", Frontiers(U1, input=frontier(8))),
    )
    condition = observed.conditions[U1]
    assert (condition.write, condition.output) == (frontier(5), frontier(6))
    assert condition.input == frontier(9)
    outputs = {process: said.output for process, said in condition.reports.items()}
    assert outputs == {"a": frontier(4), "b": frontier(6)}, "each has its own"


def test_the_last_status_counts() -> None:
    late = Status(U1, "running")
    observed = observe(("a", Status(U1, "hydrating")), ("a", late), ("a", Reconciled(0, 1, 0)))
    assert observed.report(U1).status == late
    assert observed.replicas == {"a"}
    assert observed.begin(0.0).replicas == frozenset()
    assert observed.forget(U1).conditions == {}


def test_a_dataflow_is_gone_when_all_its_frontiers_are_empty() -> None:
    assert observe(("a", Frontiers(U1, EMPTY, frontier(3)))).dropped == frozenset()
    assert observe(("a", Frontiers(U1, EMPTY, EMPTY))).dropped == {U1}
