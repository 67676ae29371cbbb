"""A statement that takes too much, too long, or ends its process costs its own failure only."""

import json
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

from streams.adapter.workers.limits import Limits
from streams.adapter.workers.pool import Workers
from streams.adapter.workers.process import Unstarted, WorkerLost
from streams.adapter.workers.requests import (
    Compute,
    Declare,
    Explain,
    Import,
    Plan,
    Planned,
    Query,
    Request,
    Types,
    View,
    Viewed,
    columns_told,
    declared,
)
from streams.errors import InvalidStatement
from streams.ids import CollectionId, Timestamp
from streams.plan import json as plans
from streams.plan.compile import Relation, compile_view
from streams.plan.physical import Column
from streams.plan.sql.statements import CreateFunction
from streams.torture.hostile.statements import MONSTERS
from streams.trace.kernel.functions import Function
from streams.trace.kernel.kernel import arrow_schema
from tests.support.forks import fork_server_address
from tests.support.processes import eventually, kill

Returned = TypeVar("Returned")

T = {"t": Relation(CollectionId("s1"), (Column("a", "BIGINT"), Column("b", "VARCHAR")))}
ROWS = [
    {"c0": 1, "c1": "x", "time": 7, "diff": 2},
    {"c0": 2, "c1": None, "time": 7, "diff": 1},
]
HELD = pa.Table.from_pylist(ROWS, arrow_schema(["BIGINT", "VARCHAR"]))
HOSTILE = [text.decode() for text in MONSTERS if text.startswith(b"SELECT")]


def done(work: Generator[None, None, Returned]) -> Returned:
    """What the work returns, however many beats it takes."""
    while True:
        try:
            next(work)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    limits = Limits(memory=1 << 30, rows=256 << 20, seconds=30)
    workers = Workers(limits, most=2, fork_server=fork_server_address())
    yield workers
    workers.close()


def asked(
    workers: Workers, request: Request, *tables: pa.Table
) -> tuple[bytes, dict[str, object]]:
    """The data of an answer and its facts."""
    blocks: list[bytes] = []
    with done(workers.lend()) as worker:
        ended = done(worker.ask(request, tables, blocks.append))
    return b"\n".join(blocks), dict(ended.facts)


def selected(workers: Workers, text: str, *functions: Function) -> list[str]:
    """The rows of a SELECT over `t`, which holds HELD, as JSON."""
    plan, facts = asked(workers, Plan(Query(text, T, functions)))
    tables = [HELD for _ in Planned.told(facts).imports]
    rows, facts = asked(workers, Compute(plan, Timestamp(7)), *tables)
    lines = rows.decode().split("\n") if rows else []
    assert facts["rows"] == len(lines)
    return lines


def python(name: str, *lines: str) -> Function:
    body = "\n".join(
        ["import os, signal, time", f"def {name}(x):", *(f"    {n}" for n in lines)]
    )
    return Function(name, ("x",), ("BIGINT",), "BIGINT", body)


def honest(workers: Workers) -> bool:
    rows = selected(workers, "SELECT b, sum(a) AS s FROM t GROUP BY b ORDER BY s DESC, b")
    return rows == ['["x", 2]', "[null, 2]"]


def test_a_select_is_planned_and_computed(workers: Workers) -> None:
    assert honest(workers)
    _, facts = asked(workers, Plan(Query("SELECT a AS x FROM t", T, ())))
    planned = Planned.told(facts)
    assert planned.peek is not None  # it only shows columns: a replica may copy it
    expected = Planned((Import("s1", frozenset({0})),), (("x", "BIGINT"),), planned.peek)
    assert planned == expected


def test_a_worker_serves_many_requests(workers: Workers) -> None:
    with done(workers.lend()) as worker:
        first = worker.pid
    assert honest(workers)
    with done(workers.lend()) as worker:
        assert worker.pid == first


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "signal SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "signal SIGSEGV"),
        ("os._exit(3)", "exit code 3"),
    ],
)
def test_a_worker_that_dies_fails_its_statement_alone(
    workers: Workers, ending: str, reason: str
) -> None:
    dying = python("dying", ending)
    with pytest.raises(WorkerLost) as failed:
        selected(workers, "SELECT dying(a) FROM t", dying)
    assert failed.value.message == "the query ended the process that computed it"
    assert failed.value.detail == f"the process ended with {reason}"
    assert honest(workers)


def test_a_worker_that_dies_unused_is_replaced() -> None:
    workers = Workers(most=1, fork_server=fork_server_address())
    try:
        with done(workers.lend()) as worker:
            done(worker.ask(View(Query("SELECT 1 AS one", {}, ()))))
            pid = worker.pid
        kill(pid)
        eventually(lambda: not worker.is_fit)  # a process with threads takes a moment to die
        assert honest(workers)
    finally:
        workers.close()


def test_a_worker_that_hangs_is_ended() -> None:
    workers = Workers(Limits(seconds=4), 1, fork_server=fork_server_address())
    hanging = python("hanging", "time.sleep(1000)")
    try:
        with pytest.raises(WorkerLost) as failed:
            selected(workers, "SELECT hanging(a) FROM t", hanging)
        assert failed.value.message == "the query takes too long"
        assert failed.value.detail == "expected it to take at most 4 s"
        assert honest(workers)
    finally:
        workers.close()


@pytest.mark.parametrize(
    ("line", "raised"),
    [
        ("raise ValueError('odd\\nand more')", "ValueError: odd"),
        ("raise KeyError", "KeyError"),
        ("raise ValueError('y' * 10_000_000)", f"ValueError: {'y' * 500}..."),
        ("return 3", "TypeError: expected a pyarrow array from f, actual int"),
        (
            "raise type('Silent', (Exception,), {'__str__': lambda self: 1 // 0})",
            "Silent",
        ),
    ],
)
def test_what_a_function_raises_is_told(workers: Workers, line: str, raised: str) -> None:
    failing, fine = python("f", line), python("g", "return x")
    with pytest.raises(InvalidStatement) as failed:
        selected(workers, "SELECT g(a) AS u, 1 + f(g(a)) AS v FROM t", failing, fine)
    assert failed.value.detail.endswith(f"; f raised {raised}")
    with pytest.raises(InvalidStatement) as failed:
        selected(workers, "SELECT CAST(b AS INTEGER) AS i FROM t", failing)
    assert "raised" not in failed.value.detail


def test_what_only_this_process_cannot_run_is_told(workers: Workers) -> None:
    lacking = python("f", "import no_such_module")
    with pytest.raises(InvalidStatement) as failed:
        selected(workers, "SELECT f(a) FROM t", lacking)
    assert failed.value.detail == (
        "this process cannot run function f:"
        " ModuleNotFoundError: No module named 'no_such_module'"
    )


@pytest.fixture
def cramped(tmp_path: Path) -> Iterator[Workers]:
    workers = Workers(Limits(disk=1 << 20), 1, tmp_path, fork_server=fork_server_address())
    yield workers
    workers.close()
    assert not list(tmp_path.iterdir())


def test_what_a_statement_puts_on_disk_is_bounded(cramped: Workers) -> None:
    with pytest.raises(InvalidStatement) as failed:
        selected(
            cramped,
            "SELECT count(DISTINCT x) AS n FROM"
            " (SELECT md5(i::VARCHAR) AS x FROM range(200000) r(i))",
        )
    assert failed.value.message == "the query takes too much disk"
    assert failed.value.detail == "expected at most 1 MiB of working files, actual more"
    assert honest(cramped)


@pytest.mark.parametrize(
    "lines",
    [
        ["open('one', 'wb').write(bytes(2 << 20))"],
        ["[open(str(n), 'wb').write(bytes(1 << 19)) for n in range(9)]", "time.sleep(1000)"],
    ],
    ids=["one file", "many files"],
)
def test_a_function_is_bounded_on_disk_too(cramped: Workers, lines: list[str]) -> None:
    with pytest.raises(InvalidStatement) as failed:
        selected(cramped, "SELECT f(a) FROM t", python("f", *lines))
    assert "File too large" in str(failed.value) or "too much disk" in failed.value.message
    assert honest(cramped)


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"PYTHONHOME": "/nowhere"}, "No module named 'encodings'"),
        ({"PYTHONPATH": "DIRECTORY"}, "ImportError: no arrows here"),
    ],
)
def test_why_a_worker_cannot_be_started_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, broken: dict[str, str], why: str
) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ImportError('no arrows here')")
    for name, value in broken.items():
        monkeypatch.setenv(name, value.replace("DIRECTORY", str(tmp_path)))
    workers = Workers(most=1)
    with pytest.raises(Unstarted) as failed:
        done(workers.lend())
    assert failed.value.message == "the query was not begun: no process for it can be started"
    assert failed.value.detail.startswith("it ended with exit code 1: ")
    assert why in failed.value.detail
    workers.close()


def test_a_worker_that_does_not_start_in_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers(most=1)
    with monkeypatch.context() as hurried:
        hurried.setattr("streams.adapter.workers.process.START_S", 0.01)
        with pytest.raises(Unstarted) as failed:
            done(workers.lend())
    assert failed.value.detail == "it did not start within 0.01 s"
    workers.close()


def test_a_process_that_the_system_refuses_is_told(tmp_path: Path) -> None:
    workers = Workers(most=1, directory=tmp_path / "gone")
    workers.start()
    with pytest.raises(Unstarted) as failed:
        done(workers.lend())
    assert failed.value.detail.startswith("FileNotFoundError: ")
    workers.close()


def test_a_statement_that_is_given_up_ends_its_worker(workers: Workers) -> None:
    hanging = python("hanging", "time.sleep(1000)")
    plan, _ = asked(workers, Plan(Query("SELECT hanging(a) FROM t", T, (hanging,))))
    with done(workers.lend()) as worker:
        work = worker.ask(Compute(plan, Timestamp(7)), [HELD])
        next(work)  # a beat
        work.close()
    assert not worker.is_fit
    assert worker._process.poll() is not None
    assert honest(workers)


def test_memory_that_a_statement_needs_elsewhere_is_refused(workers: Workers) -> None:
    hoarding = python("hoarding", "kept = bytearray(10 << 30)", "return x")
    with pytest.raises(InvalidStatement):
        selected(workers, "SELECT hoarding(a) FROM t", hoarding)
    assert honest(workers)


def test_users_wait_for_their_turn(workers: Workers) -> None:
    answers: list[bool] = []
    threads = [
        threading.Thread(target=lambda: answers.append(honest(workers))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True] * 6


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:20] for text in HOSTILE])
def test_a_hostile_statement_is_answered_or_refused(workers: Workers, text: str) -> None:
    results: list[bool] = []
    durations: list[float] = []

    def reading() -> None:
        for _ in range(3):
            began = time.monotonic()
            results.append(honest(workers))
            durations.append(time.monotonic() - began)

    beside = threading.Thread(target=reading)
    beside.start()
    with suppress(InvalidStatement):
        selected(workers, text)
    beside.join()
    assert results == [True] * 3
    assert max(durations) < 20
    assert honest(workers)


def refused(work: Callable[[], object]) -> str:
    with pytest.raises(InvalidStatement) as failed:
        work()
    return failed.value.message


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM range(1000000000)",
        "SELECT repeat('x', 1000000000) AS x",
        "SELECT unnest(range(1000000000)) AS x",
        "SELECT list_sum(range(a * 1000000000)) AS x FROM t",
        "SELECT repeat(b, 2000000000) AS x FROM t",
    ],
)
def test_what_takes_too_much_is_told(workers: Workers, text: str) -> None:
    assert refused(lambda: selected(workers, text)) == "the query takes too much memory"


def test_a_worker_has_pandas_once_a_function_may_use_it() -> None:
    """It starts in half the time without; and Arrow knows the nulls of pandas by it."""
    counted = python(
        "counted",
        "import pandas, pyarrow",
        "nulls = pyarrow.array(pandas.Series([1.0, float('nan')])).null_count",
        "return pyarrow.array([nulls] * len(x), pyarrow.int64())",
    )
    workers = Workers(most=1, fork_server=fork_server_address())
    try:
        assert honest(workers)
        with done(workers.lend()) as worker:
            maps = Path(f"/proc/{worker.pid}/maps")
        assert "/pyarrow/" in maps.read_text()
        assert "/pandas/" not in maps.read_text()
        assert selected(workers, "SELECT counted(a) AS n FROM t", counted) == ["[1]"] * 3
        assert "/pandas/" in maps.read_text()
    finally:
        workers.close()


def test_a_view_is_planned_as_if_there_were_nothing_else(workers: Workers) -> None:
    twice = python("twice", "import pyarrow.compute as pc", "return pc.multiply(x, 2)")
    unused = python("unused", "return x")
    other = Relation(CollectionId("s2"), (Column("a", "BIGINT"),))
    query = Query("SELECT twice(a) AS x, 1 + 1 AS y FROM t", {"u": other} | T, (unused, twice))
    plan, facts = asked(workers, View(query))
    viewed = Viewed.told(facts)
    columns = (Column("x", "BIGINT"), Column("y", "INTEGER"))
    assert viewed == Viewed(columns, (CollectionId("s1"),), ("twice",))
    alone = compile_view(query.text, T, (twice,))
    assert plans.loads(plan.decode()) == alone.dataflow
    again, _ = workers.answer(View(Query(query.text, T, (twice,))))
    assert again == plan


def test_what_a_statement_declares_comes_back_as_it_is_spelled(workers: Workers) -> None:
    _, facts = asked(workers, Types((Column("a", "int"), Column("b", "decimal(9,2)"))))
    assert columns_told(facts) == (Column("a", "INTEGER"), Column("b", "DECIMAL(9,2)"))
    refused(lambda: asked(workers, Types((Column("a", "INTEGER[3]"),))))
    statement = CreateFunction(
        name="F",
        parameters=(Column("x", "int8"),),
        returns="text",
        body="F = lambda x: x",
        if_not_exists=False,
    )
    _, facts = asked(workers, Declare(statement))
    function = Function("F", ("x",), ("BIGINT",), "VARCHAR", statement.body)
    assert declared(statement, facts) == function


def test_definitions_are_tried_and_explained(workers: Workers) -> None:
    nowhere = Query("SELECT a FROM nowhere", T, ())
    assert "nowhere" in refused(lambda: asked(workers, View(nowhere)))
    plan, _ = asked(workers, Explain(Query("SELECT a FROM t", T, ()), picture=False))
    assert plan.startswith(b"logical plan")
    picture, _ = asked(workers, Explain(Query("SELECT a FROM t", T, ()), picture=True))
    assert picture.startswith(b"<svg")
    endless = CreateFunction(
        name="f",
        parameters=(Column("x", "BIGINT"),),
        returns="BIGINT",
        body="import os\nos._exit(9)",
        if_not_exists=False,
    )
    assert refused(lambda: asked(workers, Declare(endless))) == (
        "the query ended the process that computed it"
    )


def test_a_defect_is_no_refusal(workers: Workers) -> None:
    with pytest.raises(RuntimeError, match="UnpicklingError"):
        asked(workers, Compute(b"no plan", Timestamp(7)))
    assert honest(workers)


def test_rows_are_cut_into_blocks(workers: Workers) -> None:
    rows = selected(
        workers, "SELECT i, repeat('y', 3000) AS y FROM range(2500) r(i) ORDER BY i"
    )
    assert [row.partition(",")[0] for row in rows] == [f"[{i}" for i in range(2500)]


def test_a_row_that_is_too_large_is_refused(workers: Workers) -> None:
    text = "SELECT repeat('y', 70000000) AS y"
    assert refused(lambda: selected(workers, text)) == "the query takes too much memory"


def test_a_worker_leaves_nothing(tmp_path: Path) -> None:
    workers = Workers(directory=tmp_path, fork_server=fork_server_address())
    workers.start()
    assert len(list(tmp_path.iterdir())) == 1
    workers.close()
    assert not list(tmp_path.iterdir())


def test_a_worker_logs_in_the_form_of_its_coordinator(
    capfd: pytest.CaptureFixture[str],
) -> None:
    workers = Workers(most=1, log_format="json", fork_server=fork_server_address())
    try:
        with pytest.raises(RuntimeError, match="UnpicklingError"):
            asked(workers, Compute(b"no plan", Timestamp(7)))
    finally:
        workers.close()
    (line,) = capfd.readouterr().err.splitlines()
    said = json.loads(line)
    assert (said["level"], said["service"]) == ("ERROR", "coordinator")
    assert "UnpicklingError" in said["exception"]
