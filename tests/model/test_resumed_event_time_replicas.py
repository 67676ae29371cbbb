"""Replicas that resume by event time: exact at every event time, through races and kills."""

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from streams.compute import binding
from streams.compute.binding import Fact
from streams.compute.description import Kept
from streams.plan.metadata import LateRows
from streams.replica.config import Budgets
from streams.replica.driver.work_units import EventUnit
from tests.support.event_histories import EVENTS, PARTITIONS, History
from tests.support.racing_replicas import SEEDS, race_at_random
from tests.support.resumed_topics import KeyedResumedHistory, ResumedHistory
from tests.support.sparkless import Replica, World


def retain_or_resume(history: ResumedHistory | KeyedResumedHistory, rng: random.Random) -> None:
    """Seldom lose the beginning of a partition, or resume somewhere."""
    match rng.randrange(60):
        case 0:
            history.retain(rng.randrange(PARTITIONS), rng.randrange(5))
        case 1 | 2 | 3:
            history.resume(history.somewhere(rng))
        case _:
            pass


def settle(history: ResumedHistory | KeyedResumedHistory, replicas: Iterable[Replica]) -> None:
    """Let each replica finish, and judge the whole history."""
    history.look()
    for replica in replicas:
        history.settle(replica)
    history.judge()


@pytest.mark.parametrize("late_rows", ["place", "dead_letter"])
@pytest.mark.parametrize("seed", SEEDS)
def test_that_racing_replicas_that_resume_are_exact_at_every_event_time(
    seed: int, late_rows: LateRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, rng = World(), random.Random(seed)
    world.patch(monkeypatch)
    history = ResumedHistory(world, late_rows, History(world, late_rows, "dead_letter"))

    def outside(round_: int, act: float) -> None:
        history.look()
        history.judge()
        for _ in range(rng.randrange(4) if act > 0.5 else 0):
            at: int | None = world.now + rng.randrange(-100, 100)
            if rng.random() < 0.3:
                at = rng.choice([None, world.now - 2_000, world.now + 900, world.now + 10**6])
            history.send(rng.randrange(PARTITIONS), at)
        retain_or_resume(history, rng)

    settle(history, race_at_random(world, rng, tmp_path, 150, outside))
    assert history.truth.rows.total() > 10
    assert history.truth.generation


@pytest.mark.parametrize("late_rows", ["place", "dead_letter"])
@pytest.mark.parametrize("seed", SEEDS)
def test_that_racing_replicas_that_resume_keep_the_latest_row_of_each_key(
    seed: int, late_rows: LateRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, rng = World(), random.Random(seed)
    world.patch(monkeypatch)
    history = KeyedResumedHistory(world, late_rows)

    def outside(_: int, act: float) -> None:
        history.look()
        if act > 0.5:
            history.write_some(rng, 4)
        retain_or_resume(history, rng)

    settle(history, race_at_random(world, rng, tmp_path, 150, outside))
    assert history.truth.generation


def test_that_pending_rows_that_are_gone_are_given_up_and_the_others_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic was silent for longer than its retention, and the replica started again."""
    world = World()
    world.patch(monkeypatch)
    history = ResumedHistory(world, "place", History(world, "place", "dead_letter"))
    for at in (0, 500, 400, 600, 560):
        history.send(0, world.now + at)
    history.settle(Replica(world, "r", tmp_path / "r", Budgets(messages=1)))
    released = binding.facts(history.bound(), 0, Fact.RELEASED)
    assert released[0] == 3
    history.retain(0, 4)
    replica = Replica(world, "other", tmp_path / "other")
    replica.follow()
    replica.start()
    for lane in (*replica.lanes(), *replica.lanes()):
        replica.step(lane)
    trouble = replica.scheduler.flows[EVENTS].trouble
    assert trouble is not None
    assert trouble.message.endswith("ALTER SOURCE ... RESUME FROM OFFSETS (0 => 5)")
    history.resume({0: 5})
    assert history.source.start.kept == Kept(0, gaps=((0, 3, 4),))
    history.send(0, world.now + 2_000)
    history.settle(Replica(world, "new", tmp_path / "new"))
    history.judge()
    numbers = {number for number, _ in history.truth.rows}
    assert numbers == {0, 1, 2, 4}, "3 is gone, 5 is pending"


def test_that_a_skip_is_said_though_no_message_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By event time upper moves with rows alone, so such dead letters do not wait for it."""
    world = World()
    world.patch(monkeypatch)
    history = ResumedHistory(world, "place", History(world, "place", "dead_letter"))
    for at in (0, 500, 400):
        history.send(0, world.now + at)
    history.settle(Replica(world, "r", tmp_path / "r"))
    upper = world.upper("events")
    for at in (600, 700):
        history.send(0, world.now + at)
    history.resume({0: 5})
    history.settle(Replica(world, "new", tmp_path / "new"))
    history.judge()
    assert world.upper("events") == upper
    assert history.truth.generation == 1
    assert history.truth.left_out == {(0, 3): 1, (0, 4): 1}


def test_that_a_source_goes_on_behind_each_message_at_which_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had read before the message is in no shard."""
    world = World()
    world.patch(monkeypatch)
    history = ResumedHistory(world, "place", History(world, "place", "fail"))
    world.alter("events", on_error="dead_letter")  # so that there is a collection of them
    world.alter("events", on_error="fail")
    for partition in range(PARTITIONS):
        for number in range(12):
            at = None if number % 4 == partition else world.now + 10 * number
            history.send(partition, at)
    history.settle(Replica(world, "r", tmp_path))
    history.judge()
    assert history.source.start.generation == 3 * PARTITIONS
    assert not history.truth.letters
    rows, pending = history.truth.rows.total(), len(history.truth.pending)
    assert rows + pending == 9 * PARTITIONS
    assert world.upper("events") == 1_000_000 + 110 - 50


def test_that_the_watermark_of_messages_that_are_skipped_holds_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query had seen them, and lost the race; a source that resumes has another query."""
    world = World()
    world.patch(monkeypatch)
    history, began = (
        ResumedHistory(world, "place", History(world, "place", "dead_letter")),
        world.now,
    )
    for number in range(20):
        history.send(0, began + 10 * number)
    ahead = Replica(world, "ahead", tmp_path / "ahead")
    other = Replica(world, "other", tmp_path / "other", Budgets(messages=1))
    for replica in (ahead, other):
        replica.follow()
        replica.start()
    (lane,) = ahead.scheduler.lanes_of_sources()
    while not _appends(ahead, lane):
        ahead.commit(lane)
        world.now += 1_500
        ahead.begin(lane)
    while not history.bound():
        world.now += 1_500
        history.step(other)
    ahead.sync()
    ahead.commit(lane)
    assert ahead.watermarks[lane] == began + 190 - 50
    history.resume({0: 20})
    history.send(0, began + 150)
    history.settle(ahead)
    history.judge()
    assert world.upper("events") == began + 150 - 50


def _appends(replica: Replica, lane: str) -> bool:
    """Whether a micro-batch that appends is under way."""
    batch = replica.scheduler.current(lane)
    units = () if batch is None else batch.units
    return any(isinstance(unit, EventUnit) and unit.advance.appends for unit in units)


def test_that_a_replica_that_has_not_heard_of_it_settles_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dead letters alone were appended since, so the source's own binding does not say it."""
    world = World()
    world.patch(monkeypatch)
    history = ResumedHistory(world, "place", History(world, "place", "dead_letter"))
    old = Replica(world, "old", tmp_path / "old")
    old.follow()
    history.send(0, None)
    history.resume({})
    history.settle(Replica(world, "new", tmp_path / "new"))
    assert history.truth.letters == {0: 1}
    for _ in range(6):
        world.now += 1_500
        history.step(old)
    history.judge()
