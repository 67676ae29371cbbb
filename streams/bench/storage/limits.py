"""Limits on the number of collections: the resources that a broker and a follower use.

Each resource is looked at with no collections and with many; what lies in between is taken to
grow by the collection. Read from /proc: elsewhere the table is empty.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from streams.bench.storage.rig import Idle
from streams.process_tree import descendants, processes

ASKED = 10_000
"""The collections that the table is about."""

MIB = 1 << 20
PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Use:
    """The resources of a process. Units: MiB; percent of a core while idle."""

    maps: float
    files: float
    mib: float
    percent: float


def broker_pid() -> int | None:
    """The broker that this process has started: of its children the one with most maps."""
    children = descendants(os.getpid(), processes())
    maps = [(len(_lines(PROC / f"{pid}/maps")), pid) for pid in children]
    return max(maps)[1] if maps else None


def used(pid: int | None, percent: float) -> Use:
    """The present resources of a process, except its share of a core."""
    files = PROC / f"{pid}/fd"
    return Use(
        len(_lines(PROC / f"{pid}/maps")),
        len(list(files.iterdir())) if files.is_dir() else 0,
        _kib(PROC / f"{pid}/status", "VmRSS:") / 1024,
        percent,
    )


def broker_used(idle: Idle) -> Use:
    """The resources of the broker after an idle period."""
    return used(broker_pid(), idle.broker_percent)


def limits(pid: int | None) -> Use:
    """The limits of a process on this machine."""
    text = "".join(_lines(PROC / "sys/vm/max_map_count")) or "0"
    memory = _kib(PROC / "meminfo", "MemTotal:") / 1024
    return Use(float(text), _most_files(pid), memory, 100.0)


Table = Mapping[str, Mapping[str, float]]


def table(count: int, none: tuple[Use, Use], many: tuple[Use, Use], most: Use) -> Table:
    """The usage and limit of each resource, of the broker and of one follower.

    `none` and `many` are what the two use without collections and with `count`.
    """
    rows: dict[str, Mapping[str, float]] = {}
    for who, before, after in zip(("broker", "follower"), none, many, strict=True):
        for what, name in (
            ("maps", "memory maps"),
            ("files", "files"),
            ("mib", "MiB"),
            ("percent", "idle, % of a core"),
        ):
            spread = getattr(before, what), getattr(after, what), getattr(most, what)
            rows[f"{who}: {name}"] = row(count, *spread)
    return rows


def row(count: int, before: float, after: float, limit: float) -> Mapping[str, float]:
    """One resource: what it is now and at so many more, and at how many nothing is left."""
    per_collection = max(0.0, after - before) / count
    return {
        f"at {count:,}": after,
        f"at {ASKED:,}": before + per_collection * ASKED,
        "limit": limit,
        "full at": (limit - before) / per_collection if per_collection else 0.0,
    }


def _most_files(pid: int | None) -> float:
    for line in _lines(PROC / f"{pid}/limits"):
        if line.startswith("Max open files"):
            return float(line.split()[3])
    return 0.0


def _kib(file: Path, name: str) -> float:
    values = [line.split()[1] for line in _lines(file) if line.startswith(name)]
    return float(values[0]) if values else 0.0


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
