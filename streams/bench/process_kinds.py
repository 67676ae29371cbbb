"""The kinds of processes of an environment, and what each kind uses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from streams.bench.processes import command_line, family, processes, pss_bytes

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


def usage(roots: Sequence[int], *, with_memory: bool = True) -> Mapping[str, KindUsage]:
    """Return what processes, and what they have started, use now, by kind.

    Without memory it costs less: the kernel walks over all pages of a process for that.
    """
    all_ = processes()
    kinds: dict[str, KindUsage] = {}
    for pid in dict.fromkeys(pid for root in roots for pid in family(root, all_)):
        command = command_line(pid)
        if command[0]:
            memory = pss_bytes(pid) if with_memory else 0
            one = KindUsage(1, memory, all_[pid].cpu_s)
            kinds[kind_of(command)] = kinds.get(kind_of(command), KindUsage()) + one
    return kinds


def total(kinds: Mapping[str, KindUsage]) -> KindUsage:
    """Return what all kinds use together."""
    return sum(kinds.values(), start=KindUsage())


def percent_since(
    before: Mapping[str, KindUsage], now: Mapping[str, KindUsage], seconds: float
) -> dict[str, float]:
    """Return the processor time of each kind between two moments, in percent of a core."""
    return {
        kind: 100 * (use.cpu_s - before.get(kind, KindUsage()).cpu_s) / seconds
        for kind, use in now.items()
    }
