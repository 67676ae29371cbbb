"""Decides from how a process ended whether to restart it; its supervisor acts on it.

A process that ends is started again after a pause that grows. One that ends in the same way
three times in a row, each time soon after its start, would do so forever: it is given up. One
that is killed has not ended by itself, and is started again however often that happens; and so
is one that something else is to blame for, as a full disk.
"""

import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streams.log_lines import as_text

ENOUGH = 3
"""The number of equal ends in a row after which to give up."""

STABLE_S = 60.0
"""A process that has run for so long has not ended soon after its start."""

SPARK_STABLE_S = 300.0
"""The same for a process that starts Spark, which gives up a master after a minute itself."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
LONGEST_ERROR = 400


@dataclass(frozen=True, slots=True)
class End:
    """An end: the exit code, or minus the signal; the last error it wrote; how long it ran."""

    code: int
    error: str
    lasted_s: float

    def __str__(self) -> str:
        how = f"ended with exit code {self.code}"
        if self.code < 0:
            how = f"was ended by signal {_signal(-self.code)}"
        return f"{how}: {self.error}" if self.error else how

    @property
    def way(self) -> tuple[int, str]:
        """The part of the last error that equal ends share: without numbers and ids."""
        return self.code, re.sub(r"[0-9a-f-]{8,}|\d+", "#", self.error)


@dataclass(slots=True)
class Ends:
    """The ends of one process so far, as far as they matter.

    An end after less than `stable_s` seconds is soon after its start.
    """

    stable_s: float = STABLE_S
    last: tuple[int, str] | None = None
    alike: int = 0
    pause_s: float = 0.0
    excused: str = ""

    @property
    def outlook(self) -> str:
        """For people: what is done about an end that is not the last."""
        if not self.excused:
            return "restarting"
        return f"{self.excused}; restarting until that is over"

    def note(self, end: End) -> bool:
        """Take note of an end; whether it is one too many. `pause_s` is then the pause."""
        soon = end.lasted_s < self.stable_s
        by_itself = soon and end.code != -signal.SIGKILL
        self.alike = self.alike + 1 if by_itself and self.last == end.way else int(by_itself)
        self.last = end.way
        longer_s = min(self.pause_s * 2, LONGEST_PAUSE_S)
        self.pause_s = max(longer_s, FIRST_PAUSE_S) if soon else FIRST_PAUSE_S
        return self.alike >= ENOUGH

    def is_last(self, end: End, excuse: "Excuse") -> bool:
        """Take note of an end; whether the process is given up. `excused` says why it is not.

        With an excuse the count starts again: what comes after it is another matter.
        """
        self.excused = excuse(end) if self.note(end) else ""
        if self.excused:
            self.alike = 0
            return False
        return self.alike >= ENOUGH


Excuse = Callable[[End], str]
"""External causes of an end, in a few words; empty if the process is to blame."""


def none(_: End) -> str:
    """No excuse."""
    return ""


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return str(number)


_FINE = re.compile(r"\b(DEBUG|INFO|WARN|WARNING)\b")
_BAD = re.compile(r"\b(ERROR|CRITICAL|FATAL)\b|^(error|fatal)\b", re.IGNORECASE)
_ECHO = re.compile(r"JAVA_GATEWAY_EXITED|unexpected error, exiting")
"""Lines that only announce an error that another line names."""
_STAMP = re.compile(r"^\S+ \S+ (ERROR|CRITICAL|FATAL) (?=\S+:)|^error: ", re.IGNORECASE)


def last_error(text: str) -> str:
    """The last error in the output of a process, in one line; empty when there is none.

    An error is a line that says so, the end of Python's traceback or the head of Java's. Where
    there is none it is the last line, unless that says that all is well.
    """
    lines = [line for said in text.splitlines() for line in as_text(said)]
    lines = [line.rstrip() for line in lines if line.strip()]
    errors = [line for index, line in enumerate(lines) if _is_error(lines, index)]
    errors = [line for line in errors if not _ECHO.search(line)] or errors
    last_line = (errors or [line for line in lines[-1:] if not _FINE.search(line)] or [""])[-1]
    return _STAMP.sub("", last_line)[:LONGEST_ERROR].strip()


def _is_error(lines: Sequence[str], index: int) -> bool:
    line = lines[index]
    if line[0].isspace() or _FINE.search(line):
        return False
    after_trace = index > 0 and lines[index - 1].startswith("    ")
    before_trace = lines[index + 1 : index + 2] and lines[index + 1].lstrip().startswith("at ")
    return bool(_BAD.search(line) or after_trace or before_trace)
