"""The fast path: decides which micro-batches a resident task runs. Pure.

A job of Spark takes some 60 ms however little it does. A resident task
(`streams.replica.spark.resident_jobs`) runs all rounds of a micro-batch one after another and
answers at once, but on one core. So it is for micro-batches of the lanes `ingest` and `steady`
that are small: few messages and bytes, and dataflows whose last steps took less time than a job
costs beside its work, as jobs before have shown: more on a busy machine. A fixed limit would
keep a busy machine on jobs, since more messages come meanwhile, which take longer. Builds,
backlog, steps in quarantine and sources with a watermark go to the query of their lane, and
everything does while no resident task is connected.

Whatever a resident task fails at goes to the query as it is: the same descriptor runs again,
and only a failure there is a failure of dataflows. A dataflow that was in a micro-batch whose
resident task was lost, missed its deadline or could not run it is barred from the fast path for
a while, and for twice as long at the next failure. So is one whose steps were predicted to be
short and were long twice. Nothing is barred for ever.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import assert_never

from streams.compute.stalls import TopicReport
from streams.ids import CollectionId, Topic
from streams.replica.driver.task_assignment import size_of
from streams.replica.driver.work_units import SourceUnit, Unit, ViewUnit
from streams.replica.ingest import ranges
from streams.replica.tasks.descriptor import ChunkLoad, Load, RawLoad, Undo

FAST_LANES = ("ingest", "steady")

MOST_MESSAGES = 5_000
MOST_BYTES = 1 << 20
LEAST_MS = 60.0
"""What a job costs beside its work on a quiet machine."""

MOST_MS = 500.0
"""Greatest predicted time in a resident task, whatever jobs cost: other steps wait for it."""

OF_A_JOB, OF_A_STEP = 0.25, 0.002
"""How far a job moves the estimate of what jobs cost, and a resident step back: old jobs tell
less and less."""

LONG_MS = 2 * MOST_MS
"""A dataflow's step that was predicted to be short and took longer is a *long* one."""

LONG_TWICE_S = 30.0
"""The time within which a second long step bars a dataflow."""

LEAST_DEADLINE_S = 2.0
TIMES_THE_PREDICTED = 10

FIRST_BAR_S = 10.0
LONGEST_BAR_S = 600.0
FORGET_S = 1200.0
"""The time after which a failure is forgotten: the next one is a first one."""


class Way(Enum):
    """What runs the tasks of a micro-batch."""

    QUERY = "query"
    """The streaming query of its lane, as a job."""
    RESIDENT = "resident"
    """A resident task."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The failures of a dataflow on the fast path; times in seconds of a steady clock."""

    failures: int = 0
    failed_s: float = 0.0
    long_s: float | None = None

    @property
    def barred_until_s(self) -> float:
        """The time until which it may not use the fast path."""
        if not self.failures:
            return 0.0
        doubled = FIRST_BAR_S * (1 << min(self.failures - 1, 20))
        return self.failed_s + min(doubled, LONGEST_BAR_S)

    def failed(self, now_s: float) -> "Standing":
        """Return the standing after a micro-batch of it failed in a resident task."""
        return Standing(1 + (0 if self.is_over(now_s) else self.failures), now_s)

    def was_long(self, now_s: float) -> "Standing":
        """Return the standing after a step of it was long."""
        if self.long_s is not None and now_s - self.long_s <= LONG_TWICE_S:
            return self.failed(now_s)
        return replace(self, long_s=now_s)

    def is_over(self, now_s: float) -> bool:
        """Whether all this was so long ago that it is forgotten."""
        last_s = max(self.failed_s if self.failures else 0.0, self.long_s or 0.0)
        return now_s - last_s > FORGET_S


@dataclass(slots=True)
class FastPath:
    """Decides; `connected` and `idle` count the resident tasks that there are and that wait.

    `job_ms` is what a job costs beside its work, as far as is known.
    """

    connected: int = 0
    idle: int = 0
    job_ms: float = LEAST_MS
    standings: dict[CollectionId, Standing] = field(default_factory=dict)

    def begins(self, lane: str) -> bool:
        """Whether an idle resident task plans the next micro-batch of a lane."""
        return self.idle > 0 and lane in FAST_LANES

    def way(
        self,
        lane: str,
        units: Sequence[Unit],
        topics: Mapping[Topic, TopicReport],
        now_s: float,
    ) -> Way:
        """Return the way of a new micro-batch; `topics` say how large messages are."""
        if not self.connected or lane not in FAST_LANES or not is_small(units, topics):
            return Way.QUERY
        if predicted_ms(units) > self.most_ms:
            return Way.QUERY
        if any(self._bars(unit.flow.id, now_s) for unit in units):
            return Way.QUERY
        return Way.RESIDENT

    @property
    def most_ms(self) -> float:
        """The greatest predicted time of a micro-batch that takes the fast path."""
        return max(self.job_ms, LEAST_MS)

    def had_job(self, took_ms: float, work_ms: float) -> None:
        """A job took so long from its decision on, its dataflows so long in all its tasks."""
        if work_ms <= MOST_MS:
            beside_ms = min(max(took_ms - work_ms, 0.0), MOST_MS)
            self.job_ms += OF_A_JOB * (beside_ms - self.job_ms)

    def failed(self, dataflows: Iterable[CollectionId], now_s: float) -> None:
        """A micro-batch of these dataflows failed in a resident task."""
        self._forget(now_s)
        for id_ in dataflows:
            self.standings[id_] = self.standings.get(id_, Standing()).failed(now_s)

    def ran(self, milliseconds: Mapping[CollectionId, float], now_s: float) -> None:
        """A resident task has run a micro-batch; these are the times of its dataflows."""
        self.job_ms += OF_A_STEP * (LEAST_MS - self.job_ms)
        for id_, took_ms in milliseconds.items():
            if took_ms > LONG_MS:
                self._forget(now_s)
                self.standings[id_] = self.standings.get(id_, Standing()).was_long(now_s)

    def _bars(self, id_: CollectionId, now_s: float) -> bool:
        return id_ in self.standings and now_s < self.standings[id_].barred_until_s

    def _forget(self, now_s: float) -> None:
        kept = {id_: past for id_, past in self.standings.items() if not past.is_over(now_s)}
        self.standings = kept


def is_small(units: Sequence[Unit], topics: Mapping[Topic, TopicReport]) -> bool:
    """Whether a micro-batch is small, as far as can be told before it runs."""
    if not all(isinstance(unit, ViewUnit | SourceUnit) for unit in units):
        return False
    if any(unit.flow.isolation.steps for unit in units):
        return False
    sizes = [_size(load, topics) for unit in units for load in unit.loads]
    messages, read = sum(count for count, _ in sizes), sum(bytes_ for _, bytes_ in sizes)
    return messages <= MOST_MESSAGES and read <= MOST_BYTES


def predicted_ms(units: Sequence[Unit]) -> float:
    """Return the time that the dataflows of a micro-batch took when they were last stepped."""
    return sum(unit.flow.cost_ms for unit in units)


def deadline_s(units: Sequence[Unit]) -> float:
    """Return the limit of a micro-batch in a resident task, in seconds."""
    return LEAST_DEADLINE_S + TIMES_THE_PREDICTED * predicted_ms(units) / 1000


def _size(load: Load, topics: Mapping[Topic, TopicReport]) -> tuple[int, int]:
    """Return the messages of a load, and its bytes."""
    match load:
        case ChunkLoad() | Undo():
            return 0, size_of(load)
        case RawLoad():
            messages, topic = ranges.length(load.slices), topics.get(load.source.topic)
            return messages, messages * (0 if topic is None else topic.message_bytes)
        case _:
            assert_never(load)
