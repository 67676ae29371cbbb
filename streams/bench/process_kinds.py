"""The kinds of processes of an environment, and what each kind uses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from streams.process_tree import command_line, family, processes, pss_bytes

BROKER, JVM, SPARK_PYTHON = "broker", "Spark's JVM", "Spark's Python"
REPLICA, SERVICES = "replica", "other services"


@dataclass(frozen=True, slots=True)
class KindUsage:
    """What the processes of one kind use together.

    Units: `pss_bytes` is their proportional memory, `cpu_s` their processor time since they
    were started, with that of their children that have ended.
    """

    processes: int = 0
    pss_bytes: int = 0
    cpu_s: float = 0.0

    def __add__(self, other: "KindUsage") -> "KindUsage":
        return KindUsage(
            self.processes + other.processes,
            self.pss_bytes + other.pss_bytes,
            self.cpu_s + other.cpu_s,
        )


def kind_of(command: Sequence[str]) -> str:
    """Return the kind of a process by its command line.

    The shells that stand between Spark and its Python are of the kind of what they wait for.
    """
    text = " ".join(command)
    if "kafka.Kafka" in command:
        return BROKER
    if PurePath(command[0]).name == "java":
        return JVM
    if "pyspark." in text or "streams.replica.spark." in text:
        return SPARK_PYTHON
    return REPLICA if REPLICA in command else SERVICES


def usage(root: int) -> Mapping[str, KindUsage]:
    """Return what a process, and what it has started, use now, by kind."""
    all_ = processes()
    kinds: dict[str, KindUsage] = {}
    for pid in family(root, all_):
        command = command_line(pid)
        if command[0]:
            one = KindUsage(1, pss_bytes(pid), all_[pid].cpu_s)
            kinds[kind_of(command)] = kinds.get(kind_of(command), KindUsage()) + one
    return kinds


def total(kinds: Mapping[str, KindUsage]) -> KindUsage:
    """Return what all kinds use together."""
    return sum(kinds.values(), start=KindUsage())


@dataclass(frozen=True, slots=True)
class ProcessTime:
    """The kind of a process, and the processor time that it has used itself, in seconds."""

    kind: str
    cpu_s: float


def process_times(root: int) -> Mapping[int, ProcessTime]:
    """Return a process, and what it has started, by their ids."""
    all_ = processes()
    return {
        pid: ProcessTime(kind_of(command), all_[pid].own_cpu_s)
        for pid in family(root, all_)
        if (command := command_line(pid))[0]
    }


def percent_since(
    before: Mapping[int, ProcessTime], now: Mapping[int, ProcessTime], seconds: float
) -> dict[str, float]:
    """Return the processor time of each kind between two moments, in percent of a core.

    What a process that has ended meanwhile used is not in it.
    """
    percent: dict[str, float] = {}
    for pid, process in now.items():
        used_s = process.cpu_s - (before[pid].cpu_s if pid in before else 0.0)
        percent[process.kind] = percent.get(process.kind, 0.0) + 100 * used_s / seconds
    return percent
