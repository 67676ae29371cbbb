"""Checks of brokers, and of the topics of an environment. Each is a pure function of facts."""

from collections.abc import Collection, Mapping

from streams.app.doctor.facts import (
    ClockReport,
    ClusterReport,
    CoordinatorReport,
    TopicsReport,
    Verdict,
)
from streams.compute.reclocking import MAX_SKEW_MS
from streams.ids import Topic
from streams.kafka.topics import (
    EXCHANGED,
    Durability,
    TopicKind,
    TopicSpec,
    differences,
    exchange_problems,
)

RELEASES = {11: "2.3", 12: "2.7", 13: "3.1", 15: "3.5", 16: "3.7", 17: "3.9", 18: "4.1"}
"""The first releases of Kafka that take a version of the Fetch request."""

TOPIC_IDS = 10
"""The first version of the Metadata request with the ids of topics: Kafka 2.8."""

SHOWN = 5
"""Topics that are named in one verdict."""


def reach(report: ClusterReport) -> Verdict:
    """Whether all brokers answer, each at the address that it gives to clients."""
    if report.cluster is None:
        return Verdict(
            check="brokers",
            status="wrong",
            found=f"no broker answers at {report.address}: {report.problem}",
            do="check the address and --client (TLS, SASL), and that a broker runs there; the"
            " embedded one runs with 'slackwater up'",
        )
    silent = [broker for broker in report.cluster.brokers if broker.problem]
    if silent:
        said = "; ".join(f"{one.id} at {one.address}: {one.problem}" for one in silent)
        return Verdict(
            check="brokers",
            status="wrong",
            found=f"{len(silent)} of {len(report.cluster.brokers)} do not answer: {said}",
            do="start them, or correct their advertised.listeners: this machine has to reach"
            " each broker at the address that it advertises",
        )
    addresses = ", ".join(broker.address for broker in report.cluster.brokers)
    return Verdict(check="brokers", status="ok", found=f"all answer: {addresses}")


def version(report: ClusterReport) -> Verdict:
    """Whether the brokers are new enough for what we ask of them."""
    requests = {} if report.cluster is None else report.cluster.requests
    if not {"Metadata", "Fetch"} <= requests.keys():
        return Verdict(
            check="broker version",
            status="unknown",
            found="the brokers do not say what they are",
        )
    release = release_of(requests["Fetch"])
    if requests["Metadata"] < TOPIC_IDS:
        return Verdict(
            check="broker version",
            status="wrong",
            found=f"Kafka {release}, expected 2.8 or newer: topics have no ids",
            do="upgrade the brokers: a topic that was deleted and created again would be taken"
            " for the old one",
        )
    return Verdict(check="broker version", status="ok", found=f"Kafka {release} or newer")


def release_of(fetch: int) -> str:
    """The first release whose brokers take this version of Fetch, at least."""
    releases = [release for number, release in RELEASES.items() if number <= fetch]
    return releases[-1] if releases else f"before {RELEASES[min(RELEASES)]}"


def durability(report: ClusterReport, wanted: Durability) -> Verdict:
    """Whether there are brokers for as many copies as our topics have."""
    count = 0 if report.cluster is None else len(report.cluster.brokers)
    if count == 0:
        return Verdict(check="copies", status="unknown", found="no broker answers")
    if count < wanted.replication:
        return Verdict(
            check="copies",
            status="wrong",
            found=f"{count} brokers for {wanted.replication} copies of each record",
            do=f"add brokers, or start with --topic replication.factor={count}",
        )
    if wanted.replication == 1:
        return Verdict(
            check="copies",
            status="ok",
            found="one copy of each record: it survives kills, not the loss of a disk",
        )
    finding = (
        f"{wanted.replication} copies of each record, {wanted.min_insync} before it counts"
    )
    return Verdict(check="copies", status="ok", found=finding)


def clock(report: ClockReport) -> Verdict:
    """Whether this machine's clock agrees with the broker's, as far as a measurement tells."""
    if report.clock is None:
        return Verdict(check="clock", status="unknown", found=report.problem)
    facts = report.clock
    lowest, highest = facts.before_ms - facts.broker_ms, facts.after_ms - facts.broker_ms
    ahead_ms = max(lowest, min(0, highest))
    if abs(ahead_ms) > MAX_SKEW_MS:
        side = "ahead of" if ahead_ms > 0 else "behind"
        return Verdict(
            check="clock",
            status="wrong",
            found=f"this machine is {abs(ahead_ms) / 1000:.1f} s {side} the broker,"
            f" expected at most {MAX_SKEW_MS / 1000:g} s",
            do="synchronise both clocks (NTP): until then idle sources of a replica here wait",
        )
    least = f"{abs(ahead_ms) / 1000:.1f} s" if ahead_ms else "no difference"
    finding = f"{least}, measured within {facts.after_ms - facts.before_ms} ms"
    return Verdict(check="clock", status="ok", found=finding)


def specs_of(namespace: str, names: Collection[Topic]) -> dict[Topic, TopicSpec]:
    """The topics of a namespace that the system made for itself, as they have to be."""
    start, there = f"{namespace}.", frozenset(names)
    fixed = {
        f"{start}catalog": TopicKind.LOG,
        f"{start}storage.commands": TopicKind.COMMANDS,
        f"{start}storage.responses": TopicKind.RESPONSES,
    }
    kinds = {name: fixed.get(name) or _kind(name, start, there) for name in sorted(names)}
    return {name: TopicSpec(name, 1, kind) for name, kind in kinds.items() if kind is not None}


def _kind(name: Topic, start: str, there: frozenset[Topic]) -> TopicKind | None:
    stem, _, last = name.rpartition(".")
    if name.startswith(f"{start}compute.") and last in {"commands", "responses"}:
        return TopicKind.LOG
    other = {"log": "data", "data": "log"}.get(last)
    if not name.startswith(start) or other is None or f"{stem}.{other}" not in there:
        return None
    return TopicKind.LOG if last == "log" else TopicKind.DATA


def settings(report: TopicsReport) -> Verdict:
    """Whether the topics have the partitions, copies and settings that correctness needs."""
    if report.problem:
        return Verdict(check="topics", status="unknown", found=report.problem)
    specs = specs_of(report.namespace, report.found)
    wrong = {
        name: list(differences(spec, report.durability, report.found[name]))
        for name, spec in specs.items()
    }
    pair = {spec.kind: name for name, spec in specs.items() if spec.kind in EXCHANGED}
    if pair.keys() == EXCHANGED:
        problems = exchange_problems({kind: report.found[name] for kind, name in pair.items()})
        for kind, problem in problems.items():
            wrong[pair[kind]].append(problem)
    wrong = {name: phrases for name, phrases in wrong.items() if phrases}
    if wrong:
        return Verdict(
            check="topics",
            status="wrong",
            found=_named({name: "; ".join(phrases) for name, phrases in wrong.items()}),
            do="set what was found to what is expected with kafka-configs.sh --alter (copies:"
            " kafka-reassign-partitions.sh); a topic with other partitions was not made by us:"
            " use another --namespace. If fewer copies were chosen, say so with --topic",
        )
    count = len(specs)
    finding = f"{count} of namespace {report.namespace}, as they have to be"
    return Verdict(check="topics", status="ok", found=finding)


def in_sync(report: TopicsReport) -> Verdict:
    """Whether the copies of the topics are in sync."""
    if report.problem:
        return Verdict(check="copies in sync", status="unknown", found=report.problem)
    behind = {
        name: f"{topic.in_sync} of {topic.replication} copies in sync"
        for name, topic in report.found.items()
        if topic.in_sync is not None and topic.in_sync < topic.replication
    }
    if behind:
        return Verdict(
            check="copies in sync",
            status="wrong",
            found=_named(behind),
            do="start the brokers that are down, or wait until they have caught up: with fewer"
            " copies than min.insync.replicas nothing can be written",
        )
    return Verdict(check="copies in sync", status="ok", found="all")


def coordinator(report: CoordinatorReport) -> Verdict:
    """Whether the environment's coordinator answers."""
    if report.answers:
        return Verdict(check="coordinator", status="ok", found=f"answers at {report.url}")
    return Verdict(
        check="coordinator",
        status="wrong",
        found=f"does not answer at {report.url}",
        do=f"start the environment: slackwater up --directory {report.directory}; if it runs,"
        " logs/coordinator.log in that directory says why",
    )


def _named(phrases: Mapping[Topic, str]) -> str:
    """What is said of topics, of the first ones by name."""
    shown = [f"{name}: {phrase}" for name, phrase in sorted(phrases.items())[:SHOWN]]
    more = len(phrases) - len(shown)
    return " | ".join([*shown, *([f"and {more} more"] if more > 0 else [])])
