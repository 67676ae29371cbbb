"""A Spark job of a backfill, in a process of its own.

So a service has no JVM, which would stay until its end, and several backfills do not share one
session; and PySpark forks where there are no other threads. The work is a file that is the
child's standard input, pickled, and the answer comes back by standard output:

    parent                      child
      Work              --->      starts Spark, runs the job, ends Spark
                        <---    Answer

Whatever ends the child ends its JVM too, whose standard input is a pipe of the child's. Tasks
that still run elsewhere do no harm (`connectors.backfill.tasks`).
"""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module as module  # of what loads Spark, for the child alone
from pickle import UnpicklingError
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, NamedTuple

from streams.app import signals
from streams.app.die_with_parent import guarded
from streams.errors import Determinate, InvalidUsage, SlackwaterError

if TYPE_CHECKING:
    from connectors.backfill.tasks import Accessing, Cell, Plan
    from connectors.runtime.runner import Stopping

NAME = "slackwater materialize"
LOOK_S = 0.2
PATIENCE_S = 10.0
"""How long Spark may take to end once nobody wants the job any more."""


@dataclass(frozen=True, slots=True, repr=False)
class Work:
    """A job and where it runs; `master` is empty for what Spark's own configuration says."""

    master: str
    accessing: "Accessing"
    plan: "Plan"
    cells: Sequence["Cell"]


class Answer(NamedTuple):
    """How many rows were written, or why not, and whether to try again may help."""

    rows: int = 0
    failure: str = ""
    can_pass: bool = False


def run(work: Work, stopping: "Stopping") -> int:
    """Run a job; return how many rows it has written.

    Errors: InvalidUsage if trying again is of no use; Determinate, also once it is stopped.
    """
    command = guarded([sys.executable, "-m", __name__])
    with TemporaryFile(prefix="slackwater-") as file:  # without a name: it may hold secrets
        pickle.dump(work, file)
        file.seek(0)
        with subprocess.Popen(  # noqa: S603  our own program
            command, stdin=file, stdout=subprocess.PIPE
        ) as child:
            text = answer_of(child, stopping)
    try:
        answer = Answer(*pickle.loads(text))  # noqa: S301  our own child's
    except (UnpicklingError, EOFError) as error:
        raise Determinate(
            f"spark: the process of the job has ended with {child.returncode} and no answer"
        ) from error
    if answer.failure:
        raise (Determinate if answer.can_pass else InvalidUsage)(answer.failure)
    return answer.rows


def answer_of(child: "subprocess.Popen[bytes]", stopping: "Stopping") -> bytes:
    """Return what a child says of its work. Errors: Determinate once it is stopped."""
    while True:
        try:
            return child.communicate(timeout=LOOK_S)[0]
        except subprocess.TimeoutExpired:
            if stopping.is_set():
                end(child)
                raise Determinate("spark: the job was stopped") from None
        except BaseException:
            child.kill()
            raise


def end(child: "subprocess.Popen[bytes]") -> None:
    """End a child, and with it its JVM."""
    child.terminate()
    try:
        child.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        child.kill()


def attempt(work: Work) -> Answer:
    """Run a job in this process."""
    job = module("connectors.backfill.job")
    session = module("streams.compaction.job").session(work.master, NAME)
    try:
        return Answer(rows=job.run_in(session, work.accessing, work.plan, work.cells))
    except SlackwaterError as error:
        return Answer(failure=str(error), can_pass=not isinstance(error, InvalidUsage))


def main() -> None:
    """Do the work that standard input has. What Spark prints is no part of the answer.

    A Ctrl-C is for the parent, which asks this process to end.
    """
    with signals.listening([]), os.fdopen(os.dup(1), "wb") as answering:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.dup2(2, 1)
        work: Work = pickle.load(sys.stdin.buffer)  # noqa: S301  our own parent's
        answering.write(pickle.dumps(tuple(attempt(work))))


if __name__ == "__main__":
    main()
