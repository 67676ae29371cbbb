import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import codec
from streams.adapter.catalog import (
    Birth,
    Body,
    Catalog,
    CatalogEvent,
    Create,
    Define,
    Drop,
    Forget,
    Open,
    Undefine,
)
from streams.adapter.catalog_clusters import (
    AddCluster,
    ComputeCluster,
    ForgetCluster,
    RemoveCluster,
    RescaleCluster,
    ScaleCluster,
)
from streams.adapter.catalog_codec import decode, encode
from streams.adapter.catalog_log import CatalogLog, Deposed
from streams.adapter.catalog_materializations import (
    Materialization,
    Materialize,
    Unbind,
    Unmaterialize,
)
from streams.adapter.catalog_outcomes import Accepted, Fenced, Outcome, Refused, VersionMismatch
from streams.compute.description import SinkDescription
from streams.errors import InvalidUsage
from streams.ids import CollectionId, EventId, Offset, Timestamp, Topic
from streams.kafka.client.transactions import OutRecord
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.memory.records import MemoryTransactions
from streams.kafka.topics import TopicKind, TopicSpec
from streams.storage.log import skipping
from streams.storage.log.skipping import Skip
from streams.trace.kernel.functions import Function
from tests.unit.adapter.items import sink, source, view

F = Function("f", ("a", "é"), ("BIGINT", "VARCHAR"), "DOUBLE", "def f(a, é):\n    return a")
CALLER = replace(view(4, "caller", "s1"), functions=("f",))
S1, U2, K3, U4 = (CollectionId(id_) for id_ in ("s1", "u2", "k3", "u4"))
C = ComputeCluster(name="c", replicas=3, master="local[1]", buckets=8)
GOLDEN = {
    "default": (
        "c3012c22925f1b6544b0026506120475340202763c435245415445204d4154455249414c495a4544"
        "20564945572076202e2e2e1053454c4543542031040469640c424947494e540c616d6f756e740c44"
        "4f55424c450002047331000000000000"
    ),
    "in c": (
        "c301bbcfc52d51f61f05026506120475340202763c435245415445204d4154455249414c495a4544"
        "20564945572076202e2e2e1053454c4543542031040469640c424947494e540c616d6f756e740c44"
        "4f55424c4500020473310000000000000263"
    ),
    "shares g4": (
        "c3011fe299823975cf5a026506120475340202763c435245415445204d4154455249414c495a4544"
        "20564945572076202e2e2e1053454c4543542031040469640c424947494e540c616d6f756e740c44"
        "4f55424c4500020473310000000000000e64656661756c74046734"
    ),
}
GOLDEN_CLUSTERS = [
    "c301d0caaaa0bbf8918102650612026306106c6f63616c5b315d10",
    "c301ca889d920deb51c702650612026304",
    "c3011cc7812bf1f29b8a02650612026310",
    "c301d0c7751ea34d0d28026506120263",
    "c30183d7a4aabc791896026506120263",
]

SHOP = Materialization(
    id="m4",
    name="shop",
    statement="CREATE MATERIALIZATION shop ...",
    task='{"connector": "sqlite", "é": 1}',
    inputs=(U2,),
    unbound=(S1,),
)


def fold(bodies: Sequence[Body], epoch: int = 1) -> tuple[Catalog, list[Outcome]]:
    catalog = Catalog()
    outcomes: list[Outcome] = []
    for body in bodies:
        event = CatalogEvent(EventId("e"), epoch, catalog.version, body)
        catalog, outcome = catalog.step(event)
        outcomes.append(outcome)
    return catalog, outcomes


BASE: tuple[Body, ...] = (
    Open(),
    Create(source(1, "orders")),
    Create(view(2, "totals", "s1")),
    Create(sink(3, "out", "u2")),
)


def test_objects_live_from_create_to_forget() -> None:
    catalog, outcomes = fold([*BASE, Birth(S1, Timestamp(5)), Drop(K3), Drop(U2), Forget(U2)])
    assert all(isinstance(outcome, Accepted) for outcome in outcomes)
    assert catalog.version == 8
    assert list(catalog.items) == [S1]
    assert list(catalog.dropped) == [K3]
    assert catalog.items[S1].as_of == 5


def test_ids_are_never_reused() -> None:
    catalog, _ = fold([*BASE, Drop(K3), Forget(K3)])
    assert catalog.next_id("sink") == "k4"
    again, outcomes = fold([*BASE, Drop(K3), Forget(K3), Create(sink(3, "out", "u2"))])
    assert outcomes[-1] == Refused("expected the number 4, actual the id k3")
    assert again == catalog


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (Create(source(4, "Orders")), "source orders already exists"),
        (Create(view(4, "v", "u9")), "no object u9"),
        (Drop(S1), "totals depends on it"),
        (Drop(CollectionId("u9")), "no object u9"),
        (Forget(S1), "no object s1 was dropped"),
        (Birth(CollectionId("u9"), Timestamp(1)), "no object u9 awaits its birth"),
        (Create(CALLER), "no function f"),
        (Undefine("f"), "no function f"),
        (Materialize(replace(SHOP, id="m5")), "expected the number 4, actual the id m5"),
        (Materialize(replace(SHOP, inputs=(U2, CollectionId("u9")))), "no object u9"),
        (Unmaterialize("m4"), "no materialization m4"),
        (Unbind("m4"), "no materialization m4 was dropped"),
        (ScaleCluster("c", 2), "no cluster c"),
        (RescaleCluster("c", 8), "no cluster c"),
        (AddCluster(replace(C, name="default")), "cluster default already exists"),
        (RemoveCluster("c"), "no cluster c"),
        (RemoveCluster("default"), "cluster default is always there"),
        (ForgetCluster("c"), "no cluster c was dropped"),
        (Create(replace(view(4, "v", "s1"), cluster="c")), "no cluster c"),
    ],
)
def test_what_would_break_the_catalog_is_refused_and_changes_nothing(body, reason) -> None:
    before, _ = fold(BASE)
    after, outcomes = fold([*BASE, body])
    assert outcomes[-1] == Refused(reason)
    assert after == before


def test_a_function_stays_while_a_view_calls_it() -> None:
    again = replace(F, name="F")
    called = [*BASE, Define(F), Define(again), Create(CALLER), Undefine("F")]
    catalog, outcomes = fold(called)
    assert outcomes[-3] == Refused("function F already exists")
    assert outcomes[-1] == Refused("caller depends on it")
    assert catalog.called(CALLER) == (F,)
    assert catalog.callers("F") == (CALLER,)
    catalog, outcomes = fold([*called, Drop(CALLER.id), Undefine("F"), Define(again)])
    assert all(isinstance(outcome, Accepted) for outcome in outcomes[-3:])
    assert catalog.functions == {"f": again}


def test_a_cluster_stays_while_something_is_in_it() -> None:
    inside: list[Body] = [AddCluster(C), Create(replace(view(4, "v", "s1"), cluster="c"))]
    life = [*inside, RemoveCluster("c"), Drop(U4), RemoveCluster("c")]
    catalog, outcomes = fold([*BASE, *life, ForgetCluster("c"), AddCluster(C)])
    assert [o for o in outcomes if isinstance(o, Refused)] == [
        Refused("v is in cluster c"),
        Refused("v is in cluster c"),
        Refused("cluster c already exists"),
    ]
    assert list(catalog.clusters.ending) == ["c"]
    catalog, outcomes = fold([*BASE, *inside, *life[3:], Forget(U4), ForgetCluster("c")])
    assert all(isinstance(outcome, Accepted) for outcome in outcomes)
    assert list(catalog.clusters.live) == ["default"]
    assert not catalog.clusters.ending


def test_a_view_shares_a_group_of_its_cluster_alone() -> None:
    sharing = replace(view(4, "v", "s1"), shared_group="g4")
    another = replace(view(5, "w", "s1"), shared_group="g4")
    _, outcomes = fold([*BASE, Create(another)])
    assert isinstance(outcomes[-1], Refused)
    catalog, outcomes = fold([*BASE, Create(sharing), Create(another)])
    assert all(isinstance(outcome, Accepted) for outcome in outcomes)
    assert catalog.group_of(U4) == "g4"
    elsewhere = replace(another, cluster="c")
    _, outcomes = fold([*BASE, AddCluster(C), Create(sharing), Create(elsewhere)])
    assert outcomes[-1] == Refused("no group g4 in cluster c")
    catalog, outcomes = fold([*BASE, Create(sharing), Drop(U4), Create(another)])
    assert outcomes[-1] == Refused("no group g4 in cluster default")
    assert catalog.group_of(U4) == "g4", "until it is forgotten"


def test_records_keep_their_form() -> None:
    """Catalogs that are there are read for ever: of `default` they have no word."""
    event = CatalogEvent(EventId("e"), 3, 9, Create(view(4, "v", "s1")))
    assert codec.name_of(encode(event)) == "catalog_create"
    assert encode(event).hex() == GOLDEN["default"]
    inside = replace(event, body=Create(replace(view(4, "v", "s1"), cluster="c")))
    assert codec.name_of(encode(inside)) == "catalog_create_2"
    assert encode(inside).hex() == GOLDEN["in c"]
    sharing = replace(event, body=Create(replace(view(4, "v", "s1"), shared_group="g4")))
    assert codec.name_of(encode(sharing)) == "catalog_create_3"
    assert encode(sharing).hex() == GOLDEN["shares g4"]
    one = sink(4, "k", "s1")
    assert codec.name_of(encode(replace(event, body=Create(one)))) == "catalog_create"
    several = replace(one, sink=SinkDescription(Topic("t"), ("id",), 8))
    assert codec.name_of(encode(replace(event, body=Create(several)))) == "catalog_create_3"
    bodies: list[Body] = [
        AddCluster(C),
        ScaleCluster("c", 2),
        RescaleCluster("c", 8),
        RemoveCluster("c"),
        ForgetCluster("c"),
    ]
    assert [encode(replace(event, body=body)).hex() for body in bodies] == GOLDEN_CLUSTERS


def test_a_materialization_keeps_what_it_binds_until_it_is_dropped() -> None:
    paused = replace(SHOP, is_paused=True)
    bound = [*BASE, Drop(K3), Forget(K3), Materialize(SHOP), Drop(U2), Materialize(paused)]
    catalog, outcomes = fold(bound)
    assert outcomes[-2] == Refused("shop depends on it")
    assert catalog.materializations.find("SHOP") == paused
    assert catalog.last_number == 4
    other = replace(SHOP, id="m5", name="Shop")
    assert fold([*bound, Materialize(other)])[1][-1] == Refused(
        "materialization shop already exists"
    )
    catalog, outcomes = fold([*bound, Unmaterialize("m4"), Drop(U2), Materialize(SHOP)])
    assert isinstance(outcomes[-2], Accepted)
    assert outcomes[-1] == Refused("no object u2")
    assert catalog.materializations.ending == {"m4": paused}
    catalog, outcomes = fold([*bound, Unmaterialize("m4"), Unbind("m4"), Materialize(other)])
    assert isinstance(outcomes[-1], Accepted)
    assert list(catalog.materializations.live) == ["m5"]
    assert catalog.materializations.ending == {}


def test_an_object_is_born_once() -> None:
    _, outcomes = fold([*BASE, Birth(S1, Timestamp(5)), Birth(S1, Timestamp(6))])
    assert outcomes[-1] == Refused("no object s1 awaits its birth")


def test_of_two_attempts_on_one_version_the_first_counts() -> None:
    catalog, _ = fold(BASE)
    one = CatalogEvent(EventId("a"), 1, catalog.version, Create(source(4, "a")))
    two = CatalogEvent(EventId("b"), 1, catalog.version, Create(source(4, "b")))
    catalog, first = catalog.step(one)
    catalog, second = catalog.step(two)
    assert (first, second) == (Accepted(5), VersionMismatch(5))
    assert catalog.find("b") is None


def test_a_later_epoch_fences_the_earlier() -> None:
    catalog, _ = fold(BASE)
    catalog, _ = catalog.step(CatalogEvent(EventId("o"), 2, catalog.version, Open()))
    late = CatalogEvent(EventId("x"), 1, catalog.version, Drop(K3))
    assert catalog.step(late) == (catalog, Fenced(2))
    again = CatalogEvent(EventId("y"), 2, catalog.version, Open())
    assert catalog.step(again) == (catalog, Fenced(2))
    unopened = CatalogEvent(EventId("z"), 3, catalog.version, Drop(K3))
    assert catalog.step(unopened) == (catalog, Refused("epoch 3 was never opened"))


@given(st.lists(st.sampled_from([*BASE, Drop(S1), Drop(U2), Drop(K3), Forget(K3)])))
def test_names_are_unique_and_inputs_exist_whatever_comes(bodies) -> None:
    catalog, _ = fold(bodies)
    names = [item.name.casefold() for item in catalog.items.values()]
    assert len(set(names)) == len(names)
    assert all(
        collection in catalog.items
        for item in catalog.items.values()
        for collection in item.inputs
    )
    assert not catalog.items.keys() & catalog.dropped.keys()


@pytest.mark.parametrize(
    "body",
    [
        *BASE,
        Create(CALLER),
        Birth(S1, Timestamp(7)),
        Drop(S1),
        Forget(S1),
        Define(F),
        Undefine("f"),
        Materialize(SHOP),
        Unmaterialize("m4"),
        Unbind("m4"),
        ScaleCluster("default", 3),
        RescaleCluster("default", 8),
        AddCluster(C),
        RemoveCluster("c"),
        ForgetCluster("c"),
        Create(replace(view(4, "v", "s1"), cluster="c")),
        Create(replace(view(4, "v", "s1"), cluster="c", shared_group="g4")),
        Create(replace(view(4, "v", "s1"), shared_group="g4")),
        Create(sink(4, "k", "s1")),
        Create(replace(sink(4, "k", "s1"), sink=SinkDescription(Topic("t"), ("id",), 8))),
    ],
)
def test_every_event_comes_back_as_it_was(body) -> None:
    event = CatalogEvent(EventId("e"), 3, 9, body)
    assert decode(encode(event)) == event


@pytest.fixture
def broker():
    broker = MemoryBroker(lambda: 1000)
    broker.topics.create([TopicSpec(CATALOG, 1, TopicKind.LOG)])
    return broker


@pytest.fixture
def logs(broker):
    return broker.logs


CATALOG = Topic("sw.catalog")


def opened(logs) -> CatalogLog:
    counter = itertools.count()
    catalog = CatalogLog(logs, CATALOG, lambda: f"{id(logs)}-{next(counter)}")
    catalog.open()
    return catalog


def test_a_restarted_coordinator_finds_everything(logs) -> None:
    first = opened(logs)
    bodies = iter(BASE[1:])
    for _ in BASE[1:]:
        first.change(lambda _: next(bodies))
    second = opened(logs)
    assert second.state.items == first.state.items
    assert second.state.epoch == 2


def test_a_deposed_coordinator_raises_and_changes_nothing(logs) -> None:
    first, second = opened(logs), opened(logs)
    with pytest.raises(Deposed):
        first.change(lambda _: BASE[1])
    with pytest.raises(Deposed):
        first.sync()
    assert not second.sync().items


def test_a_refused_change_is_misuse(logs) -> None:
    catalog = opened(logs)
    with pytest.raises(InvalidUsage, match="no object s1"):
        catalog.change(lambda _: Drop(S1))


FOREIGN = [
    b"",
    b"from a console producer",
    b"\xc3\x01" + bytes(8),
    codec.encode("catalog_drop", {"event": "e", "epoch": 1, "expected": 1, "id": "s1"})[:-1],
    skipping.encode(Skip(EventId("e"), "g", Offset(1), Offset(0), None, "")),
]


@pytest.mark.parametrize("value", FOREIGN)
def test_what_is_no_event_is_told_and_passed_over(broker, value, caplog) -> None:
    first = opened(broker.logs)
    broker.logs.append([(CATALOG, value)])
    first.change(lambda _: BASE[1])
    broker.logs.append([(CATALOG, value)])
    assert [item.name for item in first.sync().items.values()] == ["orders"]
    second = opened(broker.logs)
    assert second.state.items == first.state.items
    warnings = [record for record in caplog.records if "not a catalog event" in record.message]
    assert len(warnings) == 4


def test_the_marks_of_others_transactions_keep_nobody_waiting(broker) -> None:
    first = opened(broker.logs)
    others = MemoryTransactions(broker.store, "others", lambda: 1000)
    others.init()
    others.commit([OutRecord(CATALOG, None, b"from a transaction")])
    first.change(lambda _: BASE[1])
    assert [item.name for item in opened(broker.logs).state.items.values()] == ["orders"]


def test_a_record_with_its_writers_time_keeps_no_coordinator_down(broker) -> None:
    """What its time would have said is not known; the event itself counts."""
    broker.store.log(CATALOG).is_append_timed = False
    first = opened(broker.logs)
    first.change(lambda _: BASE[1])
    broker.store.log(CATALOG).is_append_timed = True
    (item,) = opened(broker.logs).state.items.values()
    assert (item.name, item.created_ms) == ("orders", None)
