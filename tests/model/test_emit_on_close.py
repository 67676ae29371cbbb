"""Views with EMIT ON CLOSE in replicas that race, die and return, over a source by event time.

The model reads what the source's shard holds, which others judge, and says when each window
closes and with what. A view of another version, and one that begins late, are judged alike.
"""

import random
from pathlib import Path

import pytest

from streams.compute.binding import Fact
from streams.ids import CollectionId
from streams.replica.config import Budgets
from tests.support import duckdb_oracle
from tests.support.closing_windows import Rows, expected
from tests.support.event_histories import PARTITIONS, History
from tests.support.racing_replicas import SEEDS, race_at_random
from tests.support.sparkless import Replica, World

HUNDRED = "INTERVAL '100 milliseconds'"
TUMBLING = f"SELECT time_bucket({HUNDRED}, ts) AS s, count(*) AS n FROM events GROUP BY s"
HOPPING = """SELECT s, count(*) AS n, max(id) AS latest FROM (SELECT id, unnest(range(
        time_bucket(INTERVAL '50 milliseconds', ts) - INTERVAL '50 milliseconds',
        ts + INTERVAL '1 microsecond', INTERVAL '50 milliseconds')) AS s FROM events)
    GROUP BY s"""
SESSIONS = """SELECT min(ts) AS first, max(ts) AS last, count(*) AS n
    FROM (SELECT *, count(*) FILTER (WHERE begins) OVER (ORDER BY ts, id) AS session
        FROM (SELECT *, coalesce(ts - lag(ts) OVER (ORDER BY ts, id)
            >= INTERVAL '20 milliseconds', true) AS begins FROM events))
    GROUP BY session"""
NEARBY = """SELECT a.id, b.id AS other, a.ts FROM events a JOIN events b
    ON b.ts BETWEEN a.ts - INTERVAL '30 milliseconds' AND a.ts + INTERVAL '20 milliseconds'"""
MOVING = """SELECT id, ts, count(*) OVER (ORDER BY ts RANGE
        BETWEEN INTERVAL '30 milliseconds' PRECEDING AND CURRENT ROW) AS n FROM events"""
VIEWS = {
    "tumbling": (TUMBLING, f"s + {HUNDRED}"),
    "hopping": (HOPPING, f"s + {HUNDRED}"),
    "sessions": (SESSIONS, "last + INTERVAL '20 milliseconds'"),
    "nearby": (NEARBY, f"ts + {HUNDRED}"),
    "moving": (MOVING, f"ts + {HUNDRED}"),
}


class Windows:
    """A source by event time, and views of its windows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World()
        self.world.patch(monkeypatch)
        self.history = History(self.world, "place", "dead_letter")

    def views(self, names: tuple[str, ...] = tuple(VIEWS), suffix: str = "") -> None:
        """Create views, at the greatest time that the source has."""
        self.world.shards.sync()
        as_of = max(0, self.world.upper("events") - 1)
        for name in names:
            query, end = VIEWS[name]
            self.world.view(name + suffix, f"{query} EMIT ON CLOSE ({end})", as_of)

    def produce(self, count: int) -> None:
        """Send rows about now; some are late, for windows that are open or have closed."""
        upper = self.world.upper("events")
        for _ in range(count):
            at = self.world.now + self.rng.randrange(-100, 100)
            is_late = upper > 0 and self.rng.random() < 0.2
            chosen = upper - self.rng.choice([1, 20, 120, 400]) if is_late else at
            self.history.send(self.rng.randrange(PARTITIONS), chosen)

    def check(self) -> int:
        """Compare every view with the model at every time; return how many rows there are."""
        self.world.shards.sync()
        events, _ = duckdb_oracle.updates(self.world.shards, self.world.relations["events"])
        total = 0
        for description in self.world.descriptions:
            name = description.name
            query, end = VIEWS.get(name.removesuffix("_later"), ("", ""))
            if not query:
                continue
            updates, errors = duckdb_oracle.updates(
                self.world.shards, self.world.relations[name]
            )
            assert not errors.num_rows
            actual = Rows()
            for *row, diff in zip(*updates.to_pydict().values(), strict=True):
                actual[tuple(row)] += diff  # slices of the first contents take back among them
            actual = Rows({row: count for row, count in actual.items() if count})
            born, upper = description.as_of, self.world.upper(name)
            assert actual == expected(query, end, {"events": events}, born, upper), name
            total += actual.total()
        return total


@pytest.mark.parametrize("seed", SEEDS)
def test_that_windows_close_once_through_races_and_kills(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    windows = Windows(monkeypatch, seed)
    windows.views()

    def outside(round_: int, act: float) -> None:
        windows.history.look()
        if round_ == 60:
            windows.views(("tumbling",), "_later")
        if act > 0.6:
            windows.produce(windows.rng.randrange(4))

    for replica in race_at_random(windows.world, windows.rng, tmp_path, 150, outside):
        windows.history.settle(replica)
    for _ in range(3):
        windows.produce(12)
        windows.history.settle(replica)
    assert windows.history.bound(Fact.LATE)
    assert windows.check() > 20


def test_that_a_version_goes_on_where_the_one_before_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Late rows are in no window that has closed, whatever version builds its state."""
    windows = Windows(monkeypatch, 1)
    windows.views(("tumbling", "hopping"))
    old = Replica(windows.world, "a", tmp_path / "a", Budgets(messages=6))
    new = Replica(windows.world, "b", tmp_path / "b", salt="2")
    for replica in (old, new):
        for _ in range(4):
            windows.produce(12)
            windows.history.settle(replica)
    state = windows.world.shards.state(CollectionId("tumbling"))
    assert state.fingerprint.endswith("2")
    assert windows.history.bound(Fact.LATE)
    assert windows.check() > 20
