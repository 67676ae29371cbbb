"""Sources by event time that resume: every message that may be read is there once."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streams.compute import binding, continuation
from streams.compute.binding import Fact
from streams.compute.continuation import Wanted
from streams.compute.description import Kept, Start
from streams.plan.metadata import LateRows, Watermark
from tests.support.resumed_histories import (
    BAD,
    PARTITIONS,
    OnError,
    Replica,
    World,
    produce,
    somewhere,
)

SEEDS = [*range(8), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(8, 300))]


def act(world: World, replicas: list[Replica], rng: random.Random) -> None:
    """Something happens: outside, in a replica, or a statement is executed."""
    replica = rng.choice(replicas)
    world.now_ms += rng.randrange(10) if world.bad_share < 0.5 else rng.choice([0, 0, 300])
    match rng.randrange(60):
        case number if number < 22:
            produce(world, rng)
        case number if number < 38:
            if replica.planned is None:
                replica.plan(rng.choice([1, 3, 100]))
        case number if number < 50:
            replica.commit()
        case number if number < 53:
            replica.hear()
        case 53:
            replica.die()
        case 54:
            world.retain(rng.randrange(PARTITIONS), rng.randrange(6))
        case 55 if rng.random() < 0.5 or world.bad_share > 0.5:
            world.cut(rng.randrange(PARTITIONS), rng.randrange(1, 6), replicas)
        case 56 if rng.random() < 0.2:
            world.make_anew(replicas)
            world.resume(somewhere(world, rng))
        case 57 | 58:
            world.resume(somewhere(world, rng), _stopped(world, replica))
        case _:
            world.now_ms += rng.choice([0, 0, 150, 1_200])


def _stopped(world: World, replica: Replica) -> tuple[int, int] | None:
    """The message at which the source stopped, as a replica that heard of all says it."""
    if world.on_error != "fail" or replica.heard != world.start:
        return None
    return replica.bad()


def settle(world: World, replica: Replica) -> None:
    """Go on wherever it stopped, until all is read."""
    for _ in range(60):
        replica.hear()
        quiet = 0
        while quiet < 3:
            world.now_ms += 101
            quiet = 0 if replica.plan(50) else quiet + 1
            replica.commit()
            world.check()
        ends, parts = world.ends(), replica.progress or {}
        is_read = all(part.read == ends[number].high for number, part in parts.items())
        if parts and is_read and not replica.is_stalled():
            return
        bad = replica.bad() if world.on_error == "fail" else None
        stood = continuation.standing(world.shard.bound, world.start)
        places = {
            number: min(max(stood.get(number, 0), end.low), end.high)
            for number, end in ends.items()
        }
        if bad is not None:
            places[bad[0]] = bad[1] + 1
        world.resume(places, bad)
    raise AssertionError("it does not settle")


def run(seed: int, late_rows: LateRows, on_error: OnError) -> World:
    rng = random.Random(seed)
    declared = Watermark(
        column="ts", delay_ms=20, late_rows=late_rows, idle_ms=100, ahead_ms=10**9
    )
    # of bad messages alone many are settled, and upper hardly moves
    are_many_bad = seed % 4 == 3 and on_error == "dead_letter"
    world = World(declared, on_error, bad_share=0.97 if are_many_bad else 0.07)
    replicas = [Replica(world) for _ in range(1 + seed % 3)]
    for _ in range(400):
        act(world, replicas, rng)
        world.check()
    before = world.shard.upper
    settle(world, replicas[0])
    upper, truth = world.shard.upper, world.truth.ahead()
    pending = [at for _, at in truth.pending.values()]
    read = [
        message.at
        for number, log in enumerate(world.logs)
        for message in log.messages[truth.next(number) :]
        if message.at is not BAD
    ]
    assert upper >= max([before, *(at - declared.delay_ms for at in pending + read)])
    assert min(pending, default=upper) >= upper
    return world


@pytest.mark.parametrize("on_error", ["dead_letter", "fail"])
@pytest.mark.parametrize("late_rows", ["place", "dead_letter"])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_message_that_may_be_read_is_there_once(
    seed: int, late_rows: LateRows, on_error: OnError
) -> None:
    world = run(seed, late_rows, on_error)
    assert world.start.generation


resumed = continuation.resumed


def _of_itself_alone(bound: binding.Offsets, start: Start) -> int:
    return binding.newest(bound, start.generation, start.generation)


def _back_to_places_alone(wanted: Wanted, partition: int, read: int) -> int | None:
    place = wanted.places[partition]
    return place if place < read else None


DEFECTS: dict[str, tuple[str, Callable[..., Any], OnError]] = {
    "what is pending is not read again": ("released", continuation.standing, "dead_letter"),
    "what is settled is forgotten": ("settled", lambda *_: {}, "dead_letter"),
    "gaps are read": ("gaps", lambda *_: (), "dead_letter"),
    "no partition goes back": ("_returns", lambda *_: {}, "dead_letter"),
    "former generations are not seen": ("_newest", _of_itself_alone, "dead_letter"),
    "what is not bound is left out": (
        "resumed",
        lambda before, bound, wanted: resumed(before, bound, replace(wanted, bad=None)),
        "fail",
    ),
    "what was settled and lost stays settled": ("_back", _back_to_places_alone, "dead_letter"),
    "other messages are read again": (
        "resumed",
        lambda before, bound, wanted: resumed(before, bound, replace(wanted, lost={})),
        "dead_letter",
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_that_planted_defects_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, planted, on_error = DEFECTS[name]
    monkeypatch.setattr(continuation, function, planted)
    for seed in range(100):
        try:
            run(seed, "place", on_error)
        except (AssertionError, IndexError):
            return
    raise AssertionError("no history finds it")


def test_what_was_read_and_is_not_bound_is_kept_before_a_bad_message() -> None:
    """Nothing has moved upper yet, so that the binding is empty."""
    wanted = Wanted(places={0: 6, 1: 2}, lows={0: 1, 1: 2}, bad=(0, 5))
    start = continuation.resumed(Start(), {}, wanted)
    assert start == Start(1, ((0, 1), (1, 2)), Kept(0, gaps=((0, 5, 6),)))
    assert continuation.standing({}, start) == {0: 1, 1: 2}
    again = continuation.resumed(start, {}, Wanted(places={0: 9, 1: 2}, bad=(0, 8)))
    assert again.kept == Kept(0, gaps=((0, 5, 6), (0, 8, 9)))


def test_what_the_topic_no_longer_holds_is_a_gap_and_what_is_bound_stays() -> None:
    bound = binding.extended({0: 9, 1: 4}, 0, {0: 3, 1: 4}, Fact.RELEASED)
    wanted = Wanted(places={0: 9, 1: 4}, lows={0: 7, 1: 4})
    start = continuation.resumed(Start(), bound, wanted)
    assert start.kept == Kept(0, gaps=((0, 3, 7),))
    assert continuation.standing(bound, start) == {0: 9, 1: 4}
    assert continuation.released(bound, start) == {0: 7, 1: 4}
    latest = continuation.resumed(Start(), bound, Wanted(places={0: 12, 1: 4}, lows={0: 10}))
    assert latest.kept == Kept(0, gaps=((0, 3, 12),))
    assert continuation.added(start, latest, 0) == ((7, 12),)


def test_where_nothing_is_bound_settled_messages_of_a_lost_end_are_unsettled_alone() -> None:
    """What is before the lost end is read on from where it was."""
    start = continuation.resumed(Start(), {}, Wanted(places={0: 6}, lows={0: 0}, lost={0: 4}))
    assert start.kept == Kept(0, returns=((0, 1, 6),), gaps=((0, 4, 6),))
    assert continuation.standing({}, start) == continuation.released({}, start) == {0: 0}
    assert continuation.settled({0: 9}, start) == {0: 6}


def test_a_partition_that_is_read_anew_holds_the_watermark_back_again() -> None:
    bound = binding.extended({0: 9, 1: 4}, 0, {0: 1_000, 1: 500}, Fact.EVENT_TIME)
    start = continuation.resumed(Start(), bound, Wanted(places={0: 7, 1: 8}, lost={0: 7}))
    assert continuation.greatest(bound, start) == {1: 500}
    bound = binding.extended(bound, 1, {0: 8, 1: 8})
    bound = binding.extended(bound, 1, {0: 700, 1: 800}, Fact.EVENT_TIME)
    assert continuation.greatest(bound, start) == {0: 700, 1: 800}
