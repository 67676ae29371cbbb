"""A Spark job of a backfill, in a process of its own.

So a service has no JVM, which would stay until its end, and several backfills do not share one
session; and PySpark forks where there are no other threads. The work is a file that is the
child's standard input, pickled, and the answers come back by standard output:

    parent                      child
      Work              --->      starts Spark, runs the job, ends Spark
                        <---    (ranges, rows) that are committed so far, each time it is more
                        <---    Answer

Whatever ends the child ends its JVM too, whose standard input is a pipe of the child's. Tasks
that still run elsewhere do no harm (`connectors.backfill.tasks`).
"""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module as module  # of what loads Spark, for the child alone
from pickle import UnpicklingError
from queue import Empty, SimpleQueue
from tempfile import TemporaryFile
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

from streams.app import signals
from streams.app.die_with_parent import guarded
from streams.errors import Determinate, InvalidUsage, SlackwaterError

if TYPE_CHECKING:
    from connectors.backfill.outcome import Outcome, Progress
    from connectors.backfill.tasks import Accessing, Cell, Plan
    from connectors.runtime.runner import Stopping

NAME = "slackwater materialize"
LOOK_S = 0.2
PATIENCE_S = 10.0
"""How long Spark may take to end once the job is not wanted any more."""


@dataclass(frozen=True, slots=True, repr=False)
class Work:
    """A job and where it runs; `master` is empty for what Spark's own configuration says."""

    master: str
    accessing: "Accessing"
    plan: "Plan"
    cells: Sequence["Cell"]


class JobAnswer(NamedTuple):
    """What was written, as `Outcome`; or why not, and whether to try again may help."""

    rows: int = 0
    stalls: Mapping[int, str] = {}
    failure: str = ""
    can_pass: bool = False


Said = tuple[int, int] | tuple[int, Mapping[int, str], str, bool] | None
"""A message of a child: progress is a pair, an `JobAnswer` longer. None: there are no more."""


def run(work: Work, stopping: "Stopping", progress: "Progress") -> "Outcome":
    """Run a job; return what it has written.

    Errors: InvalidUsage if trying again is of no use; Determinate, also once it is stopped.
    """
    from connectors.backfill.outcome import Outcome  # noqa: PLC0415  its package loads much

    command = guarded([sys.executable, "-m", __name__])
    with TemporaryFile(prefix="slackwater-") as file:  # without a name: it may hold secrets
        pickle.dump(work, file)
        file.seek(0)
        with subprocess.Popen(  # noqa: S603  our own program
            command, stdin=file, stdout=subprocess.PIPE
        ) as child:
            answer = answer_of(child, stopping, progress)
    if answer is None:
        raise Determinate(
            f"spark: the process of the job has ended with {child.returncode} and no answer"
        )
    if answer.failure:
        raise (Determinate if answer.can_pass else InvalidUsage)(answer.failure)
    return Outcome(answer.rows, answer.stalls)


def answer_of(
    child: "subprocess.Popen[bytes]", stopping: "Stopping", progress: "Progress"
) -> JobAnswer | None:
    """Return a child's answer, if it has one. Errors: Determinate once it is stopped."""
    messages, answer = SimpleQueue[Said](), None
    thread = Thread(target=receive, args=(child, messages), name="answers", daemon=True)
    thread.start()
    try:
        while True:
            try:
                said = messages.get(timeout=LOOK_S)
            except Empty:
                if stopping.is_set():
                    end(child)
                    raise Determinate("spark: the job was stopped") from None
                continue
            if said is None:
                return answer
            if len(said) == 2:  # noqa: PLR2004  a pair
                progress(*said)
            else:
                answer = JobAnswer(*said)
    except BaseException:
        child.kill()
        raise
    finally:
        thread.join()


def receive(child: "subprocess.Popen[bytes]", messages: "SimpleQueue[Said]") -> None:
    """Take the messages of a child until its output ends."""
    assert child.stdout is not None, "it is a pipe"
    try:
        while True:
            messages.put(pickle.load(child.stdout))  # noqa: S301  our own child's
    except (UnpicklingError, EOFError):
        messages.put(None)


def end(child: "subprocess.Popen[bytes]") -> None:
    """End a child, and with it its JVM."""
    child.terminate()
    try:
        child.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        child.kill()


def attempt(work: Work, progress: "Progress") -> JobAnswer:
    """Run a job in this process."""
    job = module("connectors.backfill.job")
    session = module("streams.compaction.job").session(work.master, NAME)
    try:
        outcome: Outcome = job.run_in(session, work.accessing, work.plan, work.cells, progress)
        return JobAnswer(outcome.rows, outcome.stalls)
    except SlackwaterError as error:
        return JobAnswer(failure=str(error), can_pass=not isinstance(error, InvalidUsage))


def main() -> None:
    """Do the work that standard input has. What Spark prints is no part of the answers.

    A Ctrl-C is for the parent, which asks this process to end.
    """
    with signals.listening([]), os.fdopen(os.dup(1), "wb") as answering:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.dup2(2, 1)

        def progress(ranges: int, rows: int) -> None:
            answering.write(pickle.dumps((ranges, rows)))
            answering.flush()

        work: Work = pickle.load(sys.stdin.buffer)  # noqa: S301  our own parent's
        answering.write(pickle.dumps(tuple(attempt(work, progress))))


if __name__ == "__main__":
    main()
