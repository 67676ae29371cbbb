"""A SELECT is a view that is read once."""

import threading
from collections.abc import Iterator, Sequence

import pytest

from streams.adapter.results import Failed
from streams.adapter.workers.limits import Limits
from streams.adapter.workers.pool import Workers
from streams.ids import Topic
from streams.kafka.log import ChunkRef
from tests.support.coordinators import NOW, Environment, with_orders
from tests.support.forks import fork_server_address

CLOSURE = (
    "WITH MUTUALLY RECURSIVE r(n INT) AS (SELECT 1 UNION SELECT n + 1 FROM r WHERE n < 3)"
    " SELECT n FROM r ORDER BY n DESC"
)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    workers = Workers(Limits(rows=1 << 20), fork_server=fork_server_address())
    yield workers
    workers.close()


@pytest.fixture
def small(workers: Workers) -> Iterator[Environment]:
    environment = Environment(workers)
    yield environment
    environment.stop()


def test_what_a_view_computes_a_select_computes_so(env: Environment) -> None:
    replica = with_orders(env)
    amounts = [1e16, 1.0, -1e16, 0.1, 0.7, 3.3]
    replica.append("s1", NOW + 10, [((i, x), NOW, 1) for i, x in enumerate(amounts)])
    assert env.rows("SELECT sum(amount) FROM orders") == [[5.1]]
    soon = f"mz_now() < {NOW + 10} + id"
    assert env.rows(f"SELECT id FROM orders WHERE {soon} ORDER BY id LIMIT 1") == [[0]]
    assert env.rows(f"SELECT id FROM orders WHERE mz_now() > {NOW + 6} + id ORDER BY 1") == [
        [0],
        [1],
        [2],
    ]
    assert env.rows(CLOSURE) == [[3], [2], [1]]


def test_rows_come_in_the_order_that_is_asked_for(env: Environment) -> None:
    replica = with_orders(env)
    rows = [((1, 2.5), NOW, 1), ((2, None), NOW, 2), ((3, -1.0), NOW, 1), ((4, 2.5), NOW, 1)]
    replica.append("s1", NOW + 10, rows)
    by_amount = "SELECT id FROM orders ORDER BY amount"
    assert env.rows(by_amount) == [[3], [1], [4], [2], [2]]
    assert env.rows(f"{by_amount} DESC") == [[2], [2], [1], [4], [3]]
    assert env.rows(f"{by_amount} DESC NULLS LAST") == [[1], [4], [3], [2], [2]]
    assert env.rows(f"{by_amount} LIMIT 2 OFFSET 1") == [[1], [4]]
    assert env.rows("SELECT id, id FROM orders ORDER BY amount + 1, id % 3 LIMIT 2") == [
        [3, 3],
        [1, 1],
    ]
    assert env.rows("SELECT * FROM (FROM orders LIMIT 2) ORDER BY id DESC") == [
        [2, None],
        [1, 2.5],
    ]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM range(1000000)",
        "SELECT i FROM orders, range(1000000) t(i)",
        "SELECT unnest(range(id * 10000)) FROM orders",
        "SELECT count(*) FROM range(100000) a(i), range(100000) b(j)",
        "SELECT count(*) FROM range(100000) a(i), range(100000) b(j) WHERE i + j > 3",
        "FROM orders UNION ALL FROM orders",
    ],
)
def test_what_takes_too_much_memory_is_refused(small: Environment, query: str) -> None:
    env = small
    with_orders(env).append("s1", NOW + 10, [((1000, 2.5), NOW, 100_000)])
    failed = env.fails(query)
    assert failed.message == "the query takes too much memory"
    assert failed.detail == "expected at most 1 MiB of rows at a time, actual more"
    assert env.rows("SELECT 1 AS one") == [[1]]


def test_a_collection_that_is_too_large_is_not_held(small: Environment) -> None:
    env = small
    rows = [((i, 2.5), NOW, 1) for i in range(50_000)]
    with_orders(env).append("s1", NOW + 10, rows)
    assert env.fails("SELECT id FROM orders WHERE amount > 3").message == (
        "the query takes too much memory"
    )


@pytest.mark.parametrize(
    ("where", "chunks", "rows"),
    [
        ("id >= 2000", 2, 301),
        ("id = 1007", 2, 1),
        ("id < 500 AND amount < 1", 2, 298),
        ("id < 0", 1, 0),
        ("amount > 5", 4, 2),  # NaN is above all others
        ("true", 4, 901),
    ],
)
def test_chunks_that_hold_nothing_wanted_are_not_fetched(
    env: Environment, monkeypatch: pytest.MonkeyPatch, where: str, chunks: int, rows: int
) -> None:
    replica, fetched = with_orders(env), list[int]()
    for block in range(3):
        values = [0.5] * 298 + [float("nan"), 7.0 if block == 2 else 2.0]
        updates = [
            ((block * 1_000 + n, x if n != 298 or block == 0 else 0.5), NOW + block, 1)
            for n, x in enumerate(values)
        ]
        replica.append("s1", NOW + block + 1, updates)
    replica.append("s1", NOW + 10, [((2_001, 0.5), NOW + 5, 1)])  # too small for ranges
    shards = env.coordinator.shards
    fetch = shards.chunks.fetch

    def counted(topic: Topic, refs: Sequence[ChunkRef]) -> list[bytes]:
        fetched.append(len(refs))
        return fetch(topic, refs)

    monkeypatch.setattr(shards.chunks, "fetch", counted)
    assert env.rows(f"SELECT count(*) AS n FROM orders WHERE {where}") == [[rows]]
    assert sum(fetched) == chunks


def test_a_failing_expression_is_the_error_of_a_view(env: Environment) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10, [((1, 2.5), NOW, 1), ((0, 1.0), NOW, 1)])
    failed = env.fails("SELECT 10 // id FROM orders")
    assert failed.message == "the query failed"
    assert failed.detail.startswith("cannot evaluate"), failed.detail
    assert env.rows("SELECT 10 // id FROM orders WHERE id > 0") == [[10]]


def test_a_row_that_is_there_less_than_never_is_told(env: Environment) -> None:
    with_orders(env).append("s1", NOW + 10, [((1, 2.5), NOW, -2)])
    failed = env.fails("SELECT id FROM orders")
    assert failed.message == f"the answer holds a row -2 times at {NOW + 9}"


def test_a_statement_costs_its_own_failure_only(env: Environment) -> None:
    with_orders(env).append("s1", NOW + 10, [((1, 2.5), NOW, 3)])
    assert env.rows("SELECT sum(amount) AS s FROM orders") == [[7.5]]
    failures: list[Failed] = []

    def attack(text: str) -> None:
        failures.append(env.fails(text))

    deep = "CASE WHEN true THEN " * 500 + "1" + " END" * 500
    ending = "LANGUAGE PYTHON AS $$import os\nos._exit(3)$$"
    hostile = [
        "SELECT * FROM range(1000000000)",
        "SELECT repeat('x', 1000000000)",
        "EXPLAIN SELECT * FROM nowhere",
        f"CREATE MATERIALIZED VIEW v AS SELECT {deep}",
        f"CREATE FUNCTION f(x BIGINT) RETURNS BIGINT {ending}",
    ]
    threads = [threading.Thread(target=attack, args=(text,)) for text in hostile]
    for thread in threads:
        thread.start()
    for _ in range(5):
        assert env.rows("SELECT sum(amount) AS s FROM orders") == [[7.5]]
    for thread in threads:
        thread.join()
    assert len(failures) == len(hostile)
    assert env.rows("SHOW FUNCTIONS") == env.rows("SHOW MATERIALIZED VIEWS") == []
