"""The processes of an environment's replica: memory and processor time, as /proc has them."""

import os
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_GROUP, _TIMES = 2, slice(11, 15)
"""Places in /proc/PID/stat after the name: the group; time of the process and its waited-for
children, in user and system mode."""


def resident_bytes(leader: int) -> int:
    """Return the proportional set size of the processes in a process group."""
    return sum(_pss(process) for process in _of_group(leader))


def cpu_s(leader: int) -> float:
    """Return the processor time that the processes in a process group have used, in seconds."""
    ticks = sum(
        sum(int(field) for field in _stat(process)[_TIMES]) for process in _of_group(leader)
    )
    return ticks / os.sysconf("SC_CLK_TCK")


def _of_group(leader: int) -> Iterator[Path]:
    for process in _PROC.iterdir():
        if process.name.isdigit() and _stat(process)[_GROUP : _GROUP + 1] == [str(leader)]:
            yield process


def _stat(process: Path) -> list[str]:
    """The fields after the name; none when the process has ended meanwhile."""
    try:
        return (process / "stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def _pss(process: Path) -> int:
    try:
        lines = (process / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
