"""One Spark session for all tests of replicas, and an instance for each."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from pyspark.sql import SparkSession

from streams.kafka.embedded import EmbeddedBroker
from streams.replica.config import ReplicaConfig
from streams.replica.main import Replica
from streams.replica.spark import class_archive
from streams.replica.spark.session import SparkSettings, spark_session
from tests.integration.replica.deep_view import Deep
from tests.integration.replica.support import Bench, open_bench

MOST_RESIDENT = 2
"""Of all tests: the session has a core for each, beside those of jobs."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One local Spark session, shared by all tests, with its archive of classes written."""
    subprocess.run([sys.executable, "-m", class_archive.__name__], check=True)
    settings = SparkSettings(resident_tasks=MOST_RESIDENT)
    with spark_session(settings, tmp_path_factory.mktemp("spark")) as session:
        gateway = session.sparkContext._gateway
        yield session
    # Its threads keep replicas, and with them DuckDB, beyond the end of Python: a leak is told.
    gateway.shutdown()


@pytest.fixture
def bench(broker: EmbeddedBroker) -> Iterator[Bench]:
    """A compute instance of its own namespace on the real broker, created and initialized."""
    opened = open_bench(broker.bootstrap)
    opened.begin()
    yield opened
    opened.shards.close()
    opened.broker.close()


@pytest.fixture
def deep(bench: Bench, broker: EmbeddedBroker) -> Iterator[Deep]:
    """A view of five stages, whose sources move while it is told to."""
    deep_view = Deep(bench, broker.bootstrap)
    yield deep_view
    deep_view.stopping.set()


def config_of(
    bench: Bench,
    state: Path,
    name: str = "r1",
    deadline_s: float = 60.0,
    points: Mapping[str, int] = MappingProxyType({}),
    resident_tasks: int = 0,
) -> ReplicaConfig:
    return ReplicaConfig(
        name=name,
        kafka=bench.kafka,
        commands=bench.command_topic,
        responses=bench.response_topic,
        state=state,
        deadline_s=deadline_s,
        spark=SparkSettings(resident_tasks=resident_tasks),
        timings=True,
        points=dict(points),
    )


@pytest.fixture
def run(spark: SparkSession, bench: Bench, tmp_path: Path) -> Iterator[Callable[..., Replica]]:
    """Starts replicas in threads of this process, over the shared session."""
    running: list[tuple[Replica, threading.Thread]] = []

    def start(
        name: str = "r1",
        state: Path | None = None,
        deadline_s: float = 60.0,
        points: Mapping[str, int] = MappingProxyType({}),
        resident_tasks: int = 0,
    ) -> Replica:
        directory = state or tmp_path / name
        config = config_of(bench, directory, name, deadline_s, points, resident_tasks)
        replica = Replica(config, spark)
        thread = threading.Thread(target=replica.run, name=name, daemon=True)
        thread.start()
        running.append((replica, thread))
        return replica

    yield start
    for replica, _ in running:
        replica.stop()
    for _, thread in running:
        thread.join(30)
        assert not thread.is_alive()
