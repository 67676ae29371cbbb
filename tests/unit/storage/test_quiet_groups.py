"""A quiet group is held in few bytes, and answers as if it were not."""

import gc
import random
import tracemalloc
from contextlib import nullcontext

import pytest

from streams.errors import Corrupt
from streams.ids import EventId, Offset, Timestamp, Topic
from streams.kafka.log import Entry
from streams.storage.client import quiet_groups
from streams.storage.client.group import Group, names_of
from streams.storage.client.quiet_groups import QUIET_S, Quiet
from streams.storage.client.shards import Shards
from streams.storage.log import event_codec, packing, rollup
from streams.storage.log.dedup_window import COMMAND, WINDOW
from streams.storage.log.events import Advance, Event, Reclaim, Rollup
from streams.storage.log.outcomes import RolledUp, Stale
from tests.support.shard_clients import DESCRIPTION, U1, append, broker, client

APPENDS = 1_800
LOG = Topic("sw.g.log")


def group() -> Group:
    return Group(names_of("sw", "g"), topic_id="g", uuid="g")


def entry(event: Event, offset: int) -> Entry:
    return Entry(LOG, Offset(offset), 1_000 + offset, event_codec.encode(event))


def event(id_: str, seen: int) -> Event:
    return Event(EventId(id_), "g", Offset(seen), Reclaim({0: max(seen, 0)}))


def grown(records_: int) -> Group:
    made = group()
    for offset in range(records_):
        made.fold(entry(event(f"e{offset}", offset - 1), offset))
    return made


def pack(made: Group) -> None:
    while made.pack(nullcontext()):
        pass


def test_a_follower_holds_little_of_a_group_that_was_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It held 740 KiB for as long as the group was quiet."""
    monkeypatch.setattr(quiet_groups, "QUIET_S", 0.0)
    made = broker()
    with client(made) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        for time in range(APPENDS):
            append(one, time, time + 1)

    def follow(other: Shards) -> None:
        other.open("u1")
        for _ in range(40):
            other.following.advance(0)
        gc.collect()

    with client(made) as warm, client(made) as other:
        follow(warm)  # what a process holds once is no matter of the group
        tracemalloc.start()
        try:
            follow(other)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert other.state(U1).upper.time == APPENDS
        assert held < 96 * 1024  # 43 KiB, and free lists of the interpreter, once a process


def test_the_outcomes_of_commands_are_held_once() -> None:
    """It held 63 KiB: those of the window beside the same among those that are kept longer."""
    chance = random.Random(7)
    grown(WINDOW)  # what a process holds once
    tracemalloc.start()
    try:
        made = group()
        for offset in range(APPENDS):
            id_ = f"{COMMAND}{chance.randbytes(16).hex()}:0"
            made.fold(entry(event(id_, offset - 1), offset))
        pack(made)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 50 * 1024


def test_a_group_that_was_packed_folds_as_one_that_was_not() -> None:
    chance = random.Random(7)
    whole, often = group(), group()
    ids = [f"e{number}" for number in range(300)]
    outcomes: set[str] = set()
    for offset in range(2 * WINDOW):
        id_ = chance.choice(["", COMMAND]) + chance.choice([*ids, f"n{offset}"])
        seen = offset - chance.choice([1, 1, 2, 70, WINDOW - 1, WINDOW, WINDOW + 2])
        made = entry(event(id_, seen), offset)
        expected, actual = whole.fold(made), often.fold(made)
        assert actual == expected
        assert expected is not None
        outcomes.add(type(expected[1]).__name__)
        if chance.random() < 0.01:
            pack(often)
            assert rollup.encode(often.state) == rollup.encode(whole.state)
            newest, again = whole.newest_retained(), often.newest_retained()
            if newest is not None and again is not None:
                assert rollup.encode(again) == rollup.encode(newest)
            assert (newest is None) == (again is None)
    assert outcomes == {"Reclaimed", Stale.__name__}


@pytest.mark.parametrize("upto", [255, 1_151, 1_215])
def test_a_packed_group_checks_every_rollup_that_counts(upto: int) -> None:
    end = 1_216
    honest = rollup.hash_of(rollup.encode(grown(upto + 1).state))
    for hash_, is_false in ((honest, False), ("0" * 64, True)):
        made = grown(end)
        pack(made)
        assert len(made.retained) == 1
        body = Rollup(upto=Offset(upto), chunks=(), hash=hash_)
        record = entry(Event(EventId("r"), "g", Offset(end - 1), body), end)
        if is_false:
            with pytest.raises(Corrupt, match=f"expected a rollup of the state at {upto}"):
                made.fold(record)
        else:
            found = made.fold(record)
            assert found is not None
            assert isinstance(found[1], RolledUp)


def test_states_that_no_rollup_can_be_made_of_any_more_go() -> None:
    made = grown(200)
    assert [state.upto for state in made.retained] == [63, 127, 191]
    hash_ = rollup.hash_of(rollup.encode(made.retained[1]))
    body = Rollup(upto=Offset(127), chunks=(), hash=hash_)
    made.fold(entry(Event(EventId("r"), "g", Offset(199), body), 200))
    assert [state.upto for state in made.retained] == [191]


def test_a_group_is_not_packed_again_for_a_few_records() -> None:
    made = grown(200)
    pack(made)
    state = made.state
    made.fold(
        entry(Event(EventId("a"), "g", Offset(199), Advance(Timestamp(0), Timestamp(1))), 200)
    )
    pack(made)
    assert made.packed == state.upto
    for offset in range(201, 200 + packing.WORTH):
        made.fold(entry(event(f"e{offset}", offset - 1), offset))
    pack(made)
    assert made.packed == made.state.upto


def test_what_is_folded_while_outcomes_are_packed_stays() -> None:
    made = grown(63)

    class Lock(nullcontext[None]):
        """Other threads fold whenever it is free."""

        def __exit__(self, *_: object) -> None:
            offset = made.state.upto + 1
            made.fold(entry(event(f"e{offset}", offset - 1), offset))

    made.pack(Lock())
    assert made.packed == -1
    again = grown(made.state.upto + 1)
    assert rollup.encode(made.state) == rollup.encode(again.state)


def test_groups_are_due_when_they_have_not_moved_for_a_while() -> None:
    machine = Quiet()
    machine.moved(("a", "b"), 0.0)
    machine.moved(("a",), 1.0)
    assert machine.due(QUIET_S - 0.1) is None
    assert machine.due(QUIET_S) == "b"
    assert machine.due(QUIET_S) is None
    machine.again("b")
    assert machine.due(QUIET_S) == "b"
    machine.moved(("b",), QUIET_S)
    machine.again("b")  # it moved meanwhile
    assert machine.due(QUIET_S + 1.0) == "a"
    assert machine.due(QUIET_S + 1.0) is None
    assert machine.due(2 * QUIET_S) == "b"
