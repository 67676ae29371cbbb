"""Plans of views are made once, side by side; one that cannot be made keeps no other."""

import threading
from dataclasses import replace
from itertools import pairwise

import pytest

from streams.adapter.catalog import Catalog, Item
from streams.adapter.coordinator import Coordinator
from streams.adapter.plan_cache import Plans
from streams.adapter.workers.pool import MOST
from streams.adapter.workers.process import WorkerLost
from streams.storage.client.backoff import LONGEST_PAUSE_S
from tests.support.coordinators import NOW, TOTALS, with_orders
from tests.unit.adapter.items import source, view

CATALOG = Catalog()
VIEWS = [view(number, f"v{number}") for number in range(MOST)]


def test_plans_are_made_side_by_side() -> None:
    together = threading.Barrier(MOST, timeout=30)

    def planner(item: Item, _: Catalog) -> str:
        together.wait()
        return f"plan of {item.name}"

    plans = Plans(planner)
    plans.prepare([source(9, "s"), *VIEWS], CATALOG)
    assert [plans.of(item, CATALOG) for item in VIEWS] == [f"plan of {v.name}" for v in VIEWS]
    assert plans.of(source(9, "s"), CATALOG) == ""


def test_a_plan_that_cannot_be_made_is_told_once_for_each_try() -> None:
    queries: list[str] = []

    def planner(item: Item, _: Catalog) -> str:
        queries.append(item.name)
        if item.name == "v0":
            raise WorkerLost("it takes too much")
        return item.name

    plans = Plans(planner)
    for count in (1, 2):
        plans.prepare(VIEWS, CATALOG)
        plans.prepare(VIEWS, CATALOG)
        assert queries.count("v0") == count
        with pytest.raises(WorkerLost):
            plans.of(VIEWS[0], CATALOG)
    assert queries.count("v1") == 1
    plans.keep(VIEWS[0].id, "given")
    assert plans.of(VIEWS[0], CATALOG) == "given"
    plans.forget(VIEWS[0].id)
    with pytest.raises(WorkerLost):
        plans.of(replace(VIEWS[0], query="SELECT 2"), CATALOG)


def test_a_view_whose_plan_ends_its_worker_is_tried_after_growing_pauses(
    env, monkeypatch
) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    for name in ("totals", "other"):
        env.rows(TOTALS.replace("totals", name))
    tries: list[float] = []
    clock, deadly = [0.0], [True]
    real = Coordinator._plan

    def planned(self: Coordinator, item: Item, catalog: Catalog) -> str:
        if item.name != "totals" or not deadly:
            return real(self, item, catalog)
        tries.append(clock[0])
        raise WorkerLost("it takes too much")

    monkeypatch.setattr(Coordinator, "_plan", planned)
    env.start()
    reconciler = env.coordinator._reconciler
    reconciler.stop()
    reconciler._pauses.clock = lambda: clock[0]
    reconciler._pauses.keep(())
    tries.clear()
    for beat in range(300):
        clock[0] = float(beat)
        reconciler._beat()
    assert "it takes too much" in reconciler.problems["u2"]
    assert "u3" not in reconciler.problems
    pauses = [after - before for before, after in pairwise(tries)]
    assert pauses == [1, 1, 2, 4, 8, 16, 32, LONGEST_PAUSE_S, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    deadly.clear()
    clock[0] += LONGEST_PAUSE_S
    reconciler._beat()
    assert not reconciler.problems
