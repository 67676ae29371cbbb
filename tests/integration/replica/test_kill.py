"""`kill -9` of a replica at the points of a micro-batch where it could do harm, and races.

Whatever happens, every collection is exact at every time afterwards: each message counts once.
`make test` kills the owner of the sources beside another replica, `make test-long` at chosen
points; at every point, and at random, replicas without Spark die in
`tests/model/test_replicas.py`.
"""

import json
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from streams.kafka.embedded import EmbeddedBroker
from streams.replica.main import Replica
from tests.integration.replica import process
from tests.integration.replica.json_producer import Feed
from tests.integration.replica.support import Bench, judge, now_ms
from tests.integration.replica.timed_topic import TimedTopic
from tests.support.processes import eventually

pytestmark = pytest.mark.integration

ORDERS = (("id", "BIGINT"), ("customer", "BIGINT"), ("amount", "BIGINT"))
PEOPLE = (("id", "BIGINT"), ("name", "VARCHAR"))
TOTALS = "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer"
NAMED = (
    "SELECT p.name, sum(t.total) AS total, max(t.n) AS most "
    "FROM totals t JOIN people p ON t.customer = p.id GROUP BY p.name"
)
SEEN = "SELECT count(*) AS n, sum(id) AS total, max(ts) AS latest FROM events"


class World:
    """A source, an upsert source, a view, a view over both; and a feed that never rests.

    Beside them a source by event time with a view.
    """

    def __init__(self, bench: Bench, bootstrap: str) -> None:
        self.bench = bench
        self.orders, self.people = bench.raw_topic(), bench.raw_topic()
        self.feed = Feed(bootstrap)
        self.rng = random.Random(7)
        self.sent = 0
        self.put = 0
        self.stopping = threading.Event()
        self.write(100)
        bench.source("orders", ORDERS, self.orders)
        bench.source("people", PEOPLE, self.people, keys=("id",))
        bench.view("totals", TOTALS)
        bench.view("named", NAMED)
        self.timed = TimedTopic(bench, idle_ms=60_000)
        bench.view("seen", SEEN)
        self.thread = threading.Thread(target=self.keep_writing, daemon=True)

    def write(self, count: int) -> None:
        rows = [
            {"id": self.sent + i, "customer": self.rng.randrange(20), "amount": i}
            for i in range(count)
        ]
        self.feed.send(self.orders, rows)
        self.sent += count
        some = self.rng.sample(range(25), 5)
        values = [None if self.rng.random() < 0.3 else {"name": f"p{i % 4}"} for i in some]
        self.feed.put(self.people, [({"id": i}, v) for i, v in zip(some, values, strict=True)])

    def keep_writing(self) -> None:
        while not self.stopping.wait(0.2):
            self.write(20)
            self.timed.write(6, (0, 1))

    def check(self) -> None:
        """Stop writing, wait for everything, compare everything."""
        self.stopping.set()
        self.thread.join()
        self.bench.settle("orders", "people", "totals", "named", timeout_s=180)
        ids = self.bench.table("orders")["id"].to_pylist()
        assert sorted(ids) == list(range(self.sent)), "each message counts once"
        assert judge(self.bench, "totals", TOTALS, ["orders"]) >= 3
        assert judge(self.bench, "named", NAMED, ["totals", "people"]) >= 3
        self.check_event_times()

    def check_event_times(self) -> None:
        upper = self.timed.finish((0, 1))
        self.bench.wait_upper("seen", upper - 1, timeout_s=180)
        assert self.timed.judge(upper), "none was late"
        assert judge(self.bench, "seen", SEEN, ["events"]) >= 3


@pytest.fixture
def world(bench: Bench, broker: EmbeddedBroker) -> Iterator[World]:
    new_world = World(bench, broker.bootstrap)
    yield new_world
    new_world.stopping.set()


def killed_at(world: World, state: Path, point: str, nth: int) -> None:
    """Run a replica until it dies at the point."""
    running = process.start(world.bench, state, {point: nth})
    world.thread.start()
    try:
        running.wait(300)  # beside other tests it is slow
    except subprocess.TimeoutExpired:
        pytest.fail(f"the replica did not reach {point} {nth} times: {last_words(state)}")
    finally:
        process.kill(running)
    assert running.returncode == -signal.SIGKILL, "it ended by itself"
    reached = (state / f"crash-{point}").stat().st_size
    assert reached >= nth, (
        f"it was killed at something else: {point} was reached {reached} times"
    )


def last_words(state: Path) -> str:
    """What a replica wrote last: its micro-batches, and to its standard error."""
    errors = state.with_suffix(".err").read_text().splitlines()
    return "\n".join([*(str(batch) for batch in batches_of(state)[-5:]), *errors[-40:]])


@pytest.mark.parametrize(
    "point",
    [
        "after-append",
        *(
            pytest.param(point, marks=pytest.mark.long)
            for point in ("before-chunks", "after-chunks", "between-waves")
        ),
    ],
)
def test_a_replica_killed_in_a_micro_batch_goes_on_from_its_state(
    world: World, run: Callable[..., Replica], tmp_path: Path, point: str
) -> None:
    state = tmp_path / "r1"
    killed_at(world, state, point, 9)
    run("r1", state)
    world.bench.settle("named", timeout_s=180)  # some changes more, with the feed going on
    world.check()


@pytest.mark.long
def test_a_killed_replica_that_lost_its_state_builds_it_anew(
    world: World, run: Callable[..., Replica], tmp_path: Path
) -> None:
    killed_at(world, tmp_path / "r1", "after-append", 11)
    run("r2", tmp_path / "r2")
    world.bench.settle("named", timeout_s=180)
    world.check()


@pytest.mark.timeout(600)
def test_of_two_replicas_one_takes_over_when_the_owner_of_the_sources_is_killed(
    world: World, run: Callable[..., Replica], tmp_path: Path
) -> None:
    owner = process.start(world.bench, tmp_path / "owner", {}, name="owner")
    try:
        eventually(lambda: bool(batches_of(tmp_path / "owner")), 200)
        other = run("r1")
        world.thread.start()
        both = (tmp_path / "owner", tmp_path / "r1")
        until_committed(both, 4, since_ms=now_ms())  # side by side
        assert owner.poll() is None, "the owner died"
        assert not other.is_owner
    finally:
        process.kill(owner)
    eventually(lambda: other.is_owner, 180)
    until_committed(both[1:], 4, since_ms=now_ms())
    world.check()


def until_committed(states: Sequence[Path], count: int, since_ms: int) -> None:
    """Wait until every replica has committed so many micro-batches with messages since then."""
    deadline = time.monotonic() + 200
    while any(committed(state, since_ms) < count for state in states):
        assert time.monotonic() < deadline, "a replica stands still"
        time.sleep(0.5)


def committed(state: Path, since_ms: int) -> int:
    """How many micro-batches with messages a replica committed, counting or not."""
    return sum(
        batch["lane"] == "ingest" and batch["rows"] > 0 and batch["at_ms"] >= since_ms
        for batch in batches_of(state)
    )


def batches_of(state: Path) -> list[dict[str, Any]]:
    """What a replica has written of its micro-batches, with messages or without."""
    file = state / "timings.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return [json.loads(line) for line in lines]
