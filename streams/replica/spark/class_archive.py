"""Writes the archive of Spark's classes: `python -m streams.replica.spark.class_archive`.

A JVM writes an archive of the classes that it has loaded when it ends. So this starts a session
as a replica does, runs a streaming query of the same shape as a lane's, and ends it. The file
is renamed into place when it is complete.
"""

import logging
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from streams.class_archives import prune, quoted, spark_archive, writing_archive
from streams.errors import Determinate
from streams.java import find_java
from streams.replica.spark.session import SMALL_JVM, SparkSettings, spark_session
from streams.replica.spark.source import SCHEMA
from streams.temporary import temporary_directory

log = logging.getLogger(__name__)

_WRITE_TIMEOUT_S = 300


def write_archive() -> Path | None:
    """Write the archive for this machine's Java, unless there is one. Return its path.

    None if there can be no archive of this Java.

    Errors: Determinate if the JVM wrote none; OSError; PySparkException.
    """
    archive = spark_archive(find_java())
    if archive is None or archive.is_file():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with temporary_directory("archiving-", archive.parent) as scratch:
        written = scratch / archive.name
        options = quoted(writing_archive(written, SMALL_JVM))
        settings = SparkSettings(extra={"spark.driver.extraJavaOptions": options})
        with spark_session(settings, scratch) as session:
            _run_query(session, scratch)
        _end_jvm()
        if not written.is_file():
            raise Determinate(f"no archive of classes: expected that Java writes {written}")
        os.replace(written, archive)  # noqa: PTH105
    prune(archive)
    return archive


def _run_query(session: SparkSession, scratch: Path) -> None:
    """Run some micro-batches of a query as a lane's."""
    session.dataSource.register(_Numbers)

    def step(frame: DataFrame, _: int) -> None:
        frame.repartitionById(2, "bucket").mapInArrow(_same, SCHEMA).collect()

    stream = session.readStream.format(_Numbers.name()).load()
    options = {"checkpointLocation": str(scratch / "checkpoint")}
    query = stream.writeStream.foreachBatch(step).options(**options).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


class _Numbers(DataSource):  # type: ignore[misc]  # Spark's class has no types
    @classmethod
    def name(cls) -> str:
        return "slackwater-numbers"

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> "_NumbersReader":  # noqa: ARG002, N802
        return _NumbersReader()


class _NumbersReader(DataSourceStreamReader):  # type: ignore[misc]  # Spark's class has no types
    """Three micro-batches of two tasks."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  Spark's
        return {"seq": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:  # noqa: ARG002, N802
        return {"seq": min(start["seq"] + 1, 3)}

    def partitions(self, start: object, end: object) -> Sequence[InputPartition]:  # noqa: ARG002
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        columns = [pa.array([0, 1], pa.int32()), pa.array([b"a", b"b"])]
        yield pa.RecordBatch.from_arrays(columns, SCHEMA.names)


def _end_jvm() -> None:
    """End the JVM, and wait until it has written its archive."""
    gateway = SparkContext._gateway  # noqa: SLF001
    assert gateway is not None
    process: subprocess.Popen[bytes] = gateway.proc
    assert process.stdin is not None
    process.stdin.close()
    process.wait(_WRITE_TIMEOUT_S)


def main() -> None:
    """Write the archive, or log why there is none: Spark starts without it too."""
    logging.basicConfig()
    log.setLevel(logging.INFO)
    try:
        log.info("classes of Spark are archived: %s", write_archive() or "not of this Java")
    except (Determinate, OSError, PySparkException, subprocess.TimeoutExpired) as error:
        log.warning("classes of Spark are not archived: %s", error)
    logging.shutdown()
    os._exit(0)  # DuckDB's binding would list its objects in the log (`tests/conftest.py`)


if __name__ == "__main__":
    main()
