"""User options for the topics that we create: replication, partitions, broker settings.

The options are NAME=VALUE pairs:

    replication.factor     replicas of each record; 3, or 1 on a single broker
    min.insync.replicas    how many must have it before an ack; 2, or 1 on a single broker
    data.partitions        partitions that data topics made from now on begin with; 1. They get
                           more as what they hold asks for it (`streams.compaction.partitions`)
    KIND.SETTING           a broker's setting for new topics of a kind (log, data, output),
                           as data.segment.bytes or output.delete.retention.ms; the other
                           kinds are commands and responses

Settings on which a guarantee depends cannot be chosen: logs and data are kept until we delete
them, logs have one partition and the broker's append time, output is compacted, unclean leader
election is off (rules 11 to 13), and responses are kept at least twice as long as the commands
that they answer, and forever if commands are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from streams.errors import InvalidUsage
from streams.kafka.topics import (
    RETENTION_MS,
    Durability,
    TopicKind,
    retention_of,
    short_memory,
)

REPLICATION, MIN_INSYNC = "replication.factor", "min.insync.replicas"
DATA_PARTITIONS = "data.partitions"
DEFAULT_DATA_PARTITIONS = 1

_COPIES = Durability()
_FOR_EVER = frozenset({"retention.ms", "retention.bytes", "max.message.bytes"})
_GUARANTEES = frozenset(
    {
        "cleanup.policy",
        "message.timestamp.type",
        "unclean.leader.election.enable",
        MIN_INSYNC,
    }
)
_OURS: Mapping[TopicKind, frozenset[str]] = {
    TopicKind.LOG: _GUARANTEES | _FOR_EVER,
    TopicKind.DATA: _GUARANTEES | _FOR_EVER,
    TopicKind.OUTPUT: _GUARANTEES - {"message.timestamp.type"},
    TopicKind.COMMANDS: _GUARANTEES | {"max.message.bytes"},
    TopicKind.RESPONSES: _GUARANTEES | {"max.message.bytes", "retention.bytes"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChoices:
    """The chosen options.

    The default `durability` is three replicas with two in sync, or one replica on a single
    broker. `settings` go to the broker when a topic of the kind is created.
    """

    durability: Durability | None = None
    data_partitions: int = DEFAULT_DATA_PARTITIONS
    settings: Mapping[TopicKind, Mapping[str, str]] = field(default_factory=dict)


DEFAULTS = TopicChoices()


def topic_choices(pairs: Mapping[str, str]) -> TopicChoices:
    """Parse NAME=VALUE pairs.

    Errors: InvalidUsage, with the expected and the actual value.
    """
    settings: dict[TopicKind, dict[str, str]] = {}
    for name in sorted(pairs.keys() - {REPLICATION, MIN_INSYNC, DATA_PARTITIONS}):
        kind, setting = _setting(name)
        settings.setdefault(kind, {})[setting] = pairs[name]
    _check_memory(settings)
    return TopicChoices(
        durability=_durability(pairs),
        data_partitions=_number(pairs, DATA_PARTITIONS, DEFAULT_DATA_PARTITIONS),
        settings=settings,
    )


def _check_memory(settings: Mapping[TopicKind, Mapping[str, str]]) -> None:
    """Errors: InvalidUsage if responses would expire before their commands."""
    retention = {
        kind: _retention_ms(kind, settings.get(kind, {}))
        for kind in (TopicKind.COMMANDS, TopicKind.RESPONSES)
    }
    wrong = short_memory(retention[TopicKind.COMMANDS], retention[TopicKind.RESPONSES])
    if wrong:
        raise InvalidUsage(f"topic setting {TopicKind.RESPONSES}.{RETENTION_MS}: {wrong}")


def _retention_ms(kind: TopicKind, chosen: Mapping[str, str]) -> int:
    text = chosen.get(RETENTION_MS, retention_of(kind))
    if text != "-1" and not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise InvalidUsage(
            f"topic setting {kind}.{RETENTION_MS}: expected milliseconds, or -1 (forever),"
            f" actual {text!r}"
        )
    return int(text)


def _durability(pairs: Mapping[str, str]) -> Durability | None:
    """Return the chosen durability; options that are not given have the safest value."""
    if REPLICATION not in pairs and MIN_INSYNC not in pairs:
        return None
    copies = _number(pairs, REPLICATION, _COPIES.replication)
    return Durability(copies, _number(pairs, MIN_INSYNC, min(_COPIES.min_insync, copies)))


def _number(pairs: Mapping[str, str], name: str, default: int) -> int:
    text = pairs.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise InvalidUsage(
            f"topic setting {name}: expected a number from 1 on, actual {text!r}"
        )
    return int(text)


def _setting(name: str) -> tuple[TopicKind, str]:
    """Return the kind of topic and the broker's setting of a name."""
    prefix, _, setting = name.partition(".")
    kind = next((kind for kind in _OURS if kind.value == prefix), None)
    if kind is None or not setting:
        raise InvalidUsage(
            f"topic setting {name}: expected {REPLICATION}, {MIN_INSYNC}, {DATA_PARTITIONS}, or"
            f" a broker's setting after {', '.join(f'{kind}.' for kind in _OURS)}"
        )
    if setting in _OURS[kind]:
        hint = f"; {MIN_INSYNC} is chosen for all topics" if setting == MIN_INSYNC else ""
        raise InvalidUsage(
            f"topic setting {name} cannot be chosen: a guarantee depends on it{hint}"
        )
    return kind, setting
