"""What a topic must be like, and what is said when it is not."""

import pytest

from streams.errors import InvalidUsage
from streams.ids import Topic
from streams.kafka.topics import (
    SINGLE_BROKER,
    Durability,
    Found,
    TopicKind,
    TopicSpec,
    differences,
    exchange_problems,
    refuse,
    settings_of,
)

LOG = TopicSpec(Topic("l"), 1, TopicKind.LOG)
DATA = TopicSpec(Topic("d"), 2, TopicKind.DATA)


@pytest.mark.parametrize("kind", TopicKind)
def test_what_is_made_passes_its_own_verification(kind):
    spec = TopicSpec(Topic("t"), 1, kind)
    durability = Durability()
    assert differences(spec, durability, Found(1, 3, settings_of(kind, durability))) == ()


@pytest.mark.parametrize("kind", [TopicKind.DATA, TopicKind.OUTPUT])
def test_rule_13_compacted_topics_have_limits_of_their_own(kind):
    """By the broker's defaults, a quiet topic's segment stays active for a week."""
    settings = settings_of(kind, Durability())
    assert settings["cleanup.policy"] == "compact"
    assert 0 < int(settings["segment.bytes"]) < 1 << 30
    assert 0 < int(settings["segment.ms"]) < 7 * 86_400_000
    assert 0.0 < float(settings["min.cleanable.dirty.ratio"]) < 0.5
    assert 0 < int(settings["max.compaction.lag.ms"]) < 7 * 86_400_000


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cleanup.policy", "compact,delete"),
        ("retention.ms", "604800000"),
        ("retention.bytes", "1000"),
        ("message.timestamp.type", "CreateTime"),
        ("unclean.leader.election.enable", "true"),
    ],
)
def test_a_log_that_could_lose_or_reorder_is_refused(key, value):
    topic = Found(1, 1, {**settings_of(TopicKind.LOG, SINGLE_BROKER), key: value})
    (wrong,) = differences(LOG, SINGLE_BROKER, topic)
    assert wrong.startswith(f"{key}: expected ")
    assert wrong.endswith(f"actual {value}")


def test_too_few_copies_are_refused():
    topic = Found(2, 1, settings_of(TopicKind.DATA, SINGLE_BROKER))
    wrong = differences(DATA, Durability(), topic)
    assert [problem.split(":")[0] for problem in wrong] == [
        "replication",
        "min.insync.replicas",
    ]


def test_more_copies_than_asked_for_are_welcome():
    topic = Found(2, 3, settings_of(TopicKind.DATA, Durability()))
    assert differences(DATA, SINGLE_BROKER, topic) == ()


def test_a_refusal_names_every_topic_that_falls_short():
    with pytest.raises(InvalidUsage, match="topic a: x; y\ntopic c: z"):
        refuse({Topic("a"): ["x", "y"], Topic("b"): [], Topic("c"): ["z"]})


def test_a_log_has_one_partition():
    with pytest.raises(InvalidUsage, match="expected 1 partitions, actual 2"):
        TopicSpec(Topic("l"), 2, TopicKind.LOG)


def test_more_insync_copies_than_copies_are_refused():
    with pytest.raises(InvalidUsage, match="expected 1 to 2, actual 3"):
        Durability(replication=2, min_insync=3)


def kept(kind: TopicKind, **settings: str) -> Found:
    chosen = {name.replace("_", "."): value for name, value in settings.items()}
    return Found(1, 1, {**settings_of(kind, SINGLE_BROKER), **chosen})


def test_responses_that_would_be_gone_before_their_commands_are_refused():
    commands, responses = TopicKind.COMMANDS, TopicKind.RESPONSES
    topics = {commands: kept(commands), responses: kept(responses)}
    assert exchange_problems(topics) == {}
    short = {**topics, responses: kept(responses, retention_ms="60000")}
    assert "executed again" in exchange_problems(short)[responses]
    for_ever = {**topics, commands: kept(commands, retention_ms="-1")}
    assert "expected -1" in exchange_problems(for_ever)[responses]
    spec = TopicSpec(Topic("r"), 1, responses)
    (wrong,) = differences(spec, SINGLE_BROKER, kept(responses, retention_bytes="1000"))
    assert wrong.startswith("retention.bytes: expected -1")
