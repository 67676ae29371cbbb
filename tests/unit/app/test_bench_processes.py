"""What the benchmarks read of /proc, and how they call the processes of an environment."""

import os
import subprocess
import sys

import pytest

from streams.bench.process_kinds import (
    KindUsage,
    ProcessTime,
    kind_of,
    percent_since,
    process_times,
    total,
    usage,
)
from streams.errors import InvalidUsage
from streams.process_tree import (
    ProcessFacts,
    command_line,
    cpu_s,
    descendants,
    family,
    parse_pss,
    parse_stat,
    processes,
    pss_bytes,
    require_linux,
    resident_bytes,
)

STAT = "42 (a) R 7 (b)) S 41 40 40 0 -1 4194560 99 0 0 0 150 50 30 20 20 0 3 0 1 0 0"
ROLLUP = """55d0-7ffe ---p 00000000 00:00 0    [rollup]
Rss:              161004 kB
Pss:                1021 kB
Pss_Dirty:           900 kB
Pss_Anon:            800 kB
"""


def of(parent: int, *, is_zombie: bool = False) -> ProcessFacts:
    return ProcessFacts(parent, is_zombie, 1.0)


def test_the_name_of_a_process_may_hold_parentheses() -> None:
    assert parse_stat(STAT, 100) == ProcessFacts(
        41, is_zombie=False, own_cpu_s=2.0, ended_cpu_s=0.5
    )
    assert parse_stat(STAT, 100).cpu_s == 2.5
    assert parse_stat(STAT.replace(" S ", " Z "), 100).is_zombie


def test_the_proportional_size_is_not_its_parts() -> None:
    assert parse_pss(ROLLUP) == 1021 * 1024
    assert parse_pss("") == 0


def test_a_family_is_what_a_process_has_started_without_zombies() -> None:
    among = {1: of(0), 5: of(1), 6: of(5), 7: of(6), 8: of(5, is_zombie=True), 9: of(1)}
    assert sorted(descendants(5, among)) == [6, 7]
    assert sorted(family(5, among)) == [5, 6, 7]
    assert family(99, among) == []


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_process_that_leads_a_group_of_its_own_counts_with_its_parent() -> None:
    program = "sum(range(20_000_000)); print(flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in descendants(os.getpid(), processes())
        assert command_line(child.pid) == [sys.executable, "-c", program]
        assert cpu_s(child.pid) > 0.05
        assert cpu_s(os.getpid()) > processes()[os.getpid()].cpu_s
        assert resident_bytes(os.getpid()) >= pss_bytes(child.pid) > 1 << 20
        kinds = usage(os.getpid())
        assert total(kinds).processes == len(family(os.getpid(), processes()))
        times = process_times(os.getpid())
        assert times[child.pid] == ProcessTime("other services", cpu_s(child.pid))
        child.kill()
    assert command_line(child.pid) == [""]
    assert pss_bytes(child.pid) == 0


def test_elsewhere_it_is_said_that_linux_is_expected(monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(InvalidUsage, match="expected linux, actual darwin"):
        require_linux("the footprint")


PYTHON, UP = "/usr/bin/python", ("-m", "streams.app.main")


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (["/usr/bin/java", "-Xms64m", "-cp", "kafka-4.2.0/*", "kafka.Kafka", "a"], "broker"),
        (["sh", "-c", "exec java", "kafka.Kafka", "server.properties"], "broker"),
        (
            ["/usr/bin/java", "-cp", "pyspark/jars/*", "org.apache.spark.deploy.SparkSubmit"],
            "Spark's JVM",
        ),
        ([PYTHON, "-m", "streams.replica.spark.zygote", "18"], "Spark's Python"),
        (["/bin/sh", "-c", "read x", "pyspark.daemon", "pyspark.worker"], "Spark's Python"),
        ([PYTHON, *UP, "replica", "--config", "replica.json"], "replica"),
        ([PYTHON, *UP, "coordinator", "--config", "coordinator.json"], "other services"),
        ([PYTHON, *UP, "up", "--directory", "/replica"], "other services"),
        ([PYTHON, "-P", "-m", "streams.app.fork_server", "3"], "other services"),
    ],
)
def test_the_kind_of_a_process_is_told_by_its_command(command: list[str], kind: str) -> None:
    assert kind_of(command) == kind


def test_what_kinds_use_is_added_up() -> None:
    kinds = {"broker": KindUsage(1, 10, 3.0), "replica": KindUsage(2, 5, 0.5)}
    assert total(kinds) == KindUsage(3, 15, 3.5)


def test_processor_time_is_told_by_kind_in_percent_of_a_core() -> None:
    before = {
        1: ProcessTime("broker", 2.0),
        2: ProcessTime("replica", 5.0),
        3: ProcessTime("replica", 9.0),
    }
    now = {
        1: ProcessTime("broker", 3.0),
        2: ProcessTime("replica", 5.1),
        4: ProcessTime("replica", 0.4),
    }
    percent = percent_since(before, now, 10.0)
    assert percent == {"broker": pytest.approx(10.0), "replica": pytest.approx(5.0)}
