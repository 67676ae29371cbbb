"""Processes as Linux's /proc has them: their tree, memory, processor time and command lines.

What a process has started counts with it. A process that ends while it is looked at counts as
nothing.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from streams.errors import InvalidUsage

PROC = Path("/proc")
_TIMES = slice(11, 15)
"""Places in /proc/PID/stat, after the name: the time of the process and of its children that
have ended and were waited for, in user and system mode."""


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """What the system says of a process.

    Units: seconds of processor time, its own and that of its children that have ended.
    """

    parent: int
    is_zombie: bool
    own_cpu_s: float
    ended_cpu_s: float = 0.0

    @property
    def cpu_s(self) -> float:
        """All of its processor time."""
        return self.own_cpu_s + self.ended_cpu_s


def require_linux(what: str) -> None:
    """Errors: InvalidUsage where /proc has no processes."""
    if sys.platform != "linux":
        raise InvalidUsage(
            f"{what} reads /proc, which only Linux has: expected linux, actual {sys.platform}"
        )


def parse_stat(text: str, ticks_per_s: int) -> ProcessFacts:
    """Return what a /proc/PID/stat says; the name of a process may hold anything."""
    fields = text.rpartition(")")[2].split()
    user, system, ended_user, ended_system = (int(field) for field in fields[_TIMES])
    own, ended = user + system, ended_user + ended_system
    return ProcessFacts(
        int(fields[1]), fields[0] == "Z", own / ticks_per_s, ended / ticks_per_s
    )


def parse_pss(rollup: str) -> int:
    """Return the proportional set size in a /proc/PID/smaps_rollup, in bytes; 0 without one."""
    kilobytes = [line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:")]
    return sum(map(int, kilobytes)) * 1024


def processes() -> dict[int, ProcessFacts]:
    """Return all processes by their ids; none where there is no /proc."""
    ticks = os.sysconf("SC_CLK_TCK")
    texts = {int(place.parent.name): _text(place) for place in PROC.glob("[0-9]*/stat")}
    return {pid: parse_stat(text, ticks) for pid, text in texts.items() if text}


def descendants(root: int, among: Mapping[int, ProcessFacts]) -> list[int]:
    """Return the processes that come from one, without it and without zombies."""
    children: dict[int, list[int]] = {}
    for pid, facts in among.items():
        if not facts.is_zombie:
            children.setdefault(facts.parent, []).append(pid)
    descendants = list(children.get(root, []))
    for pid in descendants:
        descendants += children.get(pid, [])
    return descendants


def family(root: int, among: Mapping[int, ProcessFacts]) -> list[int]:
    """Return a process, if it is there, and those that come from it."""
    own = [root] if root in among else []
    return [*own, *descendants(root, among)]


def cpu_s(root: int) -> float:
    """Return the processor time that a process and what it started have used, in seconds."""
    all_ = processes()
    return sum(all_[pid].cpu_s for pid in family(root, all_))


def pss_bytes(pid: int) -> int:
    """Return the proportional set size of a process: what it shares is counted in parts."""
    return parse_pss(_text(PROC / str(pid) / "smaps_rollup"))


def resident_bytes(root: int) -> int:
    """Return the proportional set size of a process and of what it started."""
    return resident(root)[0]


def resident(root: int) -> tuple[int, int]:
    """Return the same, and the number of processes; 0 where there is no /proc."""
    pids = family(root, processes())
    return sum(map(pss_bytes, pids)), len(pids)


def command_line(pid: int) -> list[str]:
    """Return the command of a process and its arguments; none when it has ended."""
    return _text(PROC / str(pid) / "cmdline").rstrip("\0 ").split("\0")


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
