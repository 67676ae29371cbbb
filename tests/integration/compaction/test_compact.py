"""Compaction on a real broker: the command, a Spark job, and kills while a writer appends."""

import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest

from streams.app.service_config import Service
from streams.ids import CollectionId, Timestamp
from streams.java import java_for_spark
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.embedded import EmbeddedBroker
from streams.kafka.settings import ClientSettings
from streams.progress import frontier
from streams.storage.client.shards import Shards, write_capability
from streams.storage.description import Description
from streams.storage.log.events import Append, Part
from streams.storage.log.outcomes import Appended
from streams.storage.policy import catalog_hold
from streams.storage.read import reader as read
from tests.support.javaless import without_java

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

DESCRIPTION = Description((("key", "BIGINT"), ("text", "VARCHAR")))
U1 = CollectionId("u1")
ROOT = Path(__file__).parents[3]
SOON_THERE = os.environ | {"SPARK_SUBMIT_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
"""For a JVM that lives for seconds: it compiles what runs often, and no better than need be."""
namespaces = itertools.count()


@dataclass
class Place:
    """A namespace with one collection, whose updates are known."""

    bootstrap: str
    namespace: str
    shards: Shards
    rng: random.Random = field(default_factory=lambda: random.Random(7))
    updates: list[tuple[int, str, int, int]] = field(default_factory=list)

    def append(self, batches: int, rows: int) -> None:
        for _ in range(batches):
            now = int(self.shards.state(U1).upper.time)
            fresh = [(self.rng.randrange(1000), "x" * 20, now, 1) for _ in range(rows)]
            old = self.rng.sample(self.updates, min(len(self.updates), rows // 2))
            deletions = [(key, text, now, -1) for key, text, _, diff in old if diff > 0]
            self.link(now, fresh + deletions)

    def link(self, now: int, updates: list[tuple[int, str, int, int]]) -> None:
        part = Part(
            collection=U1,
            capability=write_capability(U1),
            lower=frontier(now),
            upper=frontier(now + 1),
            chunks=self.shards.write(U1, table(updates)),
        )
        [outcome] = self.shards.submit([("u1", Append((part,)))])
        assert isinstance(outcome, Appended)
        self.updates += updates

    def expected(self, time_: int) -> Counter[tuple[int, str]]:
        total: Counter[tuple[int, str]] = Counter()
        for key, text, at, diff in self.updates:
            if at <= time_:
                total[key, text] += diff
        return nonzero(total)

    def contents(self, time_: int) -> Counter[tuple[int, str]]:
        loaded = read.snapshot(self.shards, U1, Timestamp(time_))[0]
        summed = loaded.group_by(["c0", "c1"]).aggregate([("diff", "sum")]).to_pylist()
        return nonzero(Counter({(row["c0"], row["c1"]): row["diff_sum"] for row in summed}))

    def command(self, *options: str) -> list[str]:
        reach = ["--brokers", self.bootstrap, "--namespace", self.namespace, "--json"]
        return [sys.executable, "-m", "streams.app.main", "compact", *reach, *options]


def nonzero(total: Counter[tuple[int, str]]) -> Counter[tuple[int, str]]:
    return Counter({row: count for row, count in total.items() if count})


def table(updates: list[tuple[int, str, int, int]]) -> pa.Table:
    types = [pa.int64(), pa.utf8(), pa.int64(), pa.int64()]
    columns = zip(*updates, strict=True) if updates else [[]] * 4
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.table(arrays, ["c0", "c1", "time", "diff"])


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def place(broker: EmbeddedBroker) -> Iterator[Place]:
    kafka = KafkaBroker(ClientSettings(broker.bootstrap))
    name = f"compact{next(namespaces)}"
    shards = Shards(
        kafka.logs, kafka.chunks, kafka.topics, namespace=name, now_ms=now_ms, pump=True
    )
    shards.create("u1", U1, DESCRIPTION, Timestamp(0), read=catalog_hold(U1))
    yield Place(broker.bootstrap, name, shards)
    shards.close()
    kafka.close()


def test_the_command_compacts_and_reclaims(place: Place) -> None:
    place.append(20, 50)
    orphans = place.shards.write(U1, table([(1, "orphan", 3, 1)]))
    done = subprocess.run(
        place.command("u1", "--whole", "--since", "15", "--orphans"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [merged["batches"] for merged in report["compacted"]] == [20]
    assert report["reclaimed"]["chunks"] == 20 + len(orphans)
    place.shards.sync(U1)
    state = place.shards.state(U1)
    assert (state.since, state.batches.count) == (frontier(15), 1)
    for at in range(15, 20):
        assert place.contents(at) == place.expected(at)
    unknown = subprocess.run(
        place.command("nobody"), capture_output=True, text=True, timeout=300, check=False
    )
    assert unknown.returncode == 1
    assert "there is no collection nobody" in unknown.stderr


@pytest.mark.long
def test_a_spark_job_gives_the_same(place: Place) -> None:
    """In a process of its own: a JVM that another test has started has its own settings."""
    place.append(12, 400)
    done = subprocess.run(
        place.command("--whole", "--lag", "2", "--master", "local[2]"),
        env=SOON_THERE,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [merged] = json.loads(done.stdout)["compacted"]
    assert (merged["batches"], merged["rows_written"] < merged["rows_read"]) == (12, True)
    place.shards.sync(U1)
    assert place.shards.state(U1).batches.count == 1
    for at in (9, 10, 11):
        assert place.contents(at) == place.expected(at)


@pytest.mark.long
@pytest.mark.parametrize(
    "program",
    [("-m", "streams.app.main", "compact"), (str(ROOT / "streams" / "app" / "compact.py"),)],
    ids=["slackwater compact", "compact.py"],
)
def test_a_spark_job_needs_no_java_on_the_machine(
    place: Place, tmp_path: Path, program: Sequence[str]
) -> None:
    place.append(6, 40)
    options = place.command("--spark", "--whole", "--lag", "2")[4:]
    done = subprocess.run(
        [sys.executable, *program, *options],
        env=without_java(tmp_path),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [merged] = json.loads(done.stdout)["compacted"]
    assert merged["batches"] == 6
    place.shards.sync(U1)
    assert place.contents(5) == place.expected(5)


def test_spark_submit_compacts(place: Place, tmp_path: Path) -> None:
    """By the command line of the operations page, with the `spark-submit` of PySpark."""
    place.append(12, 50)
    before = {at: place.contents(at) for at in range(8, 12)}
    client = tmp_path / "client.properties"
    client.write_text("socket.keepalive.enable = true\n")
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit")]
    reach = ["--brokers", place.bootstrap, "--client", f"@{client}", "--spark"]
    options = ["--namespace", place.namespace, "--whole", "--since", "8", "--json", "u1"]
    with java_for_spark():  # on a machine without Java too
        variables = {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": os.environ["JAVA_HOME"]}
        done = subprocess.run(
            [*submit, "streams/app/compact.py", *reach, *options],
            cwd=ROOT,
            env=SOON_THERE | variables,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    [merged] = json.loads(done.stdout)["compacted"]
    assert (merged["collection"], merged["batches"]) == ("u1", 12)
    place.shards.sync(U1)
    state = place.shards.state(U1)
    assert (state.since, state.batches.count) == (frontier(8), 1)
    assert {at: place.contents(at) for at in before} == before
    place.append(1, 50)
    assert place.contents(12) == place.expected(12)


def test_the_service_compacts_now_and_then(place: Place, tmp_path: Path) -> None:
    place.append(8, 20)
    config = tmp_path / "compaction.json"
    Service(
        bootstrap=place.bootstrap,
        directory=str(tmp_path),
        namespace=place.namespace,
        compact_every_s=0.5,
    ).write(config)
    command = [sys.executable, "-m", "streams.app.main", "compaction", "--config", str(config)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        try:
            merged = lambda: place.shards.state(U1).batches.count < 8  # noqa: E731  asked below
            assert place.shards.wait(merged, 60_000)
        finally:
            process.terminate()
            code = process.wait(30)
    assert code == 0
    assert place.contents(7) == place.expected(7)


@pytest.mark.parametrize(
    "waits_s", [(3.0,), pytest.param((2.0, 3.0, 4.0, 5.0), marks=pytest.mark.long)]
)
def test_a_kill_at_any_moment_leaves_the_contents(
    place: Place, waits_s: Sequence[float]
) -> None:
    place.append(10, 200)
    for wait_s in waits_s:
        with subprocess.Popen(
            place.command("--whole", "--lag", "3", "--orphans"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            until = time.monotonic() + wait_s
            while time.monotonic() < until:
                append_patiently(place)
                time.sleep(0.1)
            process.kill()
        place.shards.sync(U1)
        state = place.shards.state(U1)
        readable = range(state.since.time, state.upper.time)
        for at in {readable[0], readable[-1], *place.rng.sample(readable, 2)}:
            assert place.contents(at) == place.expected(at)


def append_patiently(place: Place) -> None:
    """One append; written again when a collector was faster, as `--orphans` says."""
    before = len(place.updates)
    while len(place.updates) == before:
        with contextlib.suppress(AssertionError):
            place.append(1, 20)
