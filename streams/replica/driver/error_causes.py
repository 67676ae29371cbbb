"""Extracts why a micro-batch or a task failed from the errors of Spark and Python. Pure.

Spark wraps the cause: in a Java stack trace, in the message of a job ("most recent failure"),
in the traceback of a Python worker, and in the error of the streaming query around all of them.
Users, and our decisions, need the innermost message.

The kind is found by exclusion. Each cluster manager has its own texts for a killed worker or
executor, so they are not matched: any failure that is not of Kafka and not a full disk may be
caused by a dataflow.
"""

import re

from streams.compute.stalls import UNDECODABLE
from streams.errors import Determinate, Indeterminate
from streams.replica.driver.retry_policy import Failure, Kind
from streams.trace.arrange.disk_reserve import says_full

LONGEST = 500
"""Longest cause in characters: it goes into a status, for display."""

_RECENT = "most recent failure: "
_TRACEBACK = "Traceback (most recent call last):"
_LOST_TASK = re.compile(r"^Lost task .*? executor [^)]*\): ")
_JAVA_CLASS = re.compile(r"^(?:[a-z]\w*\.)+(?:SparkException: )?")
_OURS = re.compile(r"^streams\.[\w.]+: ")
_ADVICE = re.compile(r" Consider setting '.*$")
"""Advice of Spark's to set what users of ours cannot set."""
_CANCELLED = "SPARK_JOB_CANCELLED"
_WRAPPERS = (
    "An error occurred while calling",
    "An exception was thrown from",
    "An exception was raised by",
)


def cause_of(text: str) -> str:
    """Return the innermost cause in an error's text, as one line."""
    return _message(_innermost(text))


def failure_of(error: BaseException) -> Failure:
    """Classify an error that ended a micro-batch in the driver."""
    text = str(error)
    innermost = _innermost(text) or type(error).__name__
    if says_full(text):
        kind = Kind.FULL
    else:
        ours = isinstance(error, Determinate | Indeterminate) or _OURS.match(innermost)
        kind = Kind.UNREACHABLE if ours else Kind.LOST
    return Failure(_message(innermost), kind)


def failure_in(text: str) -> Failure:
    """Classify a dataflow's own failure in a task, from the traceback that the task sent.

    A message that a source stops at is sent as it is: it has what users sent in it.
    """
    if text.startswith(UNDECODABLE):
        return Failure(text)
    return Failure(cause_of(text), Kind.FULL if says_full(text) else Kind.FAILED)


def is_cancelled(error: BaseException) -> bool:
    """Whether a job ended because it was cancelled."""
    return _CANCELLED in str(error)


def _innermost(text: str) -> str:
    text = text.rpartition(_RECENT)[2]
    before, separator, after = text.rpartition(_TRACEBACK)
    lines = [
        line for line in (after if separator else before or text).splitlines() if line.strip()
    ]
    if separator:  # frames are indented, the exception behind them is not
        lines = [line for line in lines if not line[0].isspace()] or lines
    else:
        lines = [line for line in lines if not line.startswith(_WRAPPERS)] or lines
    return _LOST_TASK.sub("", lines[0].removeprefix(": ")) if lines else ""


def _message(innermost: str) -> str:
    text = _ADVICE.sub("", _JAVA_CLASS.sub("", innermost))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
