"""The worker process: evaluates users' texts with bounded memory.

    python -m streams.adapter.workers LIMITS DIRECTORY ERRORS LOG_FORMAT

takes requests on its standard input and answers on its standard output (`framing`, `requests`)
until the input ends. The system refuses every allocation beyond the limit (RLIMIT_DATA); a
process that cannot continue then exits, and its coordinator reports that as the statement's
error. Python functions run here.

Its files lie in DIRECTORY, and none has more bytes than a statement may put on disk; what
DuckDB spills goes there too. Until it has started it writes errors to a file there, from which
its coordinator takes why it did not; then to the file descriptor ERRORS, as LOG_FORMAT says.
"""

import logging
import os
import pickle
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from streams.adapter.workers.framing import DATA, END, REQUEST, receive, send
from streams.adapter.workers.handlers import RequestExecutor
from streams.adapter.workers.limits import Limits
from streams.adapter.workers.requests import Ended, Request
from streams.errors import InvalidStatement, SlackwaterError
from streams.log_lines import configure
from streams.plan.sql.limits import too_deep

log = logging.getLogger(__name__)

OUT_OF_MEMORY = 71
"""The exit code of a worker that ran out of its memory."""

START_LOG = "start.log"
"""The file that has what a worker wrote before it had started."""

SERVICE = "coordinator"
"""The service that a worker is a part of, as its log lines name it."""

_OOM_SCORE = Path("/proc/self/oom_score_adj")
_MEMORY = Path("/proc/self/statm")
_DATA_PAGES = 5
_FIRST_TO_GO = "1000"
_ORPHAN_S = 30


class ProcessLimits:
    """The limits on this process, beyond its idle usage."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self._idle = limits, _data_bytes()
        self.seconds = limits.seconds
        most = self._idle + limits.memory
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits.disk, limits.disk))

    @property
    def is_worn(self) -> bool:
        """Whether earlier requests left too little memory for the next."""
        return _data_bytes() - self._idle > self._limits.memory // 4


def _data_bytes() -> int:
    try:
        pages = int(_MEMORY.read_text().split()[_DATA_PAGES])
    except OSError:  # no Linux
        return 0
    return pages * resource.getpagesize()


def serve(
    answering: RequestExecutor, bounds: ProcessLimits, pipes: tuple[BinaryIO, BinaryIO]
) -> None:
    """Answer requests until the input ends, or this process is spent."""
    # The coordinator ends what takes too long; an alarm does where there is none any more.
    requests, taken = pipes
    send(taken, END, Ended().encoded())  # it has started
    while (frame := receive(requests)) is not None:
        kind, body = frame
        assert kind == REQUEST, "a request comes first"
        count, request = pickle.loads(body)  # noqa: S301  the coordinator's
        tables = [_table(requests) for _ in range(count)]
        signal.setitimer(signal.ITIMER_REAL, bounds.seconds + _ORPHAN_S)
        ended = _answered(answering, request, tables, taken)
        signal.setitimer(signal.ITIMER_REAL, 0)
        del tables
        spent = bool(ended.defect) or bounds.is_worn
        send(taken, END, Ended(ended.facts, ended.refused, ended.defect, spent).encoded())
        if spent:
            return


def _table(stream: BinaryIO) -> pa.Table:
    frame = receive(stream)
    assert frame is not None, "the coordinator ended"
    return pa.ipc.open_stream(pa.py_buffer(frame[1])).read_all()


def _answered(
    answering: RequestExecutor, request: Request, tables: Sequence[pa.Table], taken: BinaryIO
) -> Ended:
    facts: dict[str, object] = {}
    try:
        for block in answering.answer(request, tables, facts):
            send(taken, DATA, block)
    except InvalidStatement as error:
        return Ended(refused=(error.message, error.detail, error.hint))
    except SlackwaterError as error:
        return Ended(refused=(str(error), "", ""))
    except RecursionError:
        deep = too_deep()
        return Ended(refused=(deep.message, deep.detail, deep.hint))
    except (MemoryError, BrokenPipeError):
        raise
    except Exception as defect:
        log.exception("a statement could not be answered")
        return Ended(defect=repr(defect))
    return Ended(facts)


def _claimed() -> tuple[BinaryIO, BinaryIO]:
    """The pipes, which no other code in this process can take for the standard streams."""
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    taken = os.fdopen(os.dup(1), "wb", buffering=0)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return requests, taken


def main(arguments: Sequence[str]) -> int:
    """Serve; return the exit code."""
    encoded, directory, number, log_format = arguments
    limits, errors = Limits.decoded(encoded), int(number)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's goes to the coordinator too
    logging.basicConfig(stream=sys.stderr)
    pipes = _claimed()
    tempfile.tempdir = directory
    os.chdir(directory)  # where DuckDB spills
    with suppress(OSError):
        _OOM_SCORE.write_text(_FIRST_TO_GO)
    try:
        answering, bounds = RequestExecutor(limits), ProcessLimits(limits)
        os.dup2(errors, 2)
        os.dup2(errors, 1)
        os.close(errors)
        configure(log_format, SERVICE, sys.stderr)
        serve(answering, bounds, pipes)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except BrokenPipeError:
        pass
    shutil.rmtree(directory, ignore_errors=True)
    return 0
