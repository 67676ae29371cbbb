"""COPY statements of a coordinator: what a SELECT says, in files."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from streams.adapter import copies as execution
from streams.adapter import copy_peeks
from streams.adapter.results import Columns, Complete, Failed, Progress, Result
from streams.compute.protocol import replica_of
from streams.copies.destination import Destination
from streams.copies.targets import CopyTargets
from tests.support.coordinators import NOW, ORDERS, Environment, rows_of, with_orders
from tests.support.processes import eventually


@pytest.fixture
def exports(env: Environment, tmp_path: Path) -> Path:
    """Where COPY may write, in an environment with 30 orders at NOW + 1, and 1 at NOW + 3."""
    replica = with_orders(env)
    rows = [((n % 10, float(n)), NOW + 1, 1) for n in range(30)]
    replica.append("s1", NOW + 2, rows)
    replica.append("s1", NOW + 5, [((99, 0.5), NOW + 3, 1)])
    allow(env, tmp_path)
    return tmp_path


def allow(env: Environment, path: Path) -> None:
    targets = CopyTargets.of([path.as_uri()])
    env.coordinator.copies = replace(env.coordinator.copies, targets=targets)


def read(directory: Path) -> list[list[object]]:
    with duckdb.connect() as connection:
        rows = connection.execute(f"SELECT * FROM '{directory}/*.parquet'").fetchall()
    return sorted([list(row) for row in rows])


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM orders",
        "SELECT id, sum(amount) AS total, count(*) AS n FROM orders GROUP BY id",
        f"SELECT id FROM orders AS OF {NOW + 2}",
        "SELECT amount, id FROM orders WHERE id = 3 ORDER BY amount LIMIT 2",
        "SELECT 1 AS one",
    ],
)
def test_duckdb_reads_what_select_says(env, exports: Path, query: str) -> None:
    selected = env.sql(query)
    copied = env.sql(f"COPY ({query}) TO '{(exports / 'v').as_uri()}'")
    assert read(exports / "v") == sorted(rows_of(selected))
    last = selected[-1]
    assert isinstance(last, Complete)
    time = last.facts.get("as_of")
    size = sum(path.stat().st_size for path in (exports / "v").glob("*.parquet"))
    (told,) = rows_of(copied)
    assert told == [len(rows_of(selected)), 1, size, time]
    assert copied[-1] == Complete(f"COPY {told[0]}", last.facts)
    manifest = json.loads((exports / "v" / "_SUCCESS").read_text())
    assert (manifest["rows"], manifest["as_of"]) == (told[0], time)
    shown = next(result for result in selected if isinstance(result, Columns))
    assert [column["name"] for column in manifest["columns"]] == [
        column.name for column in shown.columns
    ]


def test_an_object_is_copied_by_its_name(env, exports: Path) -> None:
    (told,) = rows_of(env.sql(f"COPY orders AS OF {NOW + 2} TO '{(exports / 'v').as_uri()}'"))
    assert told[0] == 30
    assert told[3] == NOW + 2
    assert env.rows("SELECT 1 AS one") == [[1]]


def test_a_copy_happens_once(env, exports: Path) -> None:
    statement = f"COPY orders TO '{(exports / 'v').as_uri()}'"
    assert isinstance(env.sql(statement)[-1], Complete)
    before = sorted(path.name for path in (exports / "v").iterdir())
    failed = env.fails(statement)
    assert failed.message == "COPY TO expected a directory that is empty or does not exist"
    assert failed.detail == "it has _SUCCESS, of 2 in all; COPY overwrites nothing"
    assert sorted(path.name for path in (exports / "v").iterdir()) == before
    assert [path.name for path in exports.iterdir()] == ["v"]


def test_nothing_is_written_where_nothing_is_allowed(env, tmp_path: Path) -> None:
    failed = env.fails(f"COPY (SELECT 1 AS a) TO '{tmp_path.as_uri()}/v'")
    assert "may not write" in failed.message
    assert "--copy-to" in failed.hint
    allow(env, tmp_path / "exports")
    for uri in ("s", "../x", "exports/../x", "exports/%2e%2e/x", "exports"):
        env.fails(f"COPY (SELECT 1 AS a) TO '{tmp_path.as_uri()}/{uri}'")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT * FROM nothing", "nothing"),
        ("SELECT 1 AS a, 2 AS A", "expected columns of different names, actual A twice"),
        ("SELECT union_value(k := 1) AS u", "cannot write column u of type UNION(k INTEGER)"),
        ("SELECT error('no') AS a", "the query failed"),
        (
            "SELECT 170141183460469231731687303715884105727::HUGEINT AS h",
            "a value of column h, of type HUGEINT",
        ),
        (f"SELECT * FROM orders AS OF {NOW - 100_000}", "cannot be read at"),
    ],
)
def test_what_select_or_parquet_refuses_writes_nothing(
    env, exports: Path, query: str, said: str
) -> None:
    failed = env.fails(f"COPY ({query}) TO '{exports.as_uri()}/v'")
    assert said in failed.message
    assert not list(exports.iterdir())


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(13, "Permission denied: KEY:SECRET"),
        OSError("When initiating upload with KEY: AWS Error ACCESS_DENIED\nSECRET"),
        pa.ArrowInvalid("what is SECRET"),
        TimeoutError("too slow: SECRET"),
    ],
)
def test_a_file_system_that_fails_shows_no_secret(env, exports, error: Exception) -> None:
    (prefix,) = env.coordinator.copies.targets.prefixes
    split = prefix.split._replace(query="secret=SECRET&access_key=KEY")
    env.coordinator.copies = replace(
        env.coordinator.copies,
        targets=CopyTargets((replace(prefix, split=split),)),
        open_=lambda *_: raising(error),
    )
    failed = env.fails(f"COPY orders TO '{exports.as_uri()}/v'")
    assert failed.message.startswith(f"COPY could not write to {exports.as_uri()}/v")
    assert "permissions" in failed.hint
    assert "SECRET" not in str(failed)
    assert "KEY" not in str(failed)


def raising(error: Exception) -> Destination:
    raise error


def test_a_reader_that_leaves_cancels_the_copy(env, exports: Path, monkeypatch) -> None:
    begun, go_on, ended = (threading.Event() for _ in range(3))
    write = Destination.write

    def slow(self: Destination, data, manifest, is_canceled) -> None:
        def pieces() -> Iterator[bytes]:
            begun.set()
            assert go_on.wait(30)
            yield from data

        try:
            write(self, pieces(), manifest, is_canceled)
        finally:
            ended.set()

    monkeypatch.setattr(Destination, "write", slow)
    monkeypatch.setattr(execution, "BEAT_S", 0.05)
    answer = env.coordinator.execute(f"COPY orders TO '{exports.as_uri()}/v'")
    results: list[Result] = []
    while not begun.is_set():
        results.append(next(answer))
    assert isinstance(next(answer), Progress)
    answer.close()
    go_on.set()
    assert ended.wait(30)
    eventually(lambda: not list(exports.iterdir()))
    assert not any(isinstance(result, Complete) for result in results)


def test_a_slow_file_system_keeps_no_history(env, exports: Path, monkeypatch) -> None:
    """What is written was computed: since may move meanwhile."""
    held: list[int] = []
    write = Destination.write

    def looking(self: Destination, *rest) -> None:
        held.append(len(env.coordinator.guards._guards))
        write(self, *rest)

    monkeypatch.setattr(Destination, "write", looking)
    assert isinstance(env.sql(f"COPY orders TO '{exports.as_uri()}/v'")[-1], Complete)
    assert held == [0]


@pytest.fixture
def replica_exports(env: Environment, tmp_path: Path) -> Path:
    """As `exports`, but a replica may write there, and the coordinator nowhere."""
    replica = env.start_replica()
    replica.answer_peeks(env.broker, copy_to=CopyTargets.of([tmp_path.as_uri()]))
    assert isinstance(env.sql(ORDERS)[-1], Complete)
    eventually(lambda: bool(replica.created) and bool(names_of(env)))
    rows = [((n % 10, float(n)), NOW + 1, 1) for n in range(30)]
    replica.append("s1", NOW + 2, rows)
    return tmp_path


def names_of(env: Environment) -> list[str]:
    return sorted(map(replica_of, env.coordinator.observed.replicas))


def by_replica(env: Environment, query: str, directory: Path, name: str = "") -> list[Result]:
    name = name or names_of(env)[0]
    uri = directory.as_uri()
    return env.sql(f"COPY ({query}) TO '{uri}' WITH (REPLICA \"{name}\")")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM orders",
        "SELECT amount AS a, id FROM orders WHERE id > 3 ORDER BY id DESC",
        f"SELECT id FROM orders WHERE id = 3 AS OF {NOW + 1}",
    ],
)
def test_a_replica_copies_what_select_says(env, replica_exports: Path, query: str) -> None:
    selected = env.sql(query)
    copied = by_replica(env, query, replica_exports / "v")
    assert read(replica_exports / "v") == sorted(rows_of(selected))
    last = selected[-1]
    assert isinstance(last, Complete)
    (told,) = rows_of(copied)
    assert told[0] == len(rows_of(selected))
    assert told[3] == last.facts["as_of"]
    assert copied[-1] == Complete(f"COPY {told[0]}", last.facts)
    failed = by_replica(env, query, replica_exports / "v")[-1]
    assert isinstance(failed, Failed)
    assert failed.message == "COPY TO expected a directory that is empty or does not exist"
    assert failed.detail.endswith("COPY overwrites nothing")
    assert failed.hint


@pytest.mark.parametrize(
    ("query", "name", "said"),
    [
        ("SELECT * FROM orders", "r9", "there is no replica r9"),
        ("SELECT id + 1 AS a FROM orders", "", "COPY by a replica expected a SELECT"),
        ("SELECT count(*) AS n FROM orders", "", "COPY by a replica expected a SELECT"),
        ("SELECT 1 AS a", "", "COPY by a replica expected a SELECT"),
    ],
)
def test_what_a_replica_cannot_copy_is_an_error(
    env, replica_exports: Path, query: str, name: str, said: str
) -> None:
    failed = by_replica(env, query, replica_exports / "v", name)[-1]
    assert isinstance(failed, Failed)
    assert said in failed.message
    assert not list(replica_exports.iterdir())


def test_no_secret_of_a_statement_goes_to_the_replicas(
    env, replica_exports: Path, monkeypatch
) -> None:
    monkeypatch.setattr(env.coordinator.instances.of("default"), "peek", raising)
    failed = env.fails("COPY orders TO 's3://KEY:SECRET@b/v' WITH (REPLICA fake)")
    assert "actual one with credentials or options" in failed.message
    assert "SECRET" not in str(failed)


def test_a_replica_writes_where_its_own_setting_allows(
    env, replica_exports: Path, tmp_path_factory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    allow(env, elsewhere)  # the coordinator might
    failed = by_replica(env, "SELECT * FROM orders", elsewhere / "v")[-1]
    assert isinstance(failed, Failed)
    assert "may not write" in failed.message
    assert not list(elsewhere.iterdir())


def test_a_reader_that_leaves_cancels_the_copy_of_a_replica(
    env, replica_exports: Path, monkeypatch
) -> None:
    begun, go_on, ended = (threading.Event() for _ in range(3))
    write = Destination.write

    def slow(self: Destination, data, manifest, is_canceled) -> None:
        begun.set()
        assert go_on.wait(30)
        try:
            eventually(is_canceled)
            write(self, data, manifest, is_canceled)
        finally:
            ended.set()

    monkeypatch.setattr(Destination, "write", slow)
    monkeypatch.setattr(copy_peeks, "BEAT_S", 0.05)
    uri, name = (replica_exports / "v").as_uri(), names_of(env)[0]
    answer = env.coordinator.execute(f"COPY orders TO '{uri}' WITH (REPLICA \"{name}\")")
    while not begun.is_set():
        next(answer)
    assert isinstance(next(answer), Progress)
    answer.close()
    go_on.set()
    assert ended.wait(30)
    eventually(lambda: not list(replica_exports.iterdir()))


def test_system_relations_are_copied_too(env, exports: Path) -> None:
    target = (exports / "v").as_uri()
    (told,) = rows_of(env.sql(f"COPY (SELECT name FROM slackwater.objects) TO '{target}'"))
    assert read(exports / "v") == [["orders"]]
    assert told[0] == 1


def test_a_replica_copies_no_system_relation(env, replica_exports: Path) -> None:
    failed = by_replica(env, "SELECT * FROM slackwater.objects", replica_exports / "v")[-1]
    assert isinstance(failed, Failed)
    assert failed.message == "COPY by a replica expected an object, actual slackwater.objects"
