"""A clock for deadlines that stops while other processes use the machine.

An answer that is late because other programs overload the machine is not a defect; one that is
late although only this run used the machine is, also if the run itself caused the load. So the
processes of the run, this one and its descendants, are distinguished from others. Where the
kernel does not report the processor time of processes (`/proc`) it is an ordinary clock.
"""

import os
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count() or 1
LOOK_EVERY_S = 1.0

TAKEN = 0.4
"""The share of CPU time above which other processes count as having taken the machine."""

CROWDED = 1.5
"""Processes that want to run, of each core: below it everybody gets a core soon."""


@dataclass(frozen=True, slots=True)
class Process:
    """A line of `/proc/*/stat`: what a process and its children that ended used, in ticks."""

    pid: int
    parent: int
    session: int
    used: int


@dataclass(frozen=True, slots=True)
class Use:
    """The machine's time so far, in ticks: of all, and of ours; and how many want to run."""

    all: int
    ours: int
    load: float


def is_taken(before: Use | None, after: Use | None, seconds: float, cores: int = CORES) -> bool:
    """Whether others took the machine in these seconds, if that is known."""
    if before is None or after is None:
        return False
    ours = max(0, after.ours - before.ours)
    others = max(0, after.all - before.all - ours)
    return others > TAKEN * cores * seconds * TICKS and after.load > CROWDED * cores


def ours(processes: Iterable[Process], me: int) -> int:
    """The ticks of a process, of what descends from it, and of the sessions these lead."""
    there = {process.pid: process for process in processes}
    children: dict[int, list[int]] = {}
    for process in there.values():
        children.setdefault(process.parent, []).append(process.pid)
    family, fresh = {me}, [me]
    while fresh:
        pids = children.get(fresh.pop(), [])
        family.update(pids)
        fresh += pids
    led = {process.session for process in there.values() if process.session in family - {me}}
    mine = (
        process for process in there.values() if process.pid in family or process.session in led
    )
    return sum(process.used for process in mine)


def parse(line: str) -> Process:
    """A process from its line; its name may hold spaces and brackets."""
    head, _, tail = line.rpartition(")")
    fields = tail.split()
    used = sum(int(ticks) for ticks in fields[11:15])
    return Process(int(head.split()[0]), int(fields[1]), int(fields[3]), used)


def running() -> Iterator[Process]:
    """The processes that there are now."""
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                yield parse((entry / "stat").read_text())
            except OSError:  # it has ended
                continue


def used() -> Use | None:
    """The CPU time used until now; None where it is not counted."""
    try:
        _, user, nice, system, *_ = (PROC / "stat").read_text().split(maxsplit=4)
        mine = ours(running(), os.getpid())
    except (OSError, ValueError):
        return None
    return Use(int(user) + int(nice) + int(system), mine, os.getloadavg()[0])


@dataclass(slots=True)
class FairClock:
    """Counts the seconds in which the machine was ours, and those in which it was `taken`.

    A thread of its own looks, from `start` to `close`; so the time moves once a look.
    """

    fair_s: float = 0.0
    taken_s: float = 0.0
    is_taken: bool = False
    _stopped: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Look from now on."""
        threading.Thread(target=self._look, name="fair", daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._stopped.set()

    def now_s(self) -> float:
        """The time on this clock."""
        return self.fair_s

    def note(self, seconds: float, *, taken: bool) -> None:
        """So many seconds have passed, and others had the machine, or not."""
        self.is_taken = taken
        if taken:
            self.taken_s += seconds
        else:
            self.fair_s += seconds

    def _look(self) -> None:
        before, began_s = used(), time.monotonic()
        while not self._stopped.wait(LOOK_EVERY_S):
            after, ended_s = used(), time.monotonic()
            seconds = ended_s - began_s
            self.note(seconds, taken=is_taken(before, after, seconds))
            before, began_s = after, ended_s
