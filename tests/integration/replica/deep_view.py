"""A view of five stages over three sources that move, and a judge of every bit of it."""

import random
import threading
import time
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from streams.testing import maintain
from tests.integration.replica.json_producer import Feed
from tests.integration.replica.support import Bench

SOURCES = {
    "orders": (("id", "BIGINT"), ("customer", "BIGINT"), ("amount", "DOUBLE")),
    "people": (("id", "BIGINT"), ("name", "VARCHAR")),
    "places": (("id", "BIGINT"), ("land", "VARCHAR")),
}
QUERY = """
    WITH spent AS (
        SELECT p.name, count(*) AS n, sum(o.amount) AS total, min(o.id) AS first
        FROM orders o JOIN people p ON o.customer = p.id GROUP BY p.name),
    placed AS (
        SELECT l.land, s.* FROM spent s JOIN places l ON s.n % 7 = l.id),
    ranked AS (
        SELECT land, name, n, total,
            sum(total) OVER (PARTITION BY land ORDER BY first, name) AS so_far
        FROM placed)
    SELECT land, name, n, total, so_far FROM ranked
    QUALIFY row_number() OVER (PARTITION BY n ORDER BY so_far DESC, name) <= 2
"""


class Deep:
    """Three sources, a feed that moves them while it is told to, and the view over all."""

    def __init__(self, bench: Bench, bootstrap: str) -> None:
        self.bench, self.feed, self.rng = bench, Feed(bootstrap), random.Random(5)
        self.topics = {name: bench.raw_topic() for name in SOURCES}
        self.sent = 0
        self.stopping = threading.Event()
        self.thread: threading.Thread | None = None
        self.write()
        for name, columns in SOURCES.items():
            keys = () if name == "orders" else ("id",)
            bench.source(name, columns, self.topics[name], keys=keys)

    def view(self) -> None:
        """Born with all that is there by now as one snapshot."""
        self.bench.view("deep", QUERY, min(map(self.bench.upper, SOURCES)) - 1)

    def write(self) -> None:
        rng = self.rng
        amounts = [rng.choice([0.1, 0.7, 1e16, -1e16, rng.random()]) for _ in range(20)]
        rows = [
            {"id": self.sent + i, "customer": rng.randrange(30), "amount": amount}
            for i, amount in enumerate(amounts)
        ]
        self.feed.send(self.topics["orders"], rows)
        self.sent += len(rows)
        people = [
            ({"id": i}, None if rng.random() < 0.2 else {"name": f"p{rng.randrange(20)}"})
            for i in rng.sample(range(32), 3)
        ]
        self.feed.put(self.topics["people"], people)
        place = rng.randrange(7)
        self.feed.put(self.topics["places"], [({"id": place}, {"land": f"l{place % 3}"})])

    def begin(self) -> None:
        def keep_writing() -> None:
            while not self.stopping.wait(0.3):
                self.write()

        self.stopping.clear()
        self.thread = threading.Thread(target=keep_writing, daemon=True)
        self.thread.start()

    def end(self) -> None:
        self.stopping.set()
        if self.thread is not None:
            self.thread.join()

    def check(self, changes: int = 10) -> None:
        """Each message counts once, and every update is there that should be, and no other.

        The view is to have changed more than `changes` times by then.
        """
        self.await_changes(changes)
        self.end()
        self.bench.settle(*SOURCES, "deep", timeout_s=300)
        bench, as_of = self.bench, self.bench.descriptions["deep"].as_of
        assert sorted(bench.table("orders")["id"].to_pylist()) == list(range(self.sent))
        upper = min(bench.upper(name) for name in (*SOURCES, "deep"))
        tables = {name: history(bench.table(name), as_of, upper) for name in SOURCES}
        definitions = {
            name: ", ".join(f"{column} {kind}" for column, kind in columns)
            for name, columns in SOURCES.items()
        }
        view = maintain(QUERY, definitions, tables, [as_of + 1, upper])
        actual = bits(history(bench.table("deep"), as_of, upper))
        expected = bits(view.updates)
        assert actual == expected, (actual - expected, expected - actual)

    def await_changes(self, times: int) -> None:
        """Wait until the view has changed so often: fewer times would not prove a thing."""
        deadline = time.monotonic() + 400
        while len(set(self.bench.table("deep")["_time"].to_pylist())) <= times:
            assert time.monotonic() < deadline, f"it has not changed {times} times"
            time.sleep(1)


def history(table: pa.Table, as_of: int, upper: int) -> pa.Table:
    """The updates before upper, of those up to as_of what they come to then."""
    times = pc.max_element_wise(table["_time"], as_of)
    index = table.schema.get_field_index("_time")
    return table.set_column(index, "_time", times).filter(pc.less(times, upper))


def bits(table: pa.Table) -> Counter[tuple[str, ...]]:
    """The consolidated updates: (columns and time, every bit of them) -> diff."""
    diffs = table["_diff"].to_pylist()
    names = [name for name in table.column_names if name != "_diff"]
    rows = zip(*(map(repr, table[name].to_pylist()) for name in names), strict=True)
    counts: Counter[tuple[str, ...]] = Counter()
    for row, diff in zip(rows, diffs, strict=True):
        counts[row] += diff
    return Counter({row: diff for row, diff in counts.items() if diff})
