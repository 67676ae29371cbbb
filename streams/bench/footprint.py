"""What an environment takes that does next to nothing: memory, processes, processor time.

`slackwater up` in a process of its own, as a user starts it; a topic, a source, a view and a
sink as soon as statements are answered. The clock runs from the start of the process to the
first row in the sink's topic, as a committed reader sees it. Some time after that, everything
that `slackwater up` has started is counted, and then again for its processor time. At last the
replica is killed: until a message that is published then is in the answer of a SELECT.

Memory is proportional: a page that n processes share counts a n-th for each.
"""

import json
import os
import signal
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from streams.bench.figures import Figure, Outcome, at_most
from streams.bench.process_kinds import (
    REPLICA,
    KindUsage,
    kind_of,
    percent_since,
    process_times,
    total,
    usage,
)
from streams.bench.rig import Say
from streams.bench.up_process import UpProcess, up_process, wait_until
from streams.errors import Determinate, SlackwaterError
from streams.ids import Topic
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.bulk_producer import Publisher
from streams.kafka.client.raw import RawReader
from streams.kafka.topics import TopicKind, TopicSpec
from streams.process_tree import command_line, family, processes, require_linux
from streams.temporary import temporary_directory

MEMORY_MB, PROCESSES, FIRST_ROW_S, RESTART_S = 700.0, 8, 10.0, 8.0
CLICKS, COUNTS = Topic("clicks"), Topic("counts")
STATEMENTS = (
    f"CREATE SOURCE clicks FROM KAFKA (TOPIC '{CLICKS}') (id BIGINT) FORMAT JSON",
    "CREATE MATERIALIZED VIEW counts AS"
    " SELECT id % 3 AS k, count(*) AS n FROM clicks GROUP BY 1",
    f"CREATE SINK counts_out FROM counts INTO KAFKA (TOPIC '{COUNTS}') KEY (k)",
)
MESSAGES = 100
MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Footprint:
    """What was figures. Units: seconds; percent of a core."""

    answers_s: float
    first_row_s: float
    kinds: Mapping[str, KindUsage]
    idle_percent: Mapping[str, float]
    restart_s: float


def footprint(say: Say, settle_s: float, idle_s: float) -> Outcome:
    """Measure one environment, `settle_s` after the first row and for `idle_s`.

    Errors: InvalidUsage where there is no /proc; Determinate.
    """
    require_linux("the footprint of an environment")
    with temporary_directory("slackwater-") as scratch:
        say("slackwater up")
        with up_process(Path(scratch) / "environment") as up:
            return outcome_of(_measured(say, up, settle_s, idle_s))


def outcome_of(measured: Footprint) -> Outcome:
    """Return the figures, and the share of each kind of process."""
    whole = total(measured.kinds)
    figures = (
        at_most("footprint_mb", whole.pss_bytes / MEGABYTE, "MB", MEMORY_MB),
        at_most("footprint_processes", whole.processes, "", PROCESSES),
        at_most("first_row_s", measured.first_row_s, "s", FIRST_ROW_S),
        Figure("first_answer_s", measured.answers_s, "s"),
        Figure("footprint_cpu_s", whole.cpu_s, "s"),
        Figure("footprint_idle_cpu_percent", sum(measured.idle_percent.values()), "%"),
        at_most("replica_killed_to_fresh_s", measured.restart_s, "s", RESTART_S),
    )
    shares = {
        kind: {
            "MB": use.pss_bytes / MEGABYTE,
            "processes": use.processes,
            "CPU s": use.cpu_s,
            "idle, % of a core": measured.idle_percent.get(kind, 0.0),
        }
        for kind, use in sorted(measured.kinds.items(), key=lambda item: -item[1].pss_bytes)
    }
    note = "'slackwater up' with a source, a view and a sink; memory is proportional"
    return Outcome("footprint", figures, shares, note, "what is used", "processes")


def _measured(say: Say, up: UpProcess, settle_s: float, idle_s: float) -> Footprint:
    answers_s = up.age_s
    with closing(KafkaBroker(up.kafka)) as broker:
        broker.topics.create([TopicSpec(CLICKS, 1, TopicKind.RAW)])
    publisher = Publisher(up.kafka)
    _publish(publisher, MESSAGES)
    for statement in STATEMENTS:
        up.client.run(statement)
    say("a source, a view and a sink: until the first row")
    _await_record(up)
    first_row_s = up.age_s
    say(f"{settle_s:.0f} s until everything rests, then {idle_s:.0f} s of it")
    time.sleep(settle_s)
    kinds = usage(up.pid)
    before, began = process_times(up.pid), time.perf_counter()
    time.sleep(idle_s)
    now = process_times(up.pid)
    percent = percent_since(before, now, time.perf_counter() - began)
    say("killing the replica")
    return Footprint(answers_s, first_row_s, kinds, percent, _restart_s(up, publisher))


def _publish(publisher: Publisher, count: int) -> None:
    values = pa.array([json.dumps({"id": number}) for number in range(count)])
    publisher.publish(CLICKS, None, values)
    publisher.flush()


def _await_record(up: UpProcess) -> None:
    """Wait until a committed reader has a record of the sink's topic."""
    with closing(RawReader(up.kafka)) as reader:

        def has_record() -> bool:
            with suppress(Determinate):  # the sink has not created its topic
                return any(
                    reader.fetch(COUNTS, partition, low, high, 1).num_rows
                    for partition, (low, high) in reader.ends(COUNTS).items()
                    if high > low
                )
            return False

        wait_until(has_record, "the sink wrote no row")


def _restart_s(up: UpProcess, publisher: Publisher) -> float:
    """Seconds from `kill -9` of the replica to the answer that has a later message."""

    def messages() -> int:
        with suppress(SlackwaterError):
            (answer,) = up.client.run("SELECT sum(n)::BIGINT FROM counts")
            return int(str(answer.rows[0][0]))
        return 0

    before, began = messages(), time.perf_counter()
    os.killpg(_replica(up.pid), signal.SIGKILL)
    _publish(publisher, 1)
    wait_until(lambda: messages() > before, "the replica did not come back")
    return time.perf_counter() - began


def _replica(root: int) -> int:
    """The replica's process, which leads a group. Errors: Determinate."""
    for pid in family(root, processes()):
        if kind_of(command_line(pid)) == REPLICA:
            return pid
    raise Determinate("the replica does not run")
