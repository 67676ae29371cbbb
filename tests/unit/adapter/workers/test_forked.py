"""Workers that a fork server starts answer, are limited and end as others do."""

import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from streams.adapter.workers.limits import Limits
from streams.adapter.workers.pool import Workers
from streams.adapter.workers.process import Worker
from streams.adapter.workers.requests import Compute, Plan, Query
from streams.errors import InvalidStatement
from streams.ids import CollectionId, Timestamp
from streams.plan.compile import Relation
from streams.plan.physical import Column
from streams.trace.kernel.functions import Function
from tests.support.forks import fork_server_address
from tests.support.processes import command_line, eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a fork server")

Returned = TypeVar("Returned")


T = {"t": Relation(CollectionId("s1"), (Column("a", "BIGINT"),))}


@pytest.fixture
def server() -> Path:
    address = fork_server_address()
    assert address is not None
    return address


def done(work: Generator[None, None, Returned]) -> Returned:
    """What the work returns, however many beats it takes."""
    while True:
        try:
            next(work)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


def planner(workers: Workers) -> Worker:
    """Have a worker plan a query."""
    with done(workers.lend()) as worker:
        ended = done(worker.ask(Plan(Query("SELECT a FROM t", T, ()))))
        assert ended.facts
        return worker


def test_a_forked_worker_answers_and_ends_like_another(server: Path, tmp_path: Path) -> None:
    limits = Limits(memory=256 << 20, seconds=60)
    workers = Workers(limits, 1, tmp_path / "files", fork_server=server)
    (tmp_path / "files").mkdir()
    worker = planner(workers)
    pid = worker.pid
    assert planner(workers) is worker
    parent = psutil.Process(pid).parent()
    assert parent is not None
    assert parent.pid != os.getpid()
    assert "streams.app.fork_server" in command_line(parent)
    assert "streams.adapter.workers" in command_line(psutil.Process(pid))
    psutil.Process(pid).kill()
    eventually(lambda: not worker.is_fit)
    assert planner(workers).pid != pid
    assert not psutil.pid_exists(pid)
    workers.close()
    assert not list((tmp_path / "files").iterdir())


def test_a_forked_worker_has_the_memory_of_its_limits(server: Path) -> None:
    workers = Workers(Limits(memory=256 << 20), 1, fork_server=server)
    body = "def f(x):\n    return bytes(1 << 30) and x"
    greedy = Function("f", ("x",), ("BIGINT",), "BIGINT", body)
    plan, _ = workers.answer(Plan(Query("SELECT f(1) AS y", {}, (greedy,))))
    with pytest.raises(InvalidStatement, match="MemoryError"):
        workers.answer(Compute(plan, Timestamp(7)))
    assert planner(workers).is_fit
    workers.close()


def test_without_the_server_a_worker_is_started_by_itself(tmp_path: Path) -> None:
    workers = Workers(most=1, fork_server=tmp_path / "gone")
    assert psutil.Process(planner(workers).pid).ppid() == os.getpid()
    workers.close()
