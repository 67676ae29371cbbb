"""Tasks on hosts that share nothing but a store: exact wherever each of them runs."""

import os
import random
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streams.errors import Determinate, Indeterminate
from streams.replica.driver.task_inputs import ServedInputs
from streams.replica.spark.task_rpc_server import TaskRpcServer
from streams.replica.state_files import RemoteFiles, RunStore, opened
from streams.replica.tasks import report, resident, rounds, worker, workplace
from streams.replica.tasks.authenticated_frames import Door
from streams.replica.tasks.descriptor import Descriptor
from streams.replica.tasks.exchange_blobs import blobs, peek
from streams.replica.tasks.report import Result
from streams.replica.tasks.run_cache import YOUNG_S, RunFileCache
from streams.replica.tasks.versions import versions
from streams.replica.tasks.workplace import Remote
from streams.testing import spark
from streams.testing.spark import TASKS, VIEW, SparkDataflow
from tests.support.maintained import Tables, compare


@dataclass
class Cluster:
    """A driver, and hosts with a cache each: what tasks of a host are told."""

    directory: Path
    chance: random.Random = field(default_factory=partial(random.Random, 1))
    inputs: ServedInputs = field(default_factory=ServedInputs)
    used: set[str] = field(default_factory=set)
    server: TaskRpcServer = field(init=False)
    door: Door = field(init=False)

    def __post_init__(self) -> None:
        self.server = TaskRpcServer("inputs", partial(workplace.serve, answers=self.inputs))
        self.door = self.server.start("127.0.0.1", "127.0.0.1")

    @property
    def store(self) -> RemoteFiles:
        return opened(f"file://{self.directory}/store").below("sw/default/r1")

    def cache_of(self, host: str) -> Path:
        return self.directory / host / "sw/default/r1" / workplace._boot()

    def place(self, host: str, **changes: Any) -> str:
        settings: dict[str, Any] = {
            "uri": f"file://{self.directory}/store",
            "folder": "sw/default/r1",
            "cache": str(self.directory / host),
        }
        store = RunStore(**(settings | changes))
        return workplace.dumps(Remote(self.door, store, versions()))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.server.stop()
    assert cluster.server.join(time.monotonic() + 10)


HOSTS = ("one", "two", "three")


def on_hosts(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have views of tests stepped by tasks of which each is on any host."""

    @dataclass(slots=True)
    class OnHosts(SparkDataflow):
        session: Any = None

        def __post_init__(self) -> None:
            SparkDataflow.__post_init__(self)
            (plan,) = (self.directory / "plans").iterdir()
            cluster.inputs.put_plan(plan.name, plan.read_text())
            self.inputs = cluster.inputs
            worker.plan.cache_clear()  # all plans of tests have one name

        def _run(self, batch: Descriptor) -> Result:
            cluster.inputs.put_step(batch)
            sent = [
                blob
                for index in range(TASKS)
                for blob in blobs(rounds.start_round(_anywhere(cluster), batch.step, index))
            ]
            for level in range(1, self.dataflow.depth + 1):
                sent = [
                    blob
                    for mine in resident.by_bucket(sent).values()
                    for blob in blobs(
                        rounds.advance_round(level, _anywhere(cluster), resident._batches(mine))
                    )
                ]
            cluster.inputs.drop_step(batch.step)
            return report.gather(peek(blob) for _, blob in sent).get(VIEW, Result())

    monkeypatch.setattr(spark, "SparkDataflow", OnHosts)


def _anywhere(cluster: Cluster) -> str:
    """A task on any host, in a process that has nothing open, and perhaps an empty cache."""
    host = cluster.chance.choice(HOSTS)
    cluster.used.add(host)
    if cluster.chance.random() < 0.2:
        shutil.rmtree(cluster.cache_of(host), ignore_errors=True)
        cluster.cache_of(host).mkdir(parents=True)
    if cluster.chance.random() < 0.5:
        worker.context.cache_clear()
    return cluster.place(host)


COLUMNS = {"t": {"a": "INTEGER", "b": "VARCHAR"}, "u": {"a": "INTEGER", "c": "DOUBLE"}}
QUERIES = [
    "SELECT a, count(*) AS n, max(b) AS m FROM t GROUP BY a",
    "SELECT t.a, b, c FROM t JOIN u ON t.a = u.a",
    "SELECT b, (SELECT min(a) FROM u WHERE u.a > t.a) AS x FROM t",
    "SELECT DISTINCT a FROM (SELECT a FROM t UNION ALL SELECT a FROM u)",
    "SELECT a, b, row_number() OVER (PARTITION BY a ORDER BY b) AS r FROM t",
]


@pytest.mark.parametrize("query", QUERIES)
def test_views_are_exact_wherever_a_task_runs(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    on_hosts(cluster, monkeypatch)
    for seed in range(2):
        chance = random.Random(seed)
        tables = Tables(COLUMNS, chance)
        compare(tables, tables.maintain(query, chance, "spark"), query)
    assert cluster.store.sizes("runs")
    assert not cluster.inputs.steps, "what has ended is forgotten"
    assert cluster.used == set(HOSTS)


def test_a_run_file_that_is_lost_everywhere_is_an_error_of_its_dataflow(
    cluster: Cluster,
) -> None:
    context = worker.context(cluster.place("one"))
    with pytest.raises(FileNotFoundError):
        context.files.open([["ab12.0", 3]])


def test_an_executor_of_another_version_is_refused_by_name(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = cluster.place("one")
    monkeypatch.setattr(workplace, "versions", lambda: {**versions(), "duckdb": "0.1"})
    with pytest.raises(Determinate) as refused:
        workplace.of(place)
    ours = versions()["duckdb"]
    assert f"duckdb 0.1, the driver's is {ours}" in str(refused.value)


def test_what_has_ended_or_never_was_is_not_there(cluster: Cluster) -> None:
    place = workplace.of(cluster.place("one"))
    cluster.inputs.put_plan("p", "{}")
    assert place.plan("p") == "{}"
    with pytest.raises(Indeterminate, match="no longer has step gone"):
        place.descriptor("gone")
    assert place.plan("p") == "{}", "the connection goes on"


def test_a_connection_that_is_lost_is_made_again(cluster: Cluster) -> None:
    place = workplace.of(cluster.place("two"))
    cluster.inputs.put_plan("p", "{}")
    assert place.plan("p") == "{}"
    for frames in tuple(cluster.server._connections):
        frames.end()
    assert place.plan("p") == "{}"


def test_without_a_driver_a_task_fails_for_the_moment(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    cluster.door = Door("127.0.0.1", port, b"token")
    with pytest.raises(Indeterminate, match="the replica's driver"):
        workplace.of(cluster.place("one")).plan("p")


def test_who_does_not_know_the_token_learns_nothing(cluster: Cluster) -> None:
    cluster.inputs.put_plan("p", "{}")
    cluster.door = Door(cluster.door.host, cluster.door.port, b"guessed")
    with pytest.raises(Indeterminate):
        workplace.of(cluster.place("one")).plan("p")
    assert not cluster.server._connections


@pytest.mark.parametrize("content", [None, b""])
def test_a_file_that_left_the_cache_too_early_fails_its_task(
    cluster: Cluster, tmp_path: Path, content: bytes | None
) -> None:
    cache = RunFileCache(cluster.store, tmp_path / "cache" / "boot", 4_000)
    if content is not None:
        (tmp_path / "cache" / "boot" / "run").write_bytes(content)
    with pytest.raises(Indeterminate, match="left the cache"):
        cache.keep(["run"])
    assert not cluster.store.sizes("runs")


def test_what_was_there_before_a_boot_is_not_trusted(cluster: Cluster, tmp_path: Path) -> None:
    earlier = RunFileCache(cluster.store, tmp_path / "cache" / "first boot", 4_000)
    (earlier.directory / "run").write_bytes(b"a part of it")
    RunFileCache(cluster.store, tmp_path / "cache" / "second boot", 4_000)
    assert not earlier.directory.exists()


def test_a_cache_has_no_more_than_it_may(cluster: Cluster, tmp_path: Path) -> None:
    cache = RunFileCache(cluster.store, tmp_path / "cache" / "boot", 4_000)
    paths = [tmp_path / "cache" / "boot" / f"run{number:02}" for number in range(20)]
    for path in paths:
        path.write_bytes(bytes(1_000))
    cache.keep(path.name for path in paths)
    assert all(path.exists() for path in paths), "each was just opened"
    old = time.time() - 2 * YOUNG_S
    for number, path in enumerate(paths):
        os.utime(path, (old + number, old + number))
    paths[0].unlink()
    cache.bring(paths[0].name)
    assert [path for path in paths if path.exists()] == [paths[0], *paths[-3:]]
    assert len(cluster.store.sizes("runs")) == 20
