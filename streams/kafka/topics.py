"""Kinds of topics: their required configuration, creation and verification.

Invariant: after `create` every named topic exists with the partitions, the durability and the
settings of its kind, whatever client created it (rules 11 to 13). A topic with other settings
is refused with the expected and the actual values; existing topics are never altered.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeVar

from streams.errors import Determinate, InvalidUsage
from streams.ids import Offset, Topic

T = TypeVar("T")

MAXIMUM_RECORD_BYTES = 8 << 20
"""Largest record of a log or data topic, in bytes; chunks aim far lower, at about 900 KiB."""


class TopicKind(StrEnum):
    """The purpose of a topic."""

    LOG = "log"
    DATA = "data"
    OUTPUT = "output"
    RAW = "raw"
    COMMANDS = "commands"
    RESPONSES = "responses"


ORDERED = frozenset({TopicKind.LOG, TopicKind.COMMANDS, TopicKind.RESPONSES})
"""The kinds whose record order matters: they have one partition."""


EXCHANGED = frozenset({TopicKind.COMMANDS, TopicKind.RESPONSES})
"""Commands and responses."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """The required form of a topic."""

    name: Topic
    partitions: int
    kind: TopicKind

    def __post_init__(self) -> None:
        if self.partitions < 1 or (self.kind in ORDERED and self.partitions != 1):
            expected = "1" if self.kind in ORDERED else "at least 1"
            raise InvalidUsage(
                f"{self.kind} topic {self.name}: "
                f"expected {expected} partitions, actual {self.partitions}"
            )


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """The actual form of a topic. A re-created topic has another `id`."""

    id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Durability:
    """The number of replicas, and how many must have a record before it is acknowledged.

    `SINGLE_BROKER` survives the kill of every process, not the loss of power or of a disk.
    """

    replication: int = 3
    min_insync: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.min_insync <= self.replication:
            raise InvalidUsage(
                f"min_insync: expected 1 to {self.replication}, actual {self.min_insync}"
            )


SINGLE_BROKER = Durability(replication=1, min_insync=1)


LONGEST_NAME = 249
_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{LONGEST_NAME}}}")
NAME_RULE = (
    f"a topic's name is 1 to {LONGEST_NAME} of the characters a-z, A-Z, 0-9, '.', '_', '-',"
    " and neither '.' nor '..'"
)


ALIKE = ": names that differ by '.' and '_' alone are one to Kafka, choose another name"


def is_name(name: str) -> bool:
    """Tell whether Kafka lets a topic have this name: `NAME_RULE`."""
    return bool(_NAME.fullmatch(name)) and name not in {".", ".."}


class OffsetRange(NamedTuple):
    """The offsets of a partition that are readable now: `[low, high)`."""

    low: Offset
    high: Offset


Answers = Mapping[Topic, T | Determinate]
"""What was asked of each topic, or its error; nothing while its leaders are not known."""


class Topics(Protocol):
    """The topics of a cluster."""

    def create(self, specs: Sequence[TopicSpec]) -> None:
        """Create missing topics, all in one request, and verify the existing ones (rule 12).

        Errors: InvalidUsage if a topic exists with other settings; Determinate, Indeterminate
        (calling again is safe).
        """

    def grow(self, topic: Topic, partitions: int) -> None:
        """Extend a topic to this number of partitions; one that has as many, or more, stays.

        Errors: Determinate if the topic does not exist or permission is missing; Indeterminate.
        """

    def delete(self, topics: Sequence[Topic]) -> None:
        """Delete the topics permanently; missing ones are ignored."""

    def describe(self, topic: Topic) -> TopicInfo | None:
        """Describe a topic; None if it does not exist."""

    def describe_all(self, topics: Sequence[Topic]) -> Mapping[Topic, TopicInfo]:
        """Describe topics with one request; missing ones are left out."""

    def names(self) -> frozenset[Topic]:
        """Return the names of all topics but Kafka's internal ones."""

    def ends(self, topic: Topic) -> Mapping[int, OffsetRange]:
        """Return the readable range of each partition.

        Errors: Determinate, also if the topic does not exist.
        """

    def at_time(self, topic: Topic, ms: int) -> Mapping[int, Offset]:
        """Return the offset of the first record of each partition at `ms` or later, or its end.

        Units: milliseconds since the epoch, of the records' timestamps. Errors: as `ends`.
        """


RETENTION_MS = "retention.ms"

_HOUR_MS = 3_600_000

# The active segment of a compacted topic is never compacted: rule 13 asks for explicit limits.
_COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(64 << 20),
    "segment.ms": str(_HOUR_MS),
    "min.cleanable.dirty.ratio": "0.3",
    "max.compaction.lag.ms": str(6 * _HOUR_MS),
    "delete.retention.ms": str(24 * _HOUR_MS),
    "retention.bytes": "-1",
}

_EXCHANGED = {
    "cleanup.policy": "delete",
    "retention.bytes": "-1",
    "segment.ms": str(24 * _HOUR_MS),
    "message.timestamp.type": "LogAppendTime",
    "max.message.bytes": str(MAXIMUM_RECORD_BYTES),
}

_BY_KIND: Mapping[TopicKind, Mapping[str, str]] = {
    TopicKind.LOG: {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "segment.bytes": str(16 << 20),  # DeleteRecords frees whole segments only
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(MAXIMUM_RECORD_BYTES),
    },
    TopicKind.DATA: {
        **_COMPACTED,
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(MAXIMUM_RECORD_BYTES),
    },
    TopicKind.OUTPUT: _COMPACTED,
    TopicKind.RAW: {},
    TopicKind.COMMANDS: {**_EXCHANGED, "retention.ms": str(7 * 24 * _HOUR_MS)},
    # responses say which commands were executed: they outlive the commands
    TopicKind.RESPONSES: {**_EXCHANGED, "retention.ms": str(14 * 24 * _HOUR_MS)},
}

# Settings that an existing topic must have; operators may tune segment sizes and lags.
_VERIFIED: Mapping[TopicKind, tuple[str, ...]] = {
    TopicKind.LOG: (
        "cleanup.policy",
        "retention.ms",
        "retention.bytes",
        "message.timestamp.type",
        "unclean.leader.election.enable",
    ),
    TopicKind.DATA: ("cleanup.policy", "retention.bytes", "unclean.leader.election.enable"),
    TopicKind.OUTPUT: ("cleanup.policy",),
    TopicKind.RAW: (),
    TopicKind.COMMANDS: ("cleanup.policy", "message.timestamp.type"),
    TopicKind.RESPONSES: ("cleanup.policy", "retention.bytes", "message.timestamp.type"),
}


def retention_of(kind: TopicKind) -> str:
    """Return the default retention of a kind, in ms; -1 for unlimited."""
    return _BY_KIND[kind][RETENTION_MS]


def short_memory(commands_ms: int, responses_ms: int) -> str:
    """Return the problem with the retention of commands and responses; empty if none.

    Only the responses say which commands were executed: a command that outlives its response
    would be executed again. Records are deleted by whole segments, and a response is newer than
    its command, so twice the retention is enough.

    Units: milliseconds, -1 for unlimited.
    """
    if responses_ms == -1:
        return ""
    if commands_ms != -1 and responses_ms >= 2 * commands_ms:
        return ""
    least = "-1" if commands_ms == -1 else f"at least {2 * commands_ms}"
    return (
        f"expected {least}, twice the retention of commands (or -1, unlimited), found"
        f" {responses_ms}: a command whose response is gone would be executed again"
    )


def exchange_problems(actual: Mapping[TopicKind, "Found"]) -> Mapping[TopicKind, str]:
    """Return how the existing topics of commands and responses do not fit each other."""
    commands, responses = actual[TopicKind.COMMANDS], actual[TopicKind.RESPONSES]
    wrong = short_memory(
        int(commands.settings[RETENTION_MS]), int(responses.settings[RETENTION_MS])
    )
    return {TopicKind.RESPONSES: f"{RETENTION_MS}: {wrong}"} if wrong else {}


def settings_of(
    kind: TopicKind, durability: Durability, chosen: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The settings to create a topic of this kind with; `chosen` overrides the defaults."""
    safety = {
        "unclean.leader.election.enable": "false",
        "min.insync.replicas": str(durability.min_insync),
    }
    return {**_BY_KIND[kind], **(chosen or {}), **safety}


@dataclass(frozen=True, slots=True)
class Found:
    """An existing topic, with the settings that are verified.

    `replication` and `in_sync` are the least of its partitions; the latter is not verified,
    because it passes.
    """

    partitions: int
    replication: int
    settings: Mapping[str, str]
    in_sync: int | None = None


def differences(spec: TopicSpec, durability: Durability, actual: Found) -> tuple[str, ...]:
    """Return how an existing topic differs from the required one, one phrase each.

    A raw topic is the user's: it is only read, whatever its settings. A data topic may have any
    number of partitions: a chunk reference has its partition.
    """
    if spec.kind is TopicKind.RAW:
        return ()
    wrong = []
    if actual.partitions != spec.partitions and spec.kind is not TopicKind.DATA:
        wrong.append(f"partitions: expected {spec.partitions}, actual {actual.partitions}")
    wanted = settings_of(spec.kind, durability)
    wrong.extend(
        f"{key}: expected {wanted[key]}, actual {actual.settings.get(key)}"
        for key in _VERIFIED[spec.kind]
        if actual.settings.get(key) != wanted[key]
    )
    if actual.replication < durability.replication:
        wrong.append(
            f"replication: expected at least {durability.replication}, "
            f"actual {actual.replication}"
        )
    if int(actual.settings.get("min.insync.replicas", "1")) < durability.min_insync:
        wrong.append(
            f"min.insync.replicas: expected at least {durability.min_insync}, "
            f"actual {actual.settings.get('min.insync.replicas')}"
        )
    return tuple(wrong)


def refuse(problems: Mapping[Topic, Sequence[str]]) -> None:
    """Raise if any topic differs. Errors: InvalidUsage, naming all of them."""
    lines = [f"topic {name}: {'; '.join(wrong)}" for name, wrong in problems.items() if wrong]
    if lines:
        raise InvalidUsage("\n".join(lines))
