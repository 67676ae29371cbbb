"""Has an archive of Spark's classes written while an environment runs, where there is none.

It is written beside the environment, at the lowest priority, once for each version of Java and
PySpark: later sessions start in half the processor time (`streams.class_archives`).
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streams.app.die_with_parent import guarded
from streams.app.processes import kill_group
from streams.class_archives import spark_archive
from streams.errors import Determinate
from streams.java import find_java

_WRITER = (sys.executable, "-m", "streams.replica.spark.class_archive")


@contextmanager
def class_archiving(log_file: Path) -> Iterator[None]:
    """Have the archive written meanwhile, unless it is there; the end of the block ends that.

    Errors: OSError if the log, or a process, cannot be made.
    """
    if not _is_missing():
        yield
        return
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with log_file.open("ab") as out:
        writer = subprocess.Popen(  # noqa: S603  our own command, no shell
            guarded(("nice", "-n", "19", *_WRITER)),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield
    finally:
        kill_group(writer.pid, signal.SIGKILL)  # what it leaves, the next one removes
        writer.wait()


def _is_missing() -> bool:
    try:
        archive = spark_archive(find_java())
    except Determinate:  # no Java: whoever needs it says so
        return False
    return archive is not None and not archive.is_file()
