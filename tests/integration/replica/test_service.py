"""The replica as an operating system runs it: without standard input, and stopped politely."""

import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streams.app.service_config import Service
from streams.compute.controller import create_topics
from streams.kafka.embedded import EmbeddedBroker
from streams.replica import zygote_client
from streams.replica.main import INSTANCE, Replica
from tests.integration.replica.conftest import config_of
from tests.integration.replica.json_producer import Feed
from tests.integration.replica.support import Bench, now_ms
from tests.support.processes import (
    command_line,
    eventually,
    expect_no_trace,
    family,
    service,
    settled,
    signal_group,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


def is_of_no_zygote(command: Sequence[str]) -> bool:
    """Whether Spark started a daemon of PySpark's alone: its forks leave traces at a stop."""
    return zygote_client.DAEMON in command and zygote_client.__file__ not in command


@contextmanager
def served(bench: Bench, directory: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A running `slackwater replica`, whose output goes to `directory`/log."""
    config = directory / "replica.json"
    Service(
        resident_tasks=1,
        bootstrap=bench.kafka.bootstrap,
        directory=str(directory / "state"),
        namespace=bench.namespace,
        instance="main",
    ).write(config)
    with service("replica", config, directory / "log") as process:
        yield process


@pytest.mark.parametrize(
    "to_all",
    [
        pytest.param(False, id="SIGTERM to the process", marks=pytest.mark.long),
        pytest.param(True, id="Ctrl-C to the group"),
    ],
)
def test_it_serves_without_a_standard_input_and_a_clean_stop_leaves_no_traces(
    bench: Bench, broker: EmbeddedBroker, tmp_path: Path, to_all: bool
) -> None:
    topic, feed = bench.raw_topic(), Feed(broker.bootstrap)
    bench.source("s", [("id", "BIGINT")], topic)
    bench.view("v", "SELECT id % 3 AS k, count(*) AS n FROM s GROUP BY 1")
    bench.view("w", "SELECT sum(n) AS n FROM v")
    with served(bench, tmp_path) as process:
        feed.send(topic, [{"id": i} for i in range(100)])
        for name in ("v", "w"):
            bench.wait_upper(name, now_ms(), 180)
        everything = family(process.pid)
        assert len(everything) >= 4
        commands = [command_line(process) for process in everything]
        assert not [command for command in commands if is_of_no_zygote(command)]
        feed.send(topic, [{"id": i} for i in range(5_000)])
        time.sleep(0.5)  # in the middle of steps
        if to_all:
            signal_group(process.pid, signal.SIGINT)
        else:
            process.terminate()
        assert process.wait(60) == 0
        settled(everything)
    expect_no_trace(tmp_path / "log")


def test_it_waits_for_its_coordinator(
    bench: Bench, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    later = replace(bench, namespace=f"{bench.namespace}-later")
    replica = Replica(config_of(later, tmp_path / "r1"), spark)
    thread = threading.Thread(target=replica.run, name="r1", daemon=True)
    with caplog.at_level(logging.INFO):
        thread.start()
        eventually(lambda: "waiting for its coordinator" in caplog.text, 180)
        assert replica.waits_for == INSTANCE
        create_topics(bench.broker.topics, later.namespace, "main")
        eventually(lambda: "replica serves" in caplog.text, 180)
        eventually(lambda: not replica.waits_for, 180)
        replica.stop()
        thread.join(60)
    assert not thread.is_alive()


def test_it_ends_at_once_while_spark_starts(bench: Bench, tmp_path: Path) -> None:
    with served(bench, tmp_path) as process:
        eventually(lambda: len(family(process.pid)) >= 3, 120)  # Java, and the zygote
        everything = family(process.pid)
        process.terminate()
        assert process.wait(60) == 0
        settled(everything)
    assert "replica serves" not in (tmp_path / "log").read_text()
    expect_no_trace(tmp_path / "log")


def test_a_replica_without_brokers_says_so_in_one_line(tmp_path: Path) -> None:
    config = tmp_path / "replica.json"
    Service(bootstrap="127.0.0.1:1", directory=str(tmp_path / "state")).write(config)
    command = [sys.executable, "-m", "streams.app.main", "replica", "--config", str(config)]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 1
    (line,) = (done.stdout + done.stderr).splitlines()
    assert "ERROR" in line
    assert "no broker answers at 127.0.0.1:1" in line
