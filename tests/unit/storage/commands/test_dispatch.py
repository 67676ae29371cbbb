"""Which commands go together, which wait for which, and who overtakes whom."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from streams.ids import CapabilityId, CollectionId, Offset
from streams.progress import EMPTY, frontier
from streams.storage.client.handles import ReadCapability, WriteCapability
from streams.storage.commands import wire
from streams.storage.commands.dedup import Report
from streams.storage.commands.dispatch import (
    BATCH,
    CREATIONS,
    Capacity,
    Crowd,
    Home,
    PendingRecords,
)
from streams.storage.commands.executor import NAMED
from streams.storage.log.dedup_window import KEPT, WINDOW


def about(command: wire.Command, offset: int, id_: str = "") -> wire.Request:
    return wire.Request(id_ or f"c{offset}", Offset(offset), 0, command)


def create(id_: str, group: str = "") -> wire.Command:
    return wire.Create(CollectionId(id_), "{}", 0, group or id_, None, is_critical=False)


def drop(id_: str, *, whole: bool = True) -> wire.Command:
    read = ReadCapability(CollectionId(id_), frontier(0))
    return wire.Drop(CollectionId(id_), read, whole)


def heartbeat(id_: str) -> wire.Command:
    return wire.Heartbeat(ReadCapability(CollectionId(id_), frontier(0), CapabilityId("r")))


def update(*ids: str) -> wire.UpdateAndDowngrade:
    shares = tuple(
        wire.Share(WriteCapability(CollectionId(id_), frontier(0)), None, (), frontier(1))
        for id_ in ids
    )
    return wire.UpdateAndDowngrade(shares, checks_counts=False)


def counted(id_: str) -> wire.Command:
    return replace(update(id_), checks_counts=True)


def seal(id_: str) -> wire.Command:
    share = wire.Share(WriteCapability(CollectionId(id_), frontier(0)), None, (), EMPTY)
    return wire.UpdateAndDowngrade((share,), checks_counts=False)


def subscribe(id_: str) -> wire.Command:
    return wire.SubscribeAt(ReadCapability(CollectionId(id_), frontier(0)), None, None, ())


def desk_of(
    *records: wire.Request | Report, home: Home = lambda id_: id_, is_alone: bool = False
) -> PendingRecords:
    pending = PendingRecords()
    pending.lay([(record, 1) for record in records], home, is_alone=is_alone)
    return pending


def offsets(crowds: Sequence[Crowd]) -> list[list[int]]:
    return [[item.offset for item in crowd] for crowd in crowds]


def picked(
    pending: PendingRecords, *, together: bool = True, alone: int = 9, now: float = 0.0
) -> list[Crowd]:
    return pending.pick(now, Capacity(together=together, alone=alone))


def rounds(*commands: wire.Command, home: Home = lambda id_: id_) -> list[list[list[int]]]:
    """What is carried out after what: crowds at once, as offsets."""
    pending = desk_of(
        *(about(command, number) for number, command in enumerate(commands)), home=home
    )
    order = []
    while len(pending):
        crowds = picked(pending)
        order.append(offsets(crowds))
        for crowd in crowds:
            pending.answered(crowd)
    return order


def test_the_bound_that_makes_a_zombie_harmless_holds_for_the_registry() -> None:
    """One name a creation, of those up to so many ahead of it or behind."""
    services = 3
    assert KEPT - services * 2 * CREATIONS > WINDOW
    assert KEPT - services * NAMED * BATCH > WINDOW


def test_what_does_not_depend_on_one_another_goes_together() -> None:
    batches = rounds(update("a"), update("a", "b"), update("b"), home=lambda _: "g")
    assert batches == [[[0, 1, 2]]]
    assert rounds(create("a"), create("b"), update("c")) == [[[2], [0], [1]]]
    assert rounds() == []


def test_what_is_looked_up_waits_for_what_comes_before() -> None:
    assert rounds(create("a"), update("a")) == [[[0]], [[1]]]
    assert rounds(update("a"), drop("a"), drop("a"), update("b")) == [[[0, 3]], [[1]], [[2]]]
    assert rounds(update("a"), subscribe("a"), update("a")) == [[[0]], [[1]], [[2]]]
    batches = rounds(update("a"), drop("a", whole=False), update("a"), update("b"))
    assert batches == [[[0, 3]], [[1]], [[2]]]
    assert rounds(update("a"), seal("a"), update("a"), update("b")) == [[[0, 3]], [[1]], [[2]]]


def test_a_command_that_may_wait_keeps_nobody_waiting_but_its_group() -> None:
    pending = desk_of(
        about(counted("a"), 0),
        about(heartbeat("b"), 1),
        about(heartbeat("a"), 2),
        about(heartbeat("c"), 3),
        about(counted("d"), 4),
        home={"a": "g", "c": "g"}.get,
    )
    crowds = picked(pending, alone=1)
    assert offsets(crowds) == [[0]]  # b is of no group that is followed, so it may wait as well
    (crowd,) = picked(pending, alone=1)
    assert offsets([crowd]) == [[1]]
    pending.answered(crowd)
    assert offsets(picked(pending, alone=0)) == []  # a and c share a group
    assert offsets(picked(pending)) == [[4]]
    pending.answered(crowds[0])
    assert offsets(picked(pending)) == [[2, 3]]


def test_who_sends_much_makes_others_wait_for_one_turn() -> None:
    """They used to wait for all that one client had sent before, about however many groups."""
    greedy = [counted(f"{group}") for _ in range(5) for group in "abcd"]
    pending = desk_of(
        *(about(command, n) for n, command in enumerate([*greedy, counted("honest")]))
    )
    served: list[str] = []
    while len(pending):
        crowds = picked(pending, alone=4)
        served += [str(id_) for (item,) in crowds for id_ in item.collections]
        pending.answered([item for crowd in crowds for item in crowd])
    assert served[:5] == [*"abcd", "honest"]
    assert len(served) == 21


def test_a_stranger_s_command_chains_nobody_to_what_it_waits_for() -> None:
    """Of what nobody follows yet it was not known that a command about both is refused."""
    waiting, both, honest = counted("slow"), update("slow", "honest"), counted("honest")
    pending = PendingRecords()
    records = [(about(command, n), 1) for n, command in enumerate([waiting, both, honest])]
    pending.lay(records, lambda _: None, lambda id_: id_, is_alone=False)
    assert offsets(picked(pending)) == [[0], [1], [2]]
    pending = PendingRecords()
    pending.lay(records, lambda _: None, lambda _: "one", is_alone=False)
    assert offsets(picked(pending)) == [[0]]  # of one group they stay in order


def test_what_is_set_aside_is_not_overtaken_by_its_own_group() -> None:
    pending = desk_of(about(heartbeat("a"), 0), about(heartbeat("b"), 1))
    ((first, second),) = picked(pending)
    pending.put_back([first], 5.0)
    pending.answered([second])
    pending.lay([(about(heartbeat("a"), 2), 1)], lambda id_: id_, is_alone=False)
    assert picked(pending, now=4.0) == []
    assert offsets(picked(pending, now=5.0)) == [[0]]
    pending.answered([first])
    assert offsets(picked(pending)) == [[2]]
    assert pending.size == 1


def test_a_copy_waits_for_the_command_itself() -> None:
    pending = desk_of(about(heartbeat("a"), 0, "x"), about(heartbeat("b"), 1, "x"))
    (crowd,) = picked(pending)
    assert offsets([crowd]) == [[0]]
    assert picked(pending) == []
    pending.answered(crowd)
    assert offsets(picked(pending)) == [[1]]


def test_a_copy_holds_up_nobody_else() -> None:
    """Somebody who waits may have used an id that another's command has, too."""
    pending = desk_of(about(counted("a"), 0, "x"), about(heartbeat("b"), 1, "x"))
    picked(pending)
    pending.lay([(about(heartbeat("b"), 2), 1)], lambda id_: id_, is_alone=False)
    assert offsets(picked(pending)) == [[2]]


def test_a_command_about_several_groups_holds_up_none_of_them() -> None:
    """It is refused; it used to have others wait for whatever one of them waits for."""
    pending = desk_of(about(counted("a"), 0), about(update("a", "b"), 1), about(update("b"), 2))
    assert offsets(picked(pending)) == [[2], [0], [1]]
    homes = {"b": "b"}
    pending = desk_of(about(counted("a"), 0), about(update("a", "b"), 1), home=homes.get)
    pending.lay([(about(update("b"), 2), 1)], homes.get, is_alone=False)
    assert offsets(picked(pending)) == [[2], [0]]


def test_reports_wait_for_nothing() -> None:
    report = Report(Offset(1), 0, wire.Outcome(status=wire.Status.MALFORMED))
    pending = desk_of(about(counted("a"), 0), report, about(update("a"), 2))
    assert offsets(picked(pending)) == [[1], [0]]


def test_a_second_crowd_begins_while_the_first_takes_long() -> None:
    pending = desk_of(about(heartbeat("a"), 0))
    (crowd,) = picked(pending)
    pending.lay([(about(heartbeat("b"), 1), 1)], lambda id_: id_, is_alone=False)
    assert picked(pending, together=False) == []
    assert offsets(picked(pending)) == [[1]]
    pending.answered(crowd)


def test_a_creation_is_not_too_far_ahead_of_the_first_that_waits() -> None:
    pending = desk_of(*(about(create(f"t{n}"), n) for n in range(CREATIONS + 2)))
    crowds = picked(pending, alone=1 << 20)
    assert len(crowds) == CREATIONS
    pending.answered(crowds[1])
    assert picked(pending) == []
    pending.answered(crowds[0])
    assert offsets(picked(pending)) == [[CREATIONS], [CREATIONS + 1]]


KINDS = st.sampled_from([create, drop, heartbeat, update, counted, seal, subscribe])
COMMANDS = st.lists(st.tuples(KINDS, st.sampled_from("abcd")), max_size=20)


@given(COMMANDS, st.randoms(use_true_random=False), st.integers(0, 3))
def test_each_group_has_its_commands_in_order(
    drawn: list[tuple[object, str]], rng: object, alone: int
) -> None:
    """Whatever is set aside, takes long or fails; and everything is carried out in the end."""
    homes = {"a": "g", "b": "g", "c": "c"}  # d is followed by nobody
    groups = [homes.get(id_, id_) for _, id_ in drawn]
    records = [about(kind(id_), n) for n, (kind, id_) in enumerate(drawn)]  # type: ignore[operator]
    pending, under_way, done = desk_of(*records, home=homes.get), list[Crowd](), list[int]()
    while len(pending):
        for crowd in picked(pending, alone=alone + 1):
            mine = [groups[item.offset] for item in crowd]
            others = {groups[item.offset] for items in under_way for item in items}
            assert not others & set(mine)
            under_way.append(crowd)
        crowd = under_way.pop(rng.randrange(len(under_way)))  # type: ignore[attr-defined]
        if rng.random() < 0.3:  # type: ignore[attr-defined]
            pending.put_back(crowd, 0.0)
        else:
            pending.answered(crowd)
            done += [item.offset for item in crowd]
    assert sorted(done) == list(range(len(drawn)))
    for group in set(groups):
        assert [n for n in done if groups[n] == group] == sorted(
            n for n in done if groups[n] == group
        )
