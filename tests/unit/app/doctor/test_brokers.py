"""What is wrong with brokers and topics: one test for each fact that can be wrong."""

from dataclasses import replace

import pytest

from streams.app.doctor import brokers
from streams.app.doctor.facts import (
    ClockReport,
    ClusterReport,
    CoordinatorReport,
    TopicsReport,
    Verdict,
)
from streams.ids import Topic
from streams.kafka.client.inspection import BrokerFacts, ClockFacts, ClusterFacts
from streams.kafka.topics import SINGLE_BROKER, Durability, Found, TopicKind, settings_of

THREE = tuple(BrokerFacts(number, f"k{number}:9092") for number in (1, 2, 3))
NEW = {"Fetch": 18, "Metadata": 13}
CLUSTER = ClusterReport(address="k:9092", cluster=ClusterFacts(THREE, NEW))
NAMES = {
    "ns.catalog": TopicKind.LOG,
    "ns.compute.default.commands": TopicKind.LOG,
    "ns.compute.default.responses": TopicKind.LOG,
    "ns.storage.commands": TopicKind.COMMANDS,
    "ns.storage.responses": TopicKind.RESPONSES,
    "ns.u1.log": TopicKind.LOG,
    "ns.u1.data": TopicKind.DATA,
}


def with_brokers(*facts: BrokerFacts, **requests: int) -> ClusterReport:
    return ClusterReport(address="k:9092", cluster=ClusterFacts(facts, requests))


def topics(**changes: str) -> TopicsReport:
    """The topics of a namespace, as they have to be but for settings of one of them."""
    durability = Durability()
    by_name = {
        Topic(name): Found(1, 3, settings_of(kind, durability), 3)
        for name, kind in NAMES.items()
    }
    if changes:
        name = Topic(changes.pop("topic"))
        settings = {key.replace("_", "."): value for key, value in changes.items()}
        by_name[name] = replace(by_name[name], settings={**by_name[name].settings, **settings})
    return TopicsReport(namespace="ns", durability=durability, found=by_name)


def wrong(verdict: Verdict, expected: str, do: str) -> None:
    assert verdict.status == "wrong"
    assert expected in verdict.found, verdict.found
    assert do in verdict.do


def test_brokers_that_do_not_answer_are_wrong() -> None:
    report = ClusterReport(address="k:9092", problem="SSL handshake failed")
    wrong(brokers.reach(report), "at k:9092: SSL handshake failed", "--client")
    silent = with_brokers(*THREE[:2], replace(THREE[2], problem="timed out"))
    verdict = brokers.reach(silent)
    wrong(verdict, "1 of 3 do not answer: 3 at k3:9092: timed out", "advertised.listeners")
    assert brokers.reach(CLUSTER).status == "ok"


def test_old_brokers_are_wrong() -> None:
    old = with_brokers(*THREE, Fetch=11, Metadata=9)
    wrong(brokers.version(old), "Kafka 2.3, expected 2.8", "upgrade")
    assert brokers.version(with_brokers(*THREE, Fetch=12, Metadata=10)).status == "ok"
    assert brokers.version(CLUSTER).found == "Kafka 4.1 or newer"


@pytest.mark.parametrize("requests", [{}, {"Fetch": 18}, {"Metadata": 13}])
def test_brokers_that_tell_nothing_are_of_unknown_version(requests: dict[str, int]) -> None:
    assert brokers.version(with_brokers(*THREE, **requests)).status == "unknown"


@pytest.mark.parametrize(
    ("fetch", "release"),
    [(4, "before 2.3"), (11, "2.3"), (14, "3.1"), (15, "3.5"), (99, "4.1")],
)
def test_a_release_is_the_first_with_its_requests(fetch: int, release: str) -> None:
    assert brokers.release_of(fetch) == release


def test_too_few_brokers_for_the_copies_are_wrong() -> None:
    two = with_brokers(*THREE[:2])
    wrong(brokers.durability(two, Durability()), "2 brokers for 3 copies", "factor=2")
    assert brokers.durability(two, Durability(2, 1)).status == "ok"
    assert "loss of a disk" in brokers.durability(two, SINGLE_BROKER).found
    nobody = ClusterReport(address="k", problem="x")
    assert brokers.durability(nobody, Durability()).status == "unknown"


@pytest.mark.parametrize(
    ("facts", "finding"),
    [
        (ClockFacts(10_000, 3_000, 10_100), "7.0 s ahead of"),
        (ClockFacts(10_000, 17_100, 10_100), "7.0 s behind"),
    ],
)
def test_a_clock_that_differs_is_wrong(facts: ClockFacts, finding: str) -> None:
    wrong(brokers.clock(ClockReport(clock=facts)), finding, "NTP")


@pytest.mark.parametrize(
    "facts",
    [
        ClockFacts(10_000, 10_050, 10_100),
        ClockFacts(10_000, 5_000, 10_100),
        ClockFacts(10_000, 5_000, 70_000),  # slow, not wrong
    ],
)
def test_a_clock_that_may_be_right_is_not_wrong(facts: ClockFacts) -> None:
    assert brokers.clock(ClockReport(clock=facts)).status == "ok"


def test_a_clock_that_cannot_be_read_is_unknown() -> None:
    verdict = brokers.clock(ClockReport(problem="no right to create"))
    assert (verdict.status, verdict.found) == ("unknown", "no right to create")


def test_topics_as_they_have_to_be_are_ok() -> None:
    assert brokers.settings(topics()).found == "7 of namespace ns, as they have to be"


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        (
            {"topic": "ns.u1.log", "cleanup_policy": "compact"},
            "cleanup.policy: expected delete",
        ),
        ({"topic": "ns.u1.log", "retention_ms": "1000"}, "retention.ms: expected -1"),
        ({"topic": "ns.catalog", "retention_ms": "1000"}, "ns.catalog: retention.ms"),
        (
            {"topic": "ns.u1.data", "cleanup_policy": "delete"},
            "expected compact, actual delete",
        ),
        ({"topic": "ns.u1.data", "min_insync_replicas": "1"}, "expected at least 2, actual 1"),
        (
            {"topic": "ns.compute.default.commands", "message_timestamp_type": "CreateTime"},
            "expected LogAppendTime",
        ),
        ({"topic": "ns.storage.responses", "retention_ms": "1000"}, "executed again"),
    ],
)
def test_a_setting_that_loses_something_is_wrong(changes: dict[str, str], finding: str) -> None:
    wrong(brokers.settings(topics(**changes)), finding, "kafka-configs.sh --alter")


@pytest.mark.parametrize(
    ("change", "finding"),
    [({"partitions": 2}, "expected 1, actual 2"), ({"replication": 1}, "at least 3, actual 1")],
)
def test_other_partitions_and_fewer_copies_are_wrong(
    change: dict[str, int], finding: str
) -> None:
    report = topics()
    name = Topic("ns.u1.log")
    other = replace(report.found[name], **change)  # type: ignore[arg-type]
    verdict = brokers.settings(replace(report, found={**report.found, name: other}))
    wrong(verdict, finding, "--namespace")


def test_a_data_topic_may_have_more_partitions() -> None:
    report = topics()
    name = Topic("ns.u1.data")
    grown = {**report.found, name: replace(report.found[name], partitions=8)}
    assert brokers.settings(replace(report, found=grown)).status == "ok"


def test_copies_that_are_not_in_sync_are_wrong() -> None:
    report = topics()
    behind = {name: replace(topic, in_sync=2) for name, topic in report.found.items()}
    verdict = brokers.in_sync(replace(report, found=behind))
    wrong(verdict, "ns.catalog: 2 of 3 copies in sync", "start the brokers")
    assert verdict.found.endswith("| and 2 more")
    assert brokers.in_sync(report).status == "ok"


def test_topics_that_cannot_be_looked_at_are_unknown() -> None:
    report = TopicsReport(namespace="ns", problem="no right")
    assert brokers.settings(report).status == brokers.in_sync(report).status == "unknown"


def test_topics_of_others_are_not_ours() -> None:
    others = ["ns.out", "nsx.u1.log", "nsx.u1.data", "ns.u2.log", "ns.u3.data", "people"]
    names = [Topic(name) for name in [*NAMES, *others]]
    specs = brokers.specs_of("ns", names)
    assert {name: spec.kind for name, spec in specs.items()} == NAMES


def test_a_coordinator_that_does_not_answer_is_wrong() -> None:
    report = CoordinatorReport(directory="/d", url="http://127.0.0.1:1", answers=False)
    wrong(brokers.coordinator(report), "http://127.0.0.1:1", "slackwater up --directory /d")
    assert brokers.coordinator(replace(report, answers=True)).status == "ok"
