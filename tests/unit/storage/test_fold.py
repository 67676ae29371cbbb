"""Laws of the fold, over random logs."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from streams.ids import Offset, Timestamp
from streams.progress import Antichain, frontier
from streams.storage.log import event_codec, rollup
from streams.storage.log.events import Acquire, Append, Clone, Transfer
from streams.storage.log.machine import step
from streams.storage.log.outcomes import Acquired, Appended, Cloned, Transferred
from streams.storage.log.state import State
from streams.storage.read import reader as read
from tests.support.examples import examples
from tests.support.histories import History, histories

LAW = examples(40)


def fold(history: History, state: State) -> State:
    for number, (event, at_ms) in enumerate(history.records):
        if number > state.upto:
            state, _ = step(state, event, Offset(number), at_ms)
    return state


@LAW
@given(histories())
def test_the_fold_of_the_bytes_is_the_fold_of_the_events(history: History) -> None:
    state = State()
    for number, (event, at_ms) in enumerate(history.records):
        decoded = event_codec.decode(event_codec.encode(event))
        assert decoded == event
        state, outcome = step(state, decoded, Offset(number), at_ms)
        assert outcome == history.outcomes[number]
    assert rollup.encode(state) == rollup.encode(history.state)


@LAW
@given(histories(), st.data())
def test_rollup_and_tail_are_the_full_fold(history: History, data: st.DataObject) -> None:
    upto = data.draw(st.integers(0, len(history.states) - 1))
    loaded = rollup.decode(rollup.encode(history.states[upto]))
    assert rollup.encode(loaded) == rollup.encode(history.states[upto])
    assert rollup.encode(fold(history, loaded)) == rollup.encode(history.state)


@LAW
@given(histories())
def test_frontiers_only_move_forward(history: History) -> None:
    for before, after in zip(history.states, history.states[1:], strict=False):
        assert after.clock_ms >= before.clock_ms
        for id_, old in before.collections.items():
            new = after.collections[id_]
            assert old.since.precedes(new.since)
            assert old.upper.precedes(new.upper)
            # and there is always a time to read once there was one
            if old.since != old.upper and not new.upper.is_empty:
                assert new.since.is_empty or new.since.strictly_precedes(new.upper)


@LAW
@given(histories(), st.data())
def test_a_copy_never_changes_what_collections_hold(
    history: History, data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, len(history.records) - 1))
    event, _ = history.records[number]
    at_ms = history.state.appended_ms  # so that no lease ends meanwhile
    state, outcome = step(history.state, event, Offset(len(history.records)), at_ms)
    assert outcome == history.outcomes[number]
    aside = replace(state, upto=history.state.upto)
    assert rollup.encode(aside) == rollup.encode(history.state)


@LAW
@given(histories())
def test_what_does_not_count_links_nothing(history: History) -> None:
    states = zip(history.states, history.states[1:], strict=False)
    for (event, _), outcome, (before, after) in zip(
        history.records, history.outcomes, states, strict=True
    ):
        linked = {b.name for c in after.collections.values() for b in c.batches}
        names = {b.name for c in before.collections.values() for b in c.batches}
        fresh = {name for name in linked - names if name.offset == after.upto}
        kinds = {"Append", "Advance", "Downgrade", "Replace"}
        if fresh:
            assert type(event.body).__name__ in kinds
            assert type(outcome).__name__ in {
                "Appended",
                "Advanced",
                "Downgraded",
                "Replaced",
            }


@LAW
@given(histories(), st.integers(0, 60), st.integers(1, 30))
def test_pieces_are_those_of_the_overlapping_batches(
    history: History, lower: int, width: int
) -> None:
    upper = lower + width
    for collection in history.state.collections.values():
        expected = sorted(
            (ref.key, max(batch.lower, lower), min([upper, *batch.upper.elements]))
            for batch in collection.batches
            if batch.lower < upper and not batch.upper.precedes(frontier(lower))
            for ref in batch.chunks
        )
        pieces = read.pieces(collection, Timestamp(lower), Timestamp(upper))
        assert sorted((p.ref.key, p.lower, p.upper) for p in pieces) == expected


@LAW
@given(histories())
def test_a_capability_appends_each_time_at_most_once(history: History) -> None:
    """One that was acquired anew after it had ended begins where it is told to."""
    ends: dict[tuple[str, str], Antichain] = {}
    counted: set[str] = set()
    for (event, _), outcome in zip(history.records, history.outcomes, strict=True):
        if event.id in counted:
            continue
        match event.body, outcome:
            case Acquire(collection=collection, capability=name), Acquired(frontier=start):
                counted.add(event.id)
                ends[collection, name] = start
            case Clone(collection=collection, clone=name), Cloned(frontier=start):
                counted.add(event.id)
                ends[collection, name] = start
            case Transfer(collection=collection, to=name), Transferred(frontier=start):
                counted.add(event.id)
                ends[collection, name] = start
            case Append(parts), Appended():
                counted.add(event.id)
                for part in parts:
                    key = part.collection, part.capability
                    assert ends.get(key, part.lower).precedes(part.lower)
                    ends[key] = part.upper
            case _:
                pass
