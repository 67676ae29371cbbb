"""Replicas that keep the latest row of each key by event time: exact at every event time."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streams.compute import continuation
from streams.compute.continuation import Wanted
from streams.operators import upsert
from streams.plan.metadata import LateRows
from streams.replica.config import Budgets
from streams.replica.driver import event_planner
from streams.replica.driver.ingest_planner import MovedSource
from streams.replica.ingest import envelope
from tests.support import duckdb_oracle
from tests.support.compacted import compact, hold
from tests.support.keyed_event_histories import KeyedHistory, Where
from tests.support.racing_replicas import SEEDS, race_at_random
from tests.support.sparkless import Replica, World

KINDS: list[tuple[LateRows, Where]] = [
    ("place", "value"),
    ("dead_letter", "value"),
    ("dead_letter", "record"),
]


def race(
    seed: int, late_rows: LateRows, where: Where, directory: Path, patch: pytest.MonkeyPatch
) -> KeyedHistory:
    """The history after a race of two replicas that has settled; judged."""
    world, rng = World(), random.Random(seed)
    world.patch(patch)
    history = KeyedHistory(world, late_rows, where)

    def outside(_: int, act: float) -> None:
        history.look()
        if act > 0.5:
            history.write_some(rng, 4)

    for number in range(2):  # in the second race keys are there from the first one
        replicas = race_at_random(world, rng, directory / str(number), 120, outside)
        history.look()
        for replica in replicas:
            history.settle(replica)
        history.judge()
    return history


@pytest.mark.parametrize(("late_rows", "where"), KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_that_racing_replicas_are_exact_at_every_event_time(
    seed: int,
    late_rows: LateRows,
    where: Where,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history = race(seed, late_rows, where, tmp_path, monkeypatch)
    placed, letters = history.expected()
    assert len(history.states) > 2, "it hardly moved"
    assert letters, "none was refused"
    assert -1 in history.changes(placed).values(), "no key was written twice"
    if late_rows == "place":
        assert history.losers(), "no late row lost"


def overtake(directory: Path, patch: pytest.MonkeyPatch) -> KeyedHistory:
    """A replica has read a message that is late by the time another one has appended."""
    world = World()
    world.patch(patch)
    history = KeyedHistory(world, "place", "value")
    behind, ahead = (Replica(world, name, directory / name) for name in ("a", "b"))
    history.write(0, "a", world.now)
    for replica in (behind, ahead):
        history.settle(replica)
    now = world.now
    (lane,) = ahead.scheduler.lanes_of_sources()
    history.write(0, "a", now + 1_000)
    assert ahead.step(lane)
    world.now += 1_500
    assert ahead.begin(lane)
    history.write(0, "b", now + 100)
    assert behind.step(lane)
    ahead.commit(lane)
    history.look()
    assert world.upper("events") == now + 950
    history.settle(behind)
    history.write(0, "c", now + 2_000)
    history.settle(behind)
    history.judge()
    return history


def test_that_what_was_pending_is_judged_again_after_a_lost_race(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = overtake(tmp_path, monkeypatch)
    assert history.counts() == (1, 0)


def test_that_state_is_the_shard_and_the_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that starts with nothing goes on as the one that was lost, at each step."""
    world, rng = World(), random.Random(7)
    world.patch(monkeypatch)
    history = KeyedHistory(world, "place", "value")
    budgets = Budgets(messages=4, slice_bytes=1)
    for number in range(12):
        world.now += 150
        for _ in range(3):
            history.write_some(rng, 6)
        history.settle(Replica(world, "r", tmp_path / str(number), budgets))
        history.judge()
    assert history.losers() > 1


@pytest.mark.parametrize("restarts", [False, True])
def test_that_keys_older_than_since_are_rebuilt(
    restarts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, rng = World(), random.Random(5)
    world.patch(monkeypatch)
    history = KeyedHistory(world, "place", "value")
    hold(world, "events")
    slow, fast = (Replica(world, name, tmp_path / name) for name in ("slow", "fast"))
    for replica in (slow, fast, fast):
        history.write_some(rng, 20)
        history.settle(replica)
    compact(world, "events")
    if restarts:
        slow = Replica(world, "slow", tmp_path / "slow")
    for _ in range(4):
        history.write_some(rng, 20)
        history.settle(slow)
        history.judge_contents()
    assert history.losers()


def test_that_keys_go_on_where_the_source_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    world.patch(monkeypatch)
    history, now = KeyedHistory(world, "place", "value"), world.now
    for key, at in (("a", 0), ("b", 0), ("a", 500)):
        history.write(0, key, now + at)
    history.settle(Replica(world, "r", tmp_path / "r"))
    history.write(0, "b", now + 480)  # 3: left out
    (described,) = world.descriptions
    assert described.source is not None
    places = {0: 4, 1: 0, 2: 0}
    wanted = Wanted(places=places, lows=dict.fromkeys(places, 0))
    start = continuation.resumed(described.source.start, history.states[-1][1], wanted)
    source = replace(described.source, start=start)
    world.descriptions[:] = [replace(described, source=source)]
    for key, at in (("a", -100), ("b", 470), ("c", 2_000)):  # 4 loses, 5 is in time
        history.write(0, key, now + at)
    history.settle(Replica(world, "new", tmp_path / "new"))
    rows, _ = duckdb_oracle.updates(world.shards, world.relations["events"])
    updates = Counter[tuple[str, int, int]]()
    for row in rows.to_pylist():
        updates[row["k"], row["id"], row["_time"]] += row["_diff"]
    assert updates == {
        ("a", 0, now): 1,
        ("b", 1, now): 1,
        ("b", 1, now + 470): -1,
        ("b", 5, now + 470): 1,
        ("a", 0, now + 500): -1,
        ("a", 2, now + 500): 1,
    }


def test_that_the_highest_event_time_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    world.patch(monkeypatch)
    history, now = KeyedHistory(world, "place", "value"), world.now
    replica = Replica(world, "r", tmp_path)
    history.write(0, "a", now + 20)  # 0
    history.write(0, "a", now + 10)  # 1: out of order, not late
    history.write(1, "a", now + 20)  # 2: of equals of equal offset, the higher partition
    history.write(0, "b", now)  # 3
    history.write(2, "c", now + 200)
    history.settle(replica)
    placed, _ = history.expected()
    assert history.changes(placed) == {
        ("a", 1, now + 10): 1,
        ("a", 1, now + 20): -1,
        ("a", 2, now + 20): 1,
        ("b", 3, now): 1,
    }
    history.judge()


# Planted defects


def all_stand(_: Any, rows: pa.RecordBatch, __: Any) -> Any:
    return np.ones(rows.num_rows, np.bool_)


def by_position(node: Any, rows: pa.RecordBatch, owner: Any) -> Any:
    """Offsets alone decide among messages of one time."""
    width = rows.num_columns - 6
    times, positions = rows["time"].to_numpy(), rows.column(width).to_numpy()
    order = np.lexsort((positions, times, owner))
    keys, moments = owner[order], times[order]
    return order[np.append((keys[1:] != keys[:-1]) | (moments[1:] != moments[:-1]), [True])]


def moved(flow: Any, _: Any, there: Any, __: Any) -> Any:
    """The shard is not replayed."""
    return MovedSource(flow, there)


def undated(column: pa.ChunkedArray) -> pa.Array:
    """What is replayed has lost its event times."""
    return pa.array(np.zeros(len(column), np.int64))


DEFECTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "late rows replace newer ones": (upsert, "_stands", all_stand),
    "offsets before event times": (upsert, "_winners", by_position),
    "keys are forgotten": (event_planner, "_to_shard", moved),
    "what is void stays pending": (event_planner, "_without_pending_rows", lambda runs: runs),
    "event times are forgotten": (envelope, "milliseconds", undated),
}


def races(directory: Path, patch: pytest.MonkeyPatch) -> None:
    overtake(directory, patch)
    for seed in range(6):
        race(seed, "place", "value", directory / str(seed), patch)


@pytest.mark.parametrize("defect", DEFECTS)
def test_that_a_defect_is_found(
    defect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*DEFECTS[defect])
    with pytest.raises(AssertionError):
        races(tmp_path, monkeypatch)
