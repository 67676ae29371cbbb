"""The helper by which tests kill and wait for processes, while these end by themselves."""

import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.processes import (
    command_line,
    family,
    is_alive,
    kill,
    kill_all,
    settled,
    signal_group,
)

FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


ALONE = "print(flush=True); input()"


def test_a_family_is_killed_of_which_one_has_just_ended() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        second = int(first.stdout.readline())
        everything = family(first.pid)
        assert {process.pid for process in everything} == {first.pid, second}
        first.kill()
        first.wait()
        kill_all(everything)
        settled(everything)
    assert not is_alive(first.pid)
    assert not is_alive(second)


def test_what_has_ended_has_no_family_no_command_line_and_takes_no_signal() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ALONE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # while it is being executed it has no command line
        (alone,) = family(process.pid)
        assert command_line(alone)[1:] == ["-c", ALONE]
        process.kill()
    assert family(process.pid) == frozenset()
    assert command_line(alone) == []
    signal_group(process.pid, signal.SIGKILL)
    kill(process.pid)
    kill_all([alone])
    settled([alone], 0)


def test_no_test_kills_a_process_by_its_number_itself() -> None:
    """It may have ended: ProcessLookupError, once in a thousand runs."""
    tests = Path(__file__).parents[1]
    bare = [
        f"{file.relative_to(tests)}:{number}"
        for file in sorted(tests.rglob("*.py"))
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if re.search(r"\bos\.kill(pg)?\((?!os\.get(pid|pgrp)\(\))", line)
        and file.name not in {"processes.py", Path(__file__).name}
    ]
    assert not bare, "use tests.support.processes"
