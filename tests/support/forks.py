"""The fork server of a run's tests, as each environment has one: what it forks starts at once.

A Python of its own that imports what the coordinator and its workers need takes two seconds of
a processor.
"""

from contextlib import ExitStack
from functools import cache
from pathlib import Path

from streams.app.fork_server import fork_server
from streams.temporary import temporary_directory

_running = ExitStack()


@cache
def fork_server_address() -> Path | None:
    """Its address, or None where there is none; it is started for the first who asks."""
    log = _running.enter_context(temporary_directory("slackwater-tests-")) / "forks.log"
    return _running.enter_context(fork_server(log))


def stop_fork_server() -> None:
    """End it, at the end of the run, and with it all that it has forked."""
    _running.close()
