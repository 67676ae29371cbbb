"""What is found in the errors of Spark, of its workers and of cluster managers."""

import errno
import os

import pytest

from streams.errors import Determinate
from streams.replica.driver.error_causes import (
    LONGEST,
    cause_of,
    failure_in,
    failure_of,
    is_cancelled,
)
from streams.replica.driver.retry_policy import Kind

SPARK = "org.apache.spark.SparkException: "
JOB = f"An error occurred while calling o77.collectToPython.\n: {SPARK}"
ABORTED = (
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, "
    "most recent failure: "
)
LOST = "Lost task 0.3 in stage 1.0 (TID 8) (10.0.0.7 executor driver): "
FRAMES = "\n\tat org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:1136)"

CRASHED = (
    f"{JOB}{ABORTED}{LOST}org.apache.spark.SparkException: Python worker exited unexpectedly "
    "(crashed). Consider setting 'spark.sql.execution.pyspark.udf.faulthandler.enabled' "
    "or'spark.python.worker.faulthandler.enabled' configuration to 'true' for the better "
    f"Python traceback.{FRAMES}\nCaused by: java.io.EOFException{FRAMES}\n"
)
EXECUTOR = (
    f"{JOB}{ABORTED}Lost task 0.3 in stage 1.0 (TID 8) (10.0.0.7 executor 3): "
    "ExecutorLostFailure (executor 3 exited caused by one of the running tasks) Reason: "
    "Command exited with code 137\nDriver stacktrace:"
)
WORKER = (
    "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
    '  File "stage.py", line 15, in start\n    open("/nowhere")\n'
)
PROXY = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: An exception was "
    "raised by the Python Proxy. Return Message: Traceback (most recent call last):\n"
    '  File "clientserver.py", line 1, in _call_proxy\n    return_value = 1\n'
    f"py4j.protocol.Py4JJavaError: {EXECUTOR}"
)


@pytest.mark.parametrize(
    ("text", "cause", "kind"),
    [
        (CRASHED, "Python worker exited unexpectedly (crashed).", Kind.LOST),
        (EXECUTOR, "ExecutorLostFailure (executor 3 exited caused", Kind.LOST),
        (PROXY, "ExecutorLostFailure (executor 3 exited caused", Kind.LOST),
        (f"{WORKER}ValueError: 7 is odd\n", "ValueError: 7 is odd", Kind.LOST),
        (
            f"{WORKER}OSError: [Errno 28] {os.strerror(errno.ENOSPC)}\n",
            "OSError: [Errno 28] No space left on device",
            Kind.FULL,
        ),
        (
            f"{JOB}{ABORTED}{LOST}java.io.IOException: No space left on device{FRAMES}",
            "IOException: No space left on device",
            Kind.FULL,
        ),
        (
            f"{WORKER}streams.errors.Determinate: fetch t/0: no answer in time\n",
            "Determinate: fetch t/0: no answer in time",
            Kind.UNREACHABLE,
        ),
        ("java.lang.OutOfMemoryError: Java heap space", "OutOfMemoryError: Java", Kind.LOST),
        ("", "Exception", Kind.LOST),
    ],
)
def test_the_innermost_cause_is_told(text: str, cause: str, kind: Kind) -> None:
    failure = failure_of(Exception(text))
    assert failure.message.startswith(cause)
    assert "\n" not in failure.message
    assert failure.kind is kind


def test_nobody_is_told_to_set_what_is_not_theirs() -> None:
    assert failure_of(Exception(CRASHED)).message.endswith("unexpectedly (crashed).")


def test_an_error_of_kafka_in_the_driver_is_of_kafka() -> None:
    failure = failure_of(Determinate("append: no answer"))
    assert (failure.message, failure.kind) == ("append: no answer", Kind.UNREACHABLE)


def test_a_failure_of_a_dataflow_in_a_task_is_its_last_line() -> None:
    text = f"{WORKER}KeyError: 'amount'\n".partition("\n")[2]
    assert failure_in(text) == failure_of(Exception(text)).__class__("KeyError: 'amount'")
    full = failure_in(f"{WORKER}OSError: [Errno 28] No space left on device: '/s/runs/a'\n")
    assert full.kind is Kind.FULL


def test_a_cause_is_no_essay() -> None:
    assert len(cause_of("x" * 10_000)) < LONGEST + 10


def test_a_cancelled_job_is_told_from_others() -> None:
    job = f"{JOB}[SPARK_JOB_CANCELLED] Job 4 cancelled part of cancelled job group g"
    assert is_cancelled(Exception(job))
    assert not is_cancelled(Exception(CRASHED))
