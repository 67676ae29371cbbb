from dataclasses import replace

import pytest

from streams.compute.protocol import (
    AllowCompaction,
    AllowWrites,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    InitializationComplete,
)
from streams.compute.session import (
    Action,
    Compact,
    Configure,
    Create,
    Drop,
    Reconcile,
    Restart,
    Session,
    Stage,
)
from streams.errors import InvalidUsage
from streams.ids import CollectionId, Timestamp
from streams.progress import EMPTY, frontier
from tests.unit.compute.commands import INGESTION, INSTANCE, description

U1, U2, U3 = (CollectionId(f"u{number}") for number in (1, 2, 3))


def run(session: Session, *commands: Command) -> tuple[Session, list[Action]]:
    actions: list[Action] = []
    for command in commands:
        session, new = session.step(command)
        actions.extend(new)
    return session, actions


def iteration(nonce: str, *computations: Command) -> tuple[Command, ...]:
    return (
        CreateTimely(nonce, 1),
        INSTANCE,
        *computations,
        InitializationComplete(),
        AllowWrites(),
    )


def creates(*exports: CollectionId) -> list[Command]:
    return [CreateDataflow(description(export)) for export in exports]


def test_nothing_starts_before_initialization_is_complete() -> None:
    session, actions = run(Session(), CreateTimely("a", 1), INSTANCE, *creates(U1, U2))
    assert actions == [Configure(INSTANCE)]
    session, actions = run(session, InitializationComplete())
    assert actions == [
        Create(description(U1)),
        Create(description(U2)),
        Reconcile(kept=(), created=2, dropped=0),
    ]
    assert session.stage is Stage.READ_ONLY
    session, actions = run(session, AllowWrites())
    assert actions == []
    assert session.may_write
    assert session.stage is Stage.READ_WRITE


def test_the_same_iteration_again_changes_nothing() -> None:
    session, _ = run(Session(), *iteration("a", *creates(U1, U2)))
    session, actions = run(session, *iteration("b", *creates(U1, U2)))
    assert actions == [Reconcile(kept=(U1, U2), created=0, dropped=0)]
    assert session.may_write


def test_what_is_missing_or_different_goes_first_and_in_silence() -> None:
    session, _ = run(Session(), *iteration("a", *creates(U1, U2)))
    changed = CreateDataflow(description(U2, plan="other"))
    session, actions = run(session, *iteration("b", changed, *creates(U3)))
    assert actions == [
        Drop(U1, silent=True),
        Drop(U2, silent=True),
        Create(changed.description),
        Create(description(U3)),
        Reconcile(kept=(), created=2, dropped=2),
    ]
    assert set(session.running) == {U2, U3}


def test_what_is_renamed_or_compacted_goes_on() -> None:
    session, _ = run(Session(), *iteration("a", *creates(U1, U2, U3)))
    session, _ = run(session, AllowCompaction(U2, frontier(8)))
    renamed = replace(description(U1), name="renamed")
    told: list[Command] = [
        CreateDataflow(renamed),
        CreateDataflow(description(U2, as_of=8)),
        CreateDataflow(description(U3)),
        AllowCompaction(U3, frontier(9)),
    ]
    session, actions = run(session, *iteration("b", *told))
    assert actions == [
        Compact(U3, frontier(9)),
        Reconcile(kept=(U1, U2, U3), created=0, dropped=0),
    ]
    assert session.running[U1].name == "renamed"
    assert session.running[U3].as_of == 9


def test_an_as_of_that_goes_back_is_of_a_new_dataflow() -> None:
    session, _ = run(Session(), *iteration("a", *creates(U1)))
    session, _ = run(session, AllowCompaction(U1, frontier(8)))
    _, actions = run(session, *iteration("b", *creates(U1)))
    assert actions[:2] == [Drop(U1, silent=True), Create(description(U1))]


def test_a_source_that_begins_elsewhere_is_another_one() -> None:
    later = replace(INGESTION, as_of=Timestamp(INGESTION.as_of + 1))
    session, _ = run(Session(), *iteration("a", CreateDataflow(INGESTION)))
    session, actions = run(session, AllowCompaction(INGESTION.export, frontier(10**15)))
    assert actions == []
    session, actions = run(session, *iteration("b", CreateDataflow(INGESTION)))
    assert actions == [Reconcile(kept=(INGESTION.export,), created=0, dropped=0)]
    _, actions = run(session, *iteration("c", CreateDataflow(later)))
    assert actions[:2] == [Drop(INGESTION.export, silent=True), Create(later)]


def test_while_a_new_iteration_is_told_everything_runs_on() -> None:
    session, _ = run(Session(), *iteration("a", *creates(U1)))
    session, actions = run(session, CreateTimely("b", 1), INSTANCE)
    assert set(session.running) == {U1}
    assert actions == []
    # the coordinator died in the middle: the next one starts anew
    session, actions = run(session, *iteration("c", *creates(U1)))
    assert actions[0] == Reconcile(kept=(U1,), created=0, dropped=0)


def test_a_drop_is_done_and_reported_even_of_the_unknown() -> None:
    session, _ = run(Session(), *iteration("a", *creates(U1)))
    session, actions = run(
        session, AllowCompaction(U1, EMPTY), AllowCompaction(U3, EMPTY), CreateTimely("b", 1)
    )
    assert actions == [Drop(U1, silent=False), Drop(U3, silent=False)]
    assert not session.running


def test_a_drop_told_in_initialization_is_reported() -> None:
    session, _ = run(Session(), *iteration("a", *creates(U1)))
    again = iteration("b", *creates(U2), AllowCompaction(U1, EMPTY), AllowCompaction(U3, EMPTY))
    session, actions = run(session, *again)
    assert actions[:2] == [Drop(U1, silent=False), Drop(U3, silent=False)]


def test_compaction_reaches_what_runs() -> None:
    session, _ = run(Session(), *iteration("a", *creates(U1)))
    session, actions = run(
        session,
        *(AllowCompaction(key, frontier(7)) for key in (U1, U2, U1)),
        AllowCompaction(U1, frontier(4)),
    )
    assert actions == [Compact(U1, frontier(7))]


@pytest.mark.parametrize(
    ("before", "command"),
    [
        ((), INSTANCE),
        ((), AllowWrites()),
        ((CreateTimely("a", 1),), CreateDataflow(description(U1))),
        ((CreateTimely("a", 1), INSTANCE), AllowWrites()),
        ((CreateTimely("a", 1), INSTANCE), INSTANCE),
        ((CreateTimely("a", 1), INSTANCE, InitializationComplete()), InitializationComplete()),
    ],
)
def test_an_illegal_command_raises_and_changes_nothing(before, command) -> None:
    session, _ = run(Session(), *before)
    with pytest.raises(InvalidUsage, match="is not legal in the stage"):
        session.step(command)


def test_an_instance_is_configured_once() -> None:
    session, _ = run(Session(), *iteration("a"), CreateTimely("b", 1))
    unchanged, (action,) = session.step(CreateInstance("sw", 99))
    assert unchanged == session
    assert isinstance(action, Restart)
    assert action.reason == (
        "the compute instance has changed from 2 buckets in namespace sw"
        " to 99 buckets in namespace sw: a replica takes that when it starts"
    )


def test_an_export_is_created_once_in_an_iteration() -> None:
    session, _ = run(Session(), *iteration("a", *creates(U1)))
    with pytest.raises(InvalidUsage, match="created twice"):
        session.step(CreateDataflow(description(U1)))
