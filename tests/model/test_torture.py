"""The soak in memory: nothing is wrong, a seed reproduces it, and every defect is found."""

import pytest

from streams.torture.oracle import Verdict
from streams.torture.simulation import Simulation, simulate
from tests.model.storage_mutations import PATCHES, Mutation

ATTEMPTS, STEPS = 30, 60
"""More steps a run notice less for their time: the first or second run finds each."""

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 3))]


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_wrong_whoever_dies(seed: int) -> None:
    verdict = simulate(seed, 250)
    assert verdict.wrong == ()
    for what in ("appends", "races lost", "reads checked", "kills", "compactions", "rollups"):
        assert verdict.figures.get(what), f"the run had no {what}: {verdict.figures}"


def test_a_seed_reproduces_a_run() -> None:
    runs = [Simulation(7) for _ in range(2)]
    for run in runs:
        for _ in range(50):
            run.step()
        run.verdict()
    assert runs[0].journal.entries == runs[1].journal.entries


@pytest.mark.parametrize("mutation", Mutation, ids=lambda mutation: mutation.name)
def test_every_defect_is_found(mutation: Mutation) -> None:
    with pytest.MonkeyPatch.context() as patch:
        PATCHES[mutation](patch)
        is_found = any(goes_wrong(seed) for seed in range(ATTEMPTS))
    assert is_found, f"{ATTEMPTS} runs of {STEPS} steps do not notice that {mutation.value}"


def goes_wrong(seed: int) -> bool:
    verdict: Verdict = simulate(seed, STEPS)
    return bool(verdict.wrong)
