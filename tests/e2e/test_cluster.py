"""The replica on a Spark cluster: a master and two workers, which share its state's volume.

Workers die and stand still, the master dies, and the driver does; the bank is right.
"""

from collections.abc import Sequence
from functools import partial

import pytest

from tests.e2e.containers import Builder, image
from tests.e2e.plan import Plan
from tests.e2e.trial import Trial, inflict

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(2400)]

MASTER, WORKERS = "spark", ("worker1", "worker2")
ADDRESS = f"spark://{MASTER}:7077"
RECOVERY = "-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory=/tmp/known"
"""A master that is started again knows its workers and applications."""
RUN = """
import os, subprocess, sys
from pathlib import Path
import pyspark
from streams.java import java_for_spark
home = Path(pyspark.__file__).parent
with java_for_spark():
    environment = os.environ | {"SPARK_HOME": str(home)}
    sys.exit(subprocess.call([home / "bin" / "spark-class", *sys.argv[1:]], env=environment))
"""
"""Spark's own command, with the Java of the image."""
FAULTS = [
    ("kill", "worker1"),
    ("kill", "worker2"),
    ("pause", "worker1"),
    ("kill", MASTER),
    ("kill", "worker1"),
    ("kill", "replica"),
]


def spark(builder: Builder, name: str, command: Sequence[str]) -> None:
    """A process of Spark's in our image, which has all that executors need."""
    variables = {"SPARK_MASTER_OPTS": RECOVERY, "SPARK_WORKER_DIR": f"/tmp/{name}"}
    entrypoint = ["python3", "-c", RUN]
    builder.part(name, image("slackwater"), variables, command, entrypoint=entrypoint)


def more(builder: Builder) -> None:
    of = "org.apache.spark.deploy"
    spark(builder, MASTER, [f"{of}.master.Master", "--host", MASTER, "--port", "7077"])
    for worker in WORKERS:
        size = ["--cores", "2", "--memory", "1536m"]
        spark(builder, worker, [f"{of}.worker.Worker", *size, "--host", worker, ADDRESS])


@pytest.fixture
def plan() -> Plan:
    return Plan(
        variables={"SLACKWATER_MASTER": ADDRESS},
        with_state=("replica", *WORKERS),
        more=more,
    )


def test_a_cluster_of_spark(trial: Trial) -> None:
    environment = trial.environment
    for kind, name in FAULTS:
        trial.suffer(kind, name, partial(inflict, kind, environment.parts[name]))
    for worker in WORKERS:
        assert "Launch command" in environment.parts[worker].log, "it had an executor"
    trial.end()
    trial.end_services()
