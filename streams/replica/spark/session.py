"""The Spark session of a replica, with the settings that were measured to matter.

A replica has one session in its driver process. The JVM is a child that exits when its standard
input is closed, and it stays in the driver's process group, so that killing the group kills
both.

On this machine workers run this process's Python and are started through the zygote. On a
cluster they run `PYSPARK_PYTHON`, which must have this package installed.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from streams.class_archives import quoted, with_archive
from streams.java import LEAN_HEAP, java_for_spark, own_interrupt, variable
from streams.log_lines import JSON, LogFormat, log4j2
from streams.replica.spark.source import SlackwaterSource
from streams.replica.spark.zygote import zygote
from streams.temporary import temporary_directory

LOCAL = "spark"

SMALL_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *LEAN_HEAP)

PLANNERS_PYTHON = "PYSPARK_DRIVER_PYTHON"
"""The variable of the JVM with the Python that looks up data sources; else it is the `python3`
of the PATH, whatever that is."""

_LOCAL = re.compile(r"local(?:\[(\d+|\*)(,\d+)?\])?")

_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing"
    ".FileSystemBasedCheckpointFileManager"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """Spark options for users; `extra` settings override ours.

    On this machine each resident task has a core more than `master` says: it keeps one.
    """

    master: str = "local[2,4]"
    resident_tasks: int = 0
    driver_memory: str = "1g"
    log_format: LogFormat = "text"
    extra: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def spark_session(settings: SparkSettings, state: Path) -> Iterator[SparkSession]:
    """Run a session with our data source registered; stopped at the end."""
    shutil.rmtree(state / LOCAL, ignore_errors=True)  # left by a session that was killed
    with ExitStack() as stack:
        java = stack.enter_context(java_for_spark())
        local = settings.master.startswith("local")
        python = stack.enter_context(zygote()) if local else None
        master = with_cores(settings.master, settings.resident_tasks)
        builder = SparkSession.builder.master(master).appName("slackwater")
        logging = stack.enter_context(log_lines(settings.log_format))
        options = defaults(settings, state, logging, java)
        for key, value in {**options, **settings.extra}.items():
            builder = builder.config(key, value)
        with own_interrupt(), variable(PLANNERS_PYTHON, str(python or sys.executable)):
            session = builder.getOrCreate()
        stack.callback(session.stop)
        session.sparkContext.setLogLevel("ERROR")
        if python is not None:
            session.sparkContext.pythonExec = str(python)
        session.dataSource.register(SlackwaterSource)
        yield session


def is_one_process(master: str) -> bool:
    """Whether all of Spark is the driver's process, which has as many cores as we say."""
    return _LOCAL.fullmatch(master) is not None


def with_cores(master: str, more: int) -> str:
    """Return a master on this machine with so many cores more; another one stays as it is."""
    local = _LOCAL.fullmatch(master)
    if local is None or not more:
        return master
    cores, attempts = local.groups()
    count = os.cpu_count() or 1 if cores == "*" else int(cores or 1)
    return f"local[{count + more}{attempts or ''}]"


@contextmanager
def log_lines(log_format: LogFormat) -> Iterator[str]:
    """Yield the option of the driver's JVM that makes its log lines JSON; empty for text."""
    if log_format != JSON:
        yield ""
        return
    with temporary_directory("slackwater-log-") as directory:
        file = Path(directory) / "log4j2.properties"
        file.write_text(log4j2("replica"))
        yield f' "-Dlog4j2.configurationFile={file}"'


def defaults(
    settings: SparkSettings, state: Path, log_option: str, java: Path | None = None
) -> dict[str, str]:
    """Return our settings; `log_option` is an option more of the driver's JVM.

    With the `java` that runs it, the JVM uses an archive of classes where there is one.
    """
    small = settings.master.startswith("local")
    jvm = with_archive(java, SMALL_JVM if small else ("-XX:+UseSerialGC",))
    return {
        "spark.driver.memory": settings.driver_memory,
        # 126 -> 99 ms a trigger on a small driver
        "spark.driver.extraJavaOptions": quoted(jvm) + log_option,
        "spark.local.dir": str(state / LOCAL),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # lanes share the cores: a hydration's tasks must not queue before a step's
        "spark.scheduler.mode": "FAIR",
        "spark.python.daemon.module": "streams.replica.spark.worker_daemon",
        # of the queries' workers: with another environment a resident task has a daemon more
        "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
        # TCP costs 87 ms more a trigger
        "spark.python.unix.domain.socket.enabled": "true",
        # the default one costs 65 ms more a trigger
        "spark.sql.streaming.checkpointFileManagerClass": _MANAGER,
        # adaptive execution merges partitions, and bucket i must stay partition i
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "20",
        # an executor that is frozen, or cut off, is lost before the deadline of a micro-batch
        # (`ReplicaConfig.deadline_s`), so that the next attempt runs elsewhere; exclusion of
        # executors stays off: a dataflow that kills its workers would take them from others
        "spark.network.timeout": "40s",
        "spark.network.timeoutInterval": "10s",
        # stopping a query that hangs may hang too
        "spark.sql.streaming.stopTimeout": "60s",
        "spark.sql.streaming.minBatchesToRetain": "2",
        # our blobs are a few large rows: do not split batches by size
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    }
