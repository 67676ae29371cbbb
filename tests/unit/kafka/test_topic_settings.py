"""What a user may choose of our topics, and what nobody may."""

import pytest

from streams.errors import InvalidUsage
from streams.kafka.topic_settings import DEFAULTS, TopicChoices, topic_choices
from streams.kafka.topics import Durability, TopicKind, settings_of


def test_nothing_chosen_is_what_is_safe() -> None:
    assert topic_choices({}) == DEFAULTS == TopicChoices()
    assert Durability() == Durability(replication=3, min_insync=2)


@pytest.mark.parametrize(
    ("pairs", "durability"),
    [
        ({"replication.factor": "5"}, Durability(5, 2)),
        ({"replication.factor": "2"}, Durability(2, 2)),
        ({"replication.factor": "1"}, Durability(1, 1)),
        ({"min.insync.replicas": "3"}, Durability(3, 3)),
        ({"replication.factor": "5", "min.insync.replicas": "3"}, Durability(5, 3)),
    ],
)
def test_copies(pairs, durability) -> None:
    assert topic_choices(pairs).durability == durability


def test_partitions_and_settings() -> None:
    chosen = topic_choices(
        {
            "data.partitions": "8",
            "data.segment.bytes": "1000000",
            "log.segment.bytes": "2000000",
            "output.delete.retention.ms": "1",
            "output.max.message.bytes": "5",
        }
    )
    assert chosen == TopicChoices(
        data_partitions=8,
        settings={
            TopicKind.DATA: {"segment.bytes": "1000000"},
            TopicKind.LOG: {"segment.bytes": "2000000"},
            TopicKind.OUTPUT: {"delete.retention.ms": "1", "max.message.bytes": "5"},
        },
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("replication.factor", "0", "expected a number from 1 on, actual '0'"),
        ("data.partitions", "many", "expected a number from 1 on, actual 'many'"),
        ("data.partitions", "-1", "actual '-1'"),
        ("min.insync.replicas", "4", "expected 1 to 3, actual 4"),
        ("partitions", "4", "expected replication.factor, min.insync.replicas"),
        ("raw.retention.ms", "4", "expected replication.factor"),
        ("log.", "4", "expected replication.factor"),
        ("log.retention.ms", "1", "a guarantee depends on it"),
        ("data.cleanup.policy", "delete", "a guarantee depends on it"),
        ("responses.retention.bytes", "1000000", "a guarantee depends on it"),
        ("data.min.insync.replicas", "1", "is chosen for all topics"),
        ("output.cleanup.policy", "delete", "a guarantee depends on it"),
        ("log.message.timestamp.type", "CreateTime", "a guarantee depends on it"),
        ("log.unclean.leader.election.enable", "true", "a guarantee depends on it"),
    ],
)
def test_what_cannot_be_chosen_is_said(name, value, message) -> None:
    with pytest.raises(InvalidUsage) as raised:
        topic_choices({name: value})
    assert message in str(raised.value)


def test_what_is_chosen_wins_but_over_safety() -> None:
    chosen = {"segment.bytes": "7", "min.insync.replicas": "1"}
    settings = settings_of(TopicKind.DATA, Durability(), chosen)
    assert (settings["segment.bytes"], settings["min.insync.replicas"]) == ("7", "2")
    assert settings["cleanup.policy"] == "compact"


DAY_MS = 24 * 3_600_000


@pytest.mark.parametrize(
    "pairs",
    [
        {"responses.retention.ms": "60000"},
        {"commands.retention.ms": "-1"},
        {"commands.retention.ms": str(8 * DAY_MS)},
        {"commands.retention.ms": "1000", "responses.retention.ms": "1999"},
    ],
)
def test_responses_outlive_what_they_answer(pairs) -> None:
    with pytest.raises(InvalidUsage, match=r"responses\.retention\.ms: expected .*-1.*, found"):
        topic_choices(pairs)


@pytest.mark.parametrize(
    "pairs",
    [
        {"responses.retention.ms": "-1"},
        {"commands.retention.ms": "-1", "responses.retention.ms": "-1"},
        {"commands.retention.ms": str(DAY_MS), "responses.retention.ms": str(2 * DAY_MS)},
        {"commands.retention.ms": str(DAY_MS)},
    ],
)
def test_how_long_commands_are_kept_may_be_chosen(pairs) -> None:
    topic_choices(pairs)


def test_what_is_no_time_is_no_retention() -> None:
    with pytest.raises(
        InvalidUsage, match=r"expected milliseconds, or -1 .forever., actual '7d'"
    ):
        topic_choices({"commands.retention.ms": "7d"})
