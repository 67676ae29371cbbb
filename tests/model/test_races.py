"""Replicas, the idle path, compactors, a collector and zombies race: every time stays exact.

The fold (`streams.storage.log.machine`), the decisions (`streams.compute.stepping`,
`checkpoints`, `reclocking`) and the machines of a dataflow and of its attempts to append
(`streams.replica.driver.dataflow`, `append_attempt`) are the real ones; Kafka, disks and
processes are a model (`tests.model.world`). Each run draws its own weather and interleaving
from its seed; at random moments and at its end every collection is compared with the truth at
every time in [since, upper), and so is whatever a reader reads in the middle of it all.

The second test takes one rule away at a time, and wants some run to go wrong for it. `make
test` begins with the run that went wrong when the model was last searched; when the model
changes and that one goes right, the search is on. `make test-long` searches from the first run
on, for every rule, and races 20,000 times.

    RACES=100000 pytest -m long tests/model/test_races.py      more runs
"""

import os
from collections.abc import Iterable
from random import Random

import pytest

from streams.storage.log import chunk_gc, dedup_window
from tests.model.mutations import FOUND, WEATHER, Mutation
from tests.model.race import Race
from tests.model.world import WrongAnswer

RACES = 400
MANY_RACES = int(os.environ.get("RACES", "20000"))
TICKS = (20, 80, 250)
ATTEMPTS = 400
PORTIONS = 4


@pytest.fixture(autouse=True)
def small_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run has a hundred events or so: let them fill Rollups, and outcomes be forgotten."""
    monkeypatch.setattr(chunk_gc, "ROLLUP_STRIDE", 8)
    monkeypatch.setattr(chunk_gc, "WINDOW", 64)
    monkeypatch.setattr(dedup_window, "WINDOW", 64)


def test_the_same_seed_gives_the_same_run() -> None:
    races = [Race(7), Race(7)]
    for race in races:
        race.run(200)
    first, second = [
        {
            name: (len(group.entries), group.newest.upper)
            for name, group in run.world.groups.items()
        }
        for run in races
    ]
    assert first == second


@pytest.mark.parametrize("portion", range(PORTIONS))
def test_every_time_is_exact_whoever_wins(portion: int) -> None:
    race(range(portion, RACES, PORTIONS))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("portion", range(PORTIONS))
def test_every_time_is_exact_in_many_more_races(portion: int) -> None:
    race(range(RACES + portion, MANY_RACES, PORTIONS))


def race(seeds: Iterable[int]) -> None:
    for seed in seeds:
        ticks, settle = Random(seed).choice(TICKS), seed % 3 == 0
        try:
            Race(seed).run(ticks, settle=settle)
        except Exception as failure:
            run = f"Race({seed}).run({ticks}, settle={settle})"
            raise AssertionError(f"{run}: {failure}") from failure


@pytest.mark.parametrize("mutation", Mutation, ids=lambda mutation: mutation.name)
def test_without_the_rule_some_run_goes_wrong(mutation: Mutation) -> None:
    seed = search(mutation, [FOUND.get(mutation, 0), *range(ATTEMPTS)])
    assert_right_with_the_rule(mutation, [seed])


@pytest.mark.long
@pytest.mark.parametrize("mutation", Mutation, ids=lambda mutation: mutation.name)
def test_a_search_finds_that_the_rule_is_missing(mutation: Mutation) -> None:
    seed = search(mutation, range(ATTEMPTS))
    assert_right_with_the_rule(mutation, range(max(0, seed - 9), seed + 1))


def search(mutation: Mutation, seeds: Iterable[int]) -> int:
    """The first run that goes wrong without the rule."""
    weather = WEATHER.get(mutation, {})
    seed = next((seed for seed in seeds if goes_wrong(seed, mutation, weather)), None)
    assert seed is not None, f"none of {ATTEMPTS} runs goes wrong though {mutation.value}"
    return seed


def assert_right_with_the_rule(mutation: Mutation, seeds: Iterable[int]) -> None:
    weather = WEATHER.get(mutation, {})
    wrong = [seed for seed in seeds if goes_wrong(seed, None, weather)]
    assert not wrong, f"runs {wrong} go wrong in the weather of {mutation.name}, rule or not"


def goes_wrong(seed: int, mutation: Mutation | None, weather: dict[str, float | None]) -> bool:
    """Whether a run gives a wrong answer."""
    try:
        Race(seed, mutation, weather).run(300)
    except WrongAnswer:
        return True
    return False
